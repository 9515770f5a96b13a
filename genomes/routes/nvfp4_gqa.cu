// Grouped-query attention over 4-bit floats; returns the mixed values and the weights themselves.
//
// Codes are e2m1, 16 of them share an e4m3 scale, a tensor shares a float32 one. Keys and values of a
// head lie dequantised in shared memory, queries follow tile by tile, and the tensor-wide scales go
// into the softmax and into the output. The query heads that share a key-value head follow one
// another in memory: rows of one matrix. A warpgroup owns 64 rows and all their scores: at most 256.
//
// Genes (macros): PRODUCTS_warpgroup|warp, WARPGROUPS, PARTS, STORE_direct|engine, SPARE, AHEAD,
// MIX_first|last, DEQUANTISE_table|convert, MAX_REGISTERS, MIN_BLOCKS, PDL. The job: HEAD, GROUP, LENGTH; TILE_KV is LENGTH rounded up to 16.

#define DTYPE_bfloat16 1
#include "device.cuh"
#include "copy_engine.cuh"
#include "matrices.cuh"
#if PRODUCTS_warpgroup
#include "warpgroup.cuh"
#include "products.cuh"
#endif
#include "attention.cuh"

#define THREADS (128 * WARPGROUPS)
#define TILE_BYTES (TILE_KV * HEAD * 2)

#include "codes.cuh"
#include "rows_of_codes.cuh"

extern "C" __global__ void BOUNDS
nvfp4_gqa(const __grid_constant__ TensorMap out_map, const __grid_constant__ TensorMap weights_map,
          const u8* __restrict__ q, const u8* __restrict__ q_scale,
          const float* __restrict__ q_global, const u8* __restrict__ k,
          const u8* __restrict__ k_scale, const float* __restrict__ k_global,
          const u8* __restrict__ v, const u8* __restrict__ v_scale,
          const float* __restrict__ v_global, element* __restrict__ out,
          element* __restrict__ weights_out, float factor) {
    extern __shared__ u8 shared_bytes[];
    const u32 base = (shared_address(shared_bytes) + 1023u) & ~1023u;
    const u32 keys = base, values = base + TILE_BYTES;
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int thread = threadIdx.x % 128;
    const int warp = thread / 32, lane = thread % 32;
    const u32 queries = values + TILE_BYTES + warpgroup * ((1 + SPARE) * QUERY_BYTES);
    const int pair = blockIdx.x / PARTS, part = blockIdx.x % PARTS;   // sequence and kv head
    const i64 first_row = (i64)pair * ROWS;
    const Way way{&out_map, &weights_map, out, weights_out, queries + SPARE * QUERY_BYTES,
                  first_row, pair, warpgroup, thread, warp, lane};
    q += first_row * (HEAD / 2);
    q_scale += first_row * BLOCKS;

    wait_for_previous_kernel();
    int tile = part * WARPGROUPS + warpgroup;
    Half coming;
    fetch_half(coming, q, q_scale, tile * 64 + thread / 2, thread % 2);
    const i64 first_key = (i64)pair * LENGTH;
    dequantise_rows(keys, k + first_key * (HEAD / 2), k_scale + first_key * BLOCKS, 0);
    dequantise_rows(values, v + first_key * (HEAD / 2), v_scale + first_key * BLOCKS, 0);
    const float scale = *q_global * *k_global * factor * 1.4426950408889634f;
    const float value_scale = *v_global;
    shared_visible_to_engines();
    __syncthreads();

    for (; tile < TILES; tile += PARTS * WARPGROUPS) {
#if STORE_engine && !SPARE
        way.buffers_free<0>();
#endif
        dequantise_half(queries, coming, thread);
        shared_visible_to_engines();
        way.meet();
#if AHEAD
        const int next = tile + PARTS * WARPGROUPS;
        fetch_half(coming, q, q_scale, next * 64 + thread / 2, thread % 2);
#endif

        float scores[TILE_KV / 2];
        begin_scores(scores, queries, keys, warp, lane);
        products_wait<0>();
        hold(scores);
#if TILE_KV > LENGTH
#pragma unroll
        for (int i = (LENGTH / 8) * 4; i < TILE_KV / 2; ++i) {
            if (i / 4 * 8 + lane % 4 * 2 + i % 2 >= LENGTH) scores[i] = -HALF_INFINITY;
        }
#endif
        float whole[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float high = -HALF_INFINITY, total = 0.0f;
#pragma unroll
            for (int i = 0; i < TILE_KV / 4; ++i) {
                high = fmaxf(high, scores[i / 2 * 4 + 2 * half + i % 2]);
            }
            const float shift = row_max(high) * scale;
#pragma unroll
            for (int i = 0; i < TILE_KV / 4; ++i) {
                float& score = scores[i / 2 * 4 + 2 * half + i % 2];
                score = exp2_fast(score * scale - shift);
                total += score;
            }
            whole[half] = 1.0f / row_add(total);
        }
#pragma unroll
        for (int i = 0; i < TILE_KV / 2; ++i) scores[i] *= whole[i / 2 % 2];
        u32 weights[TILE_KV / 16][4];
        narrow(weights, scores);

        float mixed[HEAD / 2];
#pragma unroll
        for (int i = 0; i < HEAD / 2; ++i) mixed[i] = 0.0f;
#if MIX_first
        begin_mixing(mixed, weights, values, lane);
#endif
#if STORE_engine && SPARE
        way.buffers_free<0>();
#elif STORE_engine
        way.meet();                           // the buffer is free: everybody has done with it
#endif
        store_weights(way, weights, tile, 0);
#if MIX_last
        begin_mixing(mixed, weights, values, lane);
#endif
        products_wait<0>();
        hold(mixed);
        store_mixed(way, mixed, tile, value_scale);
#if !AHEAD
        const int next = tile + PARTS * WARPGROUPS;
        fetch_half(coming, q, q_scale, next * 64 + thread / 2, thread % 2);
#endif
    }
    let_next_kernel_start();
#if STORE_engine
    if (thread == 0) stores_have_read<0>();
#endif
}
