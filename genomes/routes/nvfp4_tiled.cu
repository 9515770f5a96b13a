// Grouped-query attention over 4-bit floats for more keys than a row's scores fit registers.
//
// As nvfp4_gqa.cu, but keys and values of a head pass by in tiles, twice: the first time for each
// row's highest score and the sum behind the softmax, the second time for the weights themselves,
// which leave at once and mix the values. A block's warpgroups share the tiles and go in step; with
// two stages the next tile is dequantised while tensor cores work on this one.
//
// Genes (macros): PRODUCTS_warpgroup|warp, WARPGROUPS, PARTS, TILE_KV, STAGES, STORE_direct|engine,
// MIX_first|last, DEQUANTISE_table|convert, MAX_REGISTERS, MIN_BLOCKS, PDL. The job: HEAD, GROUP, LENGTH.

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
#define KV_TILES ((LENGTH + TILE_KV - 1) / TILE_KV)

#include "codes.cuh"
#include "rows_of_codes.cuh"

// Keys and values of a head: where they are, and where their tiles lie dequantised.
struct Head {
    const u8 *k, *k_scale, *v, *v_scale;
    u32 keys, values;

    // Tiles of a step: steps count the key tiles twice, values are needed the second time.
    DEVICE void fill(int step) const {
        const u32 place = step % STAGES * TILE_BYTES;
        const int first = step % KV_TILES * TILE_KV;
        dequantise_rows(keys + place, k, k_scale, first);
        if (step >= KV_TILES) dequantise_rows(values + place, v, v_scale, first);
        shared_visible_to_engines();
    }
};

// Scores of a warpgroup's rows against a step's keys; those behind the last key are minus infinity.
DEVICE void tile_scores(float (&scores)[TILE_KV / 2], const Head& head, u32 queries, int step,
                        int warp, int lane) {
#if STAGES == 1
    __syncthreads();                          // everybody has done with the tile before
    head.fill(step);
    __syncthreads();
    begin_scores(scores, queries, head.keys, warp, lane);
#else
    __syncthreads();                          // the tile is there, the other stage is free
    begin_scores(scores, queries, head.keys + step % STAGES * TILE_BYTES, warp, lane);
    if (step + 1 < 2 * KV_TILES) head.fill(step + 1);
#endif
    products_wait<0>();
    hold(scores);
#if LENGTH % TILE_KV
    if (step % KV_TILES == KV_TILES - 1) {
#pragma unroll
        for (int i = 0; i < TILE_KV / 2; ++i) {
            const int key = (KV_TILES - 1) * TILE_KV + i / 4 * 8 + lane % 4 * 2 + i % 2;
            if (key >= LENGTH) scores[i] = -HALF_INFINITY;
        }
    }
#endif
}

extern "C" __global__ void BOUNDS
nvfp4_tiled(const __grid_constant__ TensorMap out_map, const __grid_constant__ TensorMap weights_map,
            const u8* __restrict__ q, const u8* __restrict__ q_scale,
            const float* __restrict__ q_global, const u8* __restrict__ k,
            const u8* __restrict__ k_scale, const float* __restrict__ k_global,
            const u8* __restrict__ v, const u8* __restrict__ v_scale,
            const float* __restrict__ v_global, element* __restrict__ out,
            element* __restrict__ weights_out, float factor) {
    extern __shared__ u8 shared_bytes[];
    const u32 base = (shared_address(shared_bytes) + 1023u) & ~1023u;
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int thread = threadIdx.x % 128;
    const int warp = thread / 32, lane = thread % 32;
    const u32 queries = base + 2 * STAGES * TILE_BYTES + warpgroup * (2 * QUERY_BYTES);
    const int pair = blockIdx.x / PARTS, part = blockIdx.x % PARTS;   // sequence and kv head
    const i64 first_row = (i64)pair * ROWS, first_key = (i64)pair * LENGTH;
    const Way way{&out_map, &weights_map, out, weights_out, queries + QUERY_BYTES,
                  first_row, pair, warpgroup, thread, warp, lane};
    const Head head{k + first_key * (HEAD / 2), k_scale + first_key * BLOCKS,
                    v + first_key * (HEAD / 2), v_scale + first_key * BLOCKS,
                    base, base + STAGES * TILE_BYTES};
    q += first_row * (HEAD / 2);
    q_scale += first_row * BLOCKS;

    wait_for_previous_kernel();
    const float scale = *q_global * *k_global * factor * 1.4426950408889634f;
    const float value_scale = *v_global;

    // The warpgroups of a block stay together: one without rows of its own works on zeros.
    for (int first = part * WARPGROUPS; first < TILES; first += PARTS * WARPGROUPS) {
        const int tile = first + warpgroup;
        Half half_row;
        fetch_half(half_row, q, q_scale, tile * 64 + thread / 2, thread % 2);
        __syncthreads();                      // everybody has done with the last rows and their tiles
        dequantise_half(queries, half_row, thread);
        shared_visible_to_engines();
#if STAGES > 1
        head.fill(0);
#endif

        float high[2] = {-HALF_INFINITY, -HALF_INFINITY}, total[2] = {0.0f, 0.0f};
#pragma unroll 1
        for (int step = 0; step < KV_TILES; ++step) {
            float scores[TILE_KV / 2];
            tile_scores(scores, head, queries, step, warp, lane);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float higher = high[half];
#pragma unroll
                for (int i = 0; i < TILE_KV / 4; ++i) {
                    higher = fmaxf(higher, scores[i / 2 * 4 + 2 * half + i % 2]);
                }
                higher = row_max(higher);
                if (step > 0) total[half] *= exp2_fast((high[half] - higher) * scale);
                high[half] = higher;
                const float shift = higher * scale;
#pragma unroll
                for (int i = 0; i < TILE_KV / 4; ++i) {
                    total[half] += exp2_fast(scores[i / 2 * 4 + 2 * half + i % 2] * scale - shift);
                }
            }
        }
        float shift[2], whole[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            shift[half] = high[half] * scale;
            whole[half] = 1.0f / row_add(total[half]);
        }

        float mixed[HEAD / 2];
#pragma unroll
        for (int i = 0; i < HEAD / 2; ++i) mixed[i] = 0.0f;
#pragma unroll 1
        for (int step = KV_TILES; step < 2 * KV_TILES; ++step) {
            u32 weights[TILE_KV / 16][4];
            {
                float scores[TILE_KV / 2];
                tile_scores(scores, head, queries, step, warp, lane);
#pragma unroll
                for (int i = 0; i < TILE_KV / 2; ++i) {
                    const int half = i / 2 % 2;
                    scores[i] = exp2_fast(scores[i] * scale - shift[half]) * whole[half];
                }
                narrow(weights, scores);
            }
            const u32 values = head.values + step % STAGES * TILE_BYTES;
#if MIX_first
            begin_mixing(mixed, weights, values, lane);
#endif
#if STORE_engine
            way.buffers_free<0>();
#endif
            store_weights(way, weights, tile, (step - KV_TILES) * TILE_KV);
#if MIX_last
            begin_mixing(mixed, weights, values, lane);
#endif
            products_wait<0>();
            hold(mixed);
        }
        store_mixed(way, mixed, tile, value_scale);
    }
    let_next_kernel_start();
#if STORE_engine
    if (thread == 0) stores_have_read<0>();
#endif
}
