// What a gated layer does to products that the library has made: element by element, in place.
//
// Genes (macros): GATE_WARPS, GATE_VECTORS, PDL. The job: DTYPE_*.

#include "device.cuh"

#define GATE_THREADS (GATE_WARPS * 32)

// Every thread has GATE_VECTORS vectors of 16 bytes, each a block's width from the one before.
#define FOR_ITS_VECTORS(i, at)                                                                     \
    for (int i = 0, at = blockIdx.x * (GATE_THREADS * GATE_VECTORS) + threadIdx.x;                 \
         i < GATE_VECTORS; ++i, at += GATE_THREADS)

// No pointer is told to be restricted: what the kernel before wrote may be read after the wait only.
DEVICE float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

// SiLU(gate) * raised, written over the gate.
extern "C" __global__ void __launch_bounds__(GATE_THREADS)
gate_rows(uint4* gate, const uint4* raised, int vectors) {
    wait_for_previous_kernel();
    uint4 gates[GATE_VECTORS], factors[GATE_VECTORS];
#pragma unroll
    FOR_ITS_VECTORS(i, at) {
        if (at < vectors) gates[i] = gate[at], factors[i] = raised[at];
    }
#pragma unroll
    FOR_ITS_VECTORS(i, at) {
        if (at < vectors) {
            u32* words = (u32*)&gates[i];
            const u32* others = (const u32*)&factors[i];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float2 g = unpack2(words[j]), r = unpack2(others[j]);
                words[j] = pack2(g.x * sigmoid(g.x) * r.x, g.y * sigmoid(g.y) * r.y);
            }
            gate[at] = gates[i];
        }
    }
    let_next_kernel_start();
}

struct Gradients {
    float hidden, by_gate, by_raised;
};

DEVICE Gradients gradients(float gate, float raised, float grad) {
    const float s = sigmoid(gate), silu = gate * s;
    return {silu * raised, grad * raised * s * (1.0f + gate * (1.0f - s)), grad * silu};
}

// With the gradient of that product: the product itself into `hidden`, the gradients of gate and
// of what was raised over these.
extern "C" __global__ void __launch_bounds__(GATE_THREADS)
gate_rows_back(const uint4* grad, uint4* gate, uint4* raised, uint4* hidden, int vectors) {
    wait_for_previous_kernel();
    uint4 grads[GATE_VECTORS], gates[GATE_VECTORS], factors[GATE_VECTORS];
#pragma unroll
    FOR_ITS_VECTORS(i, at) {
        if (at < vectors) grads[i] = grad[at], gates[i] = gate[at], factors[i] = raised[at];
    }
#pragma unroll
    FOR_ITS_VECTORS(i, at) {
        if (at < vectors) {
            u32 *g = (u32*)&gates[i], *r = (u32*)&factors[i], *d = (u32*)&grads[i];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float2 gs = unpack2(g[j]), rs = unpack2(r[j]), ds = unpack2(d[j]);
                const Gradients low = gradients(gs.x, rs.x, ds.x), high = gradients(gs.y, rs.y, ds.y);
                d[j] = pack2(low.hidden, high.hidden);
                g[j] = pack2(low.by_gate, high.by_gate);
                r[j] = pack2(low.by_raised, high.by_raised);
            }
            hidden[at] = grads[i], gate[at] = gates[i], raised[at] = factors[i];
        }
    }
    let_next_kernel_start();
}
