// From a layer's choices to rows by expert, and back: no number leaves the device on the way.
//
// tally counts the choices of each chunk by expert; plan says where every expert's rows begin, and
// lists the tiles of rows of the products; place gives each choice its row, in the order of the
// choices; pack copies tokens to their rows. gather adds up what the experts say of each token.
//
// Rows of an expert begin at multiples of PAD and are filled up with zeros to one. A choice outside
// of the experts has no row.
//
// Genes (macros): PAD, CHUNK, PACK_THREADS, GATHER_THREADS, PDL. The job: DTYPE_*,
// SELECTED_int32|int64, EXPERTS, TOP_K, HIDDEN, and TILE_INNER, TILE_HIDDEN, TILE_TOKEN: the rows of
// the products' tiles.

#include "device.cuh"

#define PLAN_THREADS 1024
#define VECTOR 8                             // elements of 16 bytes

#if SELECTED_int64
typedef i64 choice;
#else
typedef int choice;
#endif

DEVICE int expert_of(choice chosen) { return chosen >= 0 && chosen < EXPERTS ? (int)chosen : -1; }

// counts (EXPERTS, chunks): how often each expert was chosen in each chunk.
extern "C" __global__ void __launch_bounds__(CHUNK)
tally(const choice* selected, int* counts, int choices, int chunks) {
    __shared__ int held[EXPERTS];
    for (int i = threadIdx.x; i < EXPERTS; i += CHUNK) held[i] = 0;
    __syncthreads();
    wait_for_previous_kernel();
    const int at = blockIdx.x * CHUNK + threadIdx.x;
    const int expert = at < choices ? expert_of(selected[at]) : -1;
    if (expert >= 0) atomicAdd(&held[expert], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < EXPERTS; i += CHUNK) counts[i * chunks + blockIdx.x] = held[i];
    let_next_kernel_start();
}

// What the threads before this one have together; `total` is what all have.
DEVICE int before(int value, int* parts, int& total) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int sum = value;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, sum, distance);
        if (lane >= distance) sum += other;
    }
    __syncthreads();
    if (lane == 31) parts[warp] = sum;
    __syncthreads();
    int base = 0;
    total = 0;
#pragma unroll 1
    for (int i = 0; i < PLAN_THREADS / 32; ++i) {
        if (i < warp) base += parts[i];
        total += parts[i];
    }
    return base + sum - value;
}

// The tiles of an expert's rows: expert, first row, end.
DEVICE void list_tiles(int* table, int* counted, int expert, int start, int rows, int tile,
                       int* parts) {
    int total;
    const int tiles = (rows + tile - 1) / tile, first = before(tiles, parts, total);
    for (int i = 0; i < tiles; ++i) {
        int* entry = table + 4 * (i64)(first + i);
        entry[0] = expert, entry[1] = start + i * tile, entry[2] = start + rows;
    }
    if (threadIdx.x == 0) *counted = total;
}

// One block. counts become what came before each chunk; spans (EXPERTS, 2) are first row and end;
// sources of rows that only fill up are -1; counted: tiles of the three products, then rows.
extern "C" __global__ void __launch_bounds__(PLAN_THREADS)
plan(int* counts, int* spans, int* sources, int* inner_table, int* hidden_table, int* token_table,
     int* counted, int chunks) {
    __shared__ int taken[EXPERTS], parts[PLAN_THREADS / 32];
    const int lane = threadIdx.x % 32;
    wait_for_previous_kernel();
    for (int expert = threadIdx.x / 32; expert < EXPERTS; expert += PLAN_THREADS / 32) {
        int* mine = counts + expert * chunks;
        int total = 0;
        for (int chunk = 0; chunk < chunks; chunk += 32) {
            const int value = chunk + lane < chunks ? mine[chunk + lane] : 0;
            int sum = value;
#pragma unroll
            for (int distance = 1; distance < 32; distance *= 2) {
                const int other = __shfl_up_sync(0xffffffffu, sum, distance);
                if (lane >= distance) sum += other;
            }
            if (chunk + lane < chunks) mine[chunk + lane] = total + sum - value;
            total += __shfl_sync(0xffffffffu, sum, 31);
        }
        if (lane == 0) taken[expert] = total;
    }
    __syncthreads();
    const int expert = threadIdx.x, used = expert < EXPERTS ? taken[expert] : 0;
    const int rows = (used + PAD - 1) / PAD * PAD;
    int total;
    const int start = before(rows, parts, total);
    if (expert < EXPERTS) spans[2 * expert] = start, spans[2 * expert + 1] = start + rows;
    for (int row = used; row < rows; ++row) sources[start + row] = -1;
    if (threadIdx.x == 0) counted[3] = total;
    list_tiles(inner_table, counted, expert, start, rows, TILE_INNER, parts);
    list_tiles(hidden_table, counted + 1, expert, start, rows, TILE_HIDDEN, parts);
    list_tiles(token_table, counted + 2, expert, start, rows, TILE_TOKEN, parts);
    let_next_kernel_start();
}

