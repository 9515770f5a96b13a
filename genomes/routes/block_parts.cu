// What stands between a decoder block's products: rows normalised by their root mean square, and
// the heads of queries and keys normalised and turned by their token's position.
//
// Genes (macros): NORM_WARPS, TURN_WARPS, PDL. The job: DTYPE_*, HIDDEN, HEAD.

#include "device.cuh"

#define VECTOR 8                             // elements of 16 bytes
#define ROW_THREADS (NORM_WARPS * 32)
#define HELD ((HIDDEN / VECTOR + ROW_THREADS - 1) / ROW_THREADS)
#define EVEN_ROW (HIDDEN / VECTOR % ROW_THREADS == 0)
#define HALF (HEAD / 2)
#define LANE_PAIRS (HALF / 32)               // features of a lane in each half of a head

DEVICE float warp_sum(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, distance);
    }
    return value;
}

// One row a block: kept in registers between the two passes. With `added` the rows' sum is
// normalised, as it is stored, and written to `summed`.
template <bool adds>
DEVICE void norm_row(const element* x, const element* added, const element* weight, element* out,
                     element* summed, float eps) {
    __shared__ float parts[NORM_WARPS];
    wait_for_previous_kernel();
    const i64 base = (i64)blockIdx.x * (HIDDEN / VECTOR);
    uint4 held[HELD];
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
        const int at = threadIdx.x + i * ROW_THREADS;
        if (EVEN_ROW || at < HIDDEN / VECTOR) {
            held[i] = ((const uint4*)x)[base + at];
            u32* words = (u32*)&held[i];
            if constexpr (adds) {
                const uint4 more = ((const uint4*)added)[base + at];
                const u32* others = (const u32*)&more;
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const float2 a = unpack2(words[j]), b = unpack2(others[j]);
                    words[j] = pack2(a.x + b.x, a.y + b.y);
                }
                ((uint4*)summed)[base + at] = held[i];
            }
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float2 pair = unpack2(words[j]);
                squares += pair.x * pair.x + pair.y * pair.y;
            }
        }
    }
    squares = warp_sum(squares);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = squares;
    __syncthreads();
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < NORM_WARPS; ++i) total += parts[i];
    const float scale = rsqrtf(total * (1.0f / HIDDEN) + eps);
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
        const int at = threadIdx.x + i * ROW_THREADS;
        if (EVEN_ROW || at < HIDDEN / VECTOR) {
            const uint4 factor = __ldg((const uint4*)weight + at);
            u32* words = (u32*)&held[i];
            const u32* factors = (const u32*)&factor;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float2 pair = unpack2(words[j]), f = unpack2(factors[j]);
                words[j] = pack2(pair.x * scale * f.x, pair.y * scale * f.y);
            }
            ((uint4*)out)[base + at] = held[i];
        }
    }
    let_next_kernel_start();
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS)
norm_rows(const element* __restrict__ x, const element* __restrict__ weight, element* __restrict__ out,
     float eps) {
    norm_row<false>(x, nullptr, weight, out, nullptr, eps);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS)
norm_rows_sum(const element* __restrict__ x, const element* __restrict__ added,
         const element* __restrict__ weight, element* __restrict__ out,
         element* __restrict__ summed, float eps) {
    norm_row<true>(x, added, weight, out, summed, eps);
}

// A lane's features of one half of a head, as floats.
DEVICE void lane_features(const element* from, float (&values)[LANE_PAIRS]) {
#if LANE_PAIRS == 1
    values[0] = to_float(*from);
#else
#pragma unroll
    for (int i = 0; i < LANE_PAIRS; i += 2) {
        const float2 pair = unpack2(*(const u32*)(from + i));
        values[i] = pair.x, values[i + 1] = pair.y;
    }
#endif
}

DEVICE void lane_store(element* to, const float (&values)[LANE_PAIRS]) {
#if LANE_PAIRS == 1
    *to = to_element(values[0]);
#else
#pragma unroll
    for (int i = 0; i < LANE_PAIRS; i += 2) *(u32*)(to + i) = pack2(values[i], values[i + 1]);
#endif
}

// One head a warp, queries first, then keys; in place.
extern "C" __global__ void __launch_bounds__(TURN_WARPS * 32)
turn_heads(element* q, element* k, const element* __restrict__ weight_q,
     const element* __restrict__ weight_k, const element* __restrict__ cosines,
     const element* __restrict__ sines, int query_rows, int key_rows, int query_heads,
     int key_heads, int seq, float eps) {
    wait_for_previous_kernel();
    int row = blockIdx.x * TURN_WARPS + threadIdx.x / 32;
    const int first = threadIdx.x % 32 * LANE_PAIRS;
    const bool of_query = row < query_rows;
    if (!of_query) row -= query_rows;
    if (of_query || row < key_rows) {
        element* at = (of_query ? q : k) + (i64)row * HEAD + first;
        const element* weight = (of_query ? weight_q : weight_k) + first;
        const i64 angle = (i64)(row / (of_query ? query_heads : key_heads) % seq) * HEAD + first;
        float low[LANE_PAIRS], high[LANE_PAIRS], factor[LANE_PAIRS];
        lane_features(at, low);
        lane_features(at + HALF, high);
        float squares = 0.0f;
#pragma unroll
        for (int i = 0; i < LANE_PAIRS; ++i) squares += low[i] * low[i] + high[i] * high[i];
        const float scale = rsqrtf(warp_sum(squares) * (1.0f / HEAD) + eps);
        lane_features(weight, factor);
#pragma unroll
        for (int i = 0; i < LANE_PAIRS; ++i) low[i] *= scale * factor[i];
        lane_features(weight + HALF, factor);
#pragma unroll
        for (int i = 0; i < LANE_PAIRS; ++i) high[i] *= scale * factor[i];
        float cosine[LANE_PAIRS], sine[LANE_PAIRS], turned[LANE_PAIRS];
        lane_features(cosines + angle, cosine);
        lane_features(sines + angle, sine);
#pragma unroll
        for (int i = 0; i < LANE_PAIRS; ++i) turned[i] = low[i] * cosine[i] - high[i] * sine[i];
        lane_store(at, turned);
        lane_features(cosines + angle + HALF, cosine);
        lane_features(sines + angle + HALF, sine);
#pragma unroll
        for (int i = 0; i < LANE_PAIRS; ++i) turned[i] = high[i] * cosine[i] + low[i] * sine[i];
        lane_store(at + HALF, turned);
    }
    let_next_kernel_start();
}