// places (choices): the row of each choice; sources: the choice of each row.
extern "C" __global__ void __launch_bounds__(CHUNK)
place(const choice* selected, const int* counts, const int* spans, int* places, int* sources,
      int choices, int chunks) {
    __shared__ int experts[CHUNK];
    wait_for_previous_kernel();
    const int at = blockIdx.x * CHUNK + threadIdx.x;
    const int expert = at < choices ? expert_of(selected[at]) : -1;
    experts[threadIdx.x] = expert;
    __syncthreads();
    if (expert >= 0) {
        int rank = 0;
        for (int i = 0; i < (int)threadIdx.x; ++i) rank += experts[i] == expert;
        const int row = spans[2 * expert] + counts[expert * chunks + blockIdx.x] + rank;
        places[at] = row;
        sources[row] = at;
    } else if (at < choices) {
        places[at] = -1;
    }
    let_next_kernel_start();
}

// One row a block: a token, its gradient and its weight, or zeros.
extern "C" __global__ void __launch_bounds__(PACK_THREADS)
pack(const element* x, const element* grad, const float* weights, const int* sources,
     const int* counted, element* packed_x, element* packed_grad, float* scales) {
    wait_for_previous_kernel();
    const int row = blockIdx.x;
    if (row < counted[3]) {
        const int source = sources[row];
        const i64 from = (i64)(source / TOP_K) * (HIDDEN / VECTOR), to = (i64)row * (HIDDEN / VECTOR);
        for (int i = threadIdx.x; i < HIDDEN / VECTOR; i += PACK_THREADS) {
            uint4 one = make_uint4(0, 0, 0, 0), other = one;
            if (source >= 0) one = ((const uint4*)x)[from + i], other = ((const uint4*)grad)[from + i];
            ((uint4*)packed_x)[to + i] = one;
            ((uint4*)packed_grad)[to + i] = other;
        }
        if (threadIdx.x == 0) scales[row] = source < 0 ? 0.0f : weights[source];
    }
    let_next_kernel_start();
}

// One token a block: what the shared expert and the chosen ones say of it, in the order of its
// choices; and its weights' gradients, whose parts lie `columns` times `rows` apart.
extern "C" __global__ void __launch_bounds__(GATHER_THREADS)
gather(const element* shared_part, const element* parts, const int* places, const float* products,
       element* grad_x, float* grad_weights, int rows, int columns) {
    wait_for_previous_kernel();
    const i64 base = (i64)blockIdx.x * (HIDDEN / VECTOR);
    const int* mine = places + (i64)blockIdx.x * TOP_K;
    for (int i = threadIdx.x; i < HIDDEN / VECTOR; i += GATHER_THREADS) {
        uint4 held = ((const uint4*)shared_part)[base + i];
        u32* words = (u32*)&held;
        float total[VECTOR];
#pragma unroll
        for (int j = 0; j < VECTOR / 2; ++j) {
            const float2 pair = unpack2(words[j]);
            total[2 * j] = pair.x, total[2 * j + 1] = pair.y;
        }
#pragma unroll
        for (int slot = 0; slot < TOP_K; ++slot) {
            const int row = mine[slot];
            if (row < 0) continue;
            const uint4 more = ((const uint4*)parts)[(i64)row * (HIDDEN / VECTOR) + i];
            const u32* others = (const u32*)&more;
#pragma unroll
            for (int j = 0; j < VECTOR / 2; ++j) {
                const float2 pair = unpack2(others[j]);
                total[2 * j] += pair.x, total[2 * j + 1] += pair.y;
            }
        }
#pragma unroll
        for (int j = 0; j < VECTOR / 2; ++j) words[j] = pack2(total[2 * j], total[2 * j + 1]);
        ((uint4*)grad_x)[base + i] = held;
    }
    for (int slot = threadIdx.x; slot < TOP_K; slot += GATHER_THREADS) {
        const int row = mine[slot];
        float total = 0.0f;
        for (int i = 0; row >= 0 && i < columns; ++i) total += products[(i64)i * rows + row];
        grad_weights[(i64)blockIdx.x * TOP_K + slot] = total;
    }
    let_next_kernel_start();
}
