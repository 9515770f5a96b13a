// Grouped-query attention over 4-bit floats where the chip multiplies them itself: compute
// capability 10.x and 11.x. It was compiled for 10.0 and its data movement checked on a CPU; it has
// never run on such a chip.
//
// Queries and keys share scales along the features that a score sums over, so scores are products of
// codes: the bytes go to shared memory as they are, their scales to tensor memory. Values share
// scales along the features too, but are summed over keys: they are dequantised to bfloat16, exactly.
// A block works on 128 rows at a time, a thread on a row. Key tiles pass by twice: for each row's
// highest score and sum, then for the weights, which are laid down once: the copy engine brings them
// away from where they are the left factor of the mixing. Where one tile holds all keys, its scores
// are multiplied once and read again, and mixed values take their columns in turn.
//
// Scales are taken as unsigned, as the format has them: the chip does not look at their sign.
//
// Genes (macros): PARTS, TILE_KV, STORE_direct|engine, DEQUANTISE_table|convert, MAX_REGISTERS,
// MIN_BLOCKS, PDL. The job: HEAD, GROUP, LENGTH.

#define DTYPE_bfloat16 1
#include "device.cuh"
#include "copy_engine.cuh"
#include "matrices.cuh"
#include "attention.cuh"
#include "tensor_memory.cuh"

#define THREADS 128
#define ROWS (GROUP * LENGTH)
#define TILES ((ROWS + 127) / 128)
#define KV_TILES ((LENGTH + TILE_KV - 1) / TILE_KV)
#define STEPS (HEAD / 64)                   // products of 64 features
#define CODE_BYTES (HEAD / 2)               // of a row
#define CHUNKS (CODE_BYTES / 16)
#define SCALE_BYTES 512                     // of 128 rows and 64 features
#define KEY_PARTS ((TILE_KV + 127) / 128)   // of a tile's scales
#define WIDER (TILE_KV > HEAD ? TILE_KV : HEAD)

// Shared memory, from an address that is a multiple of 1024 on.
#define LEAVING (TILE_KV * HEAD * 2)        // behind the values: weights, then mixed values
#define QUERIES (LEAVING + 128 * WIDER * 2)
#define KEYS (QUERIES + 128 * HEAD / 2)
#define QUERY_SCALES (KEYS + TILE_KV * HEAD / 2)
#define KEY_SCALES (QUERY_SCALES + STEPS * SCALE_BYTES)
#define BARRIER (KEY_SCALES + STEPS * KEY_PARTS * SCALE_BYTES)

// Columns of tensor memory: sums of scores, sums of mixed values, scales.
#define MIXED (KV_TILES == 1 ? 0 : TILE_KV)
#define QUERY_COLUMNS (KV_TILES == 1 ? WIDER : TILE_KV + HEAD)
#define KEY_COLUMNS (QUERY_COLUMNS + 4 * STEPS)
#define NEEDED (KEY_COLUMNS + 4 * STEPS * KEY_PARTS)
#define COLUMNS (NEEDED <= 32 ? 32 : NEEDED <= 64 ? 64 : NEEDED <= 128 ? 128 : NEEDED <= 256 ? 256 : 512)
static_assert(NEEDED <= 512, "tensor memory has 512 columns");

#include "codes.cuh"

// Rows of codes, 16 bytes at a time where the swizzle has them; rows from `end` on are zeros.
template <int rows>
DEVICE void copy_codes(u32 target, const u8* codes, int first, int end) {
    for (int i = threadIdx.x; i < rows * CHUNKS; i += THREADS) {
        const int row = i / CHUNKS, chunk = i % CHUNKS;
        uint4 held = make_uint4(0, 0, 0, 0);
        if (first + row < end) held = *(const uint4*)(codes + ((i64)(first + row) * CHUNKS + chunk) * 16);
        const u32 place = row * CODE_BYTES + chunk * 16;
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                     ::"r"(target + (place ^ (place >> 7 & (CHUNKS - 1)) << 4)), "r"(held.x),
                     "r"(held.y), "r"(held.z), "r"(held.w) : "memory");
    }
}

// Their scales in blocks of 128 rows and 64 features: 32 rows of 16 bytes, of which 4 belong to row r,
// the next 4 to row r + 32 and so on.
template <int rows, int parts>
DEVICE void copy_row_scales(u32 target, const u8* scales, int first, int end) {
    for (int i = threadIdx.x; i < parts * 128 * STEPS; i += THREADS) {
        const int row = i / STEPS, step = i % STEPS;
        u32 held = 0;
        if (row < rows && first + row < end) {
            held = *(const u32*)(scales + (i64)(first + row) * BLOCKS + step * 4);
        }
        const u32 place = (step * parts + row / 128) * SCALE_BYTES + row % 32 * 16 + row % 128 / 32 * 4;
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(target + place), "r"(held) : "memory");
    }
}

// One thread: scores of 128 rows against a tile of keys.
DEVICE void begin_scores(u32 base, u32 memory, bool new_rows) {
    after_sync();
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        if (new_rows) {
            copy_scales(memory + QUERY_COLUMNS + 4 * step, base + QUERY_SCALES + step * SCALE_BYTES);
        }
#pragma unroll
        for (int part = 0; part < KEY_PARTS; ++part) {
            const int place = step * KEY_PARTS + part;
            copy_scales(memory + KEY_COLUMNS + 4 * place, base + KEY_SCALES + place * SCALE_BYTES);
        }
    }
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        multiply_codes(memory, codes_described(base + QUERIES, CODE_BYTES) + 2 * step,
                       codes_described(base + KEYS, CODE_BYTES) + 2 * step, product_of_codes(TILE_KV),
                       memory + QUERY_COLUMNS + 4 * step,
                       memory + KEY_COLUMNS + 4 * step * KEY_PARTS, step > 0);
    }
    products_arrive(base + BARRIER);
}

// One thread: mixed values (+)= weights . values.
DEVICE void begin_mixing(u32 base, u32 memory, bool adds) {
    after_sync();
#pragma unroll
    for (int part = 0; part < TILE_KV / 16; ++part) {
        multiply_elements(memory + MIXED,
                          rows_described(base + LEAVING + part / 4 * 16384) + 2 * (part % 4),
                          columns_described(base, TILE_KV * 128) + 128 * part,
                          product_across(HEAD), adds || part > 0);
    }
    products_arrive(base + BARRIER);
}

// 32 columns of a thread's row, as elements, where the copy engine and products find them.
DEVICE void lay_down_row(u32 leaving, const float (&x)[32], int column) {
#pragma unroll
    for (int chunk = 0; chunk < 4; ++chunk) {
        const u32 target = chunk_address(leaving, 128, threadIdx.x, column / 8 + chunk);
        const float* from = x + 8 * chunk;
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                     ::"r"(target), "r"(pack2(from[0], from[1])), "r"(pack2(from[2], from[3])),
                     "r"(pack2(from[4], from[5])), "r"(pack2(from[6], from[7])) : "memory");
    }
}

// What was laid down for 128 rows, `columns` wide, into a matrix `width` wide: by the copy engine,
// begun by one thread, or by all threads, two elements each.
template <int columns, int width>
DEVICE void bring_away(const TensorMap* map, element* target, u32 leaving, int column, int tile,
                       int pair) {
#if STORE_engine
    if (threadIdx.x != 0) return;
#pragma unroll
    for (int box = 0; box < (columns + 63) / 64; ++box) {
        store_plane(map, leaving + box * 16384, column + box * 64, tile * 128, pair);
    }
    stores_commit();
#else
    for (int i = threadIdx.x; i < 128 * (columns / 2); i += THREADS) {
        const int row = i / (columns / 2), at = i % (columns / 2) * 2;
        if (tile * 128 + row >= ROWS || column + at >= width) continue;
        u32 word;
        asm volatile("ld.shared.u32 %0, [%1];"
                     : "=r"(word) : "r"(chunk_address(leaving, 128, row, at / 8) + at % 8 * 2) : "memory");
        element* place = target + ((i64)pair * ROWS + tile * 128 + row) * width + column + at;
        if constexpr (width % 2 == 0) {
            *(u32*)place = word;
        } else {
            place[0] = (element)word;
            if (column + at + 1 < width) place[1] = (element)(word >> 16);
        }
    }
#endif
}

// The copy engine has read what was laid down; a barrier of all threads has to follow.
DEVICE void laid_down_was_read() {
#if STORE_engine
    if (threadIdx.x == 0) stores_have_read<0>();
#endif
}

// 32 scores of a thread's row; those behind the last key are minus infinity.
DEVICE void load_scores(float (&x)[32], u32 lanes, int first_key, int column) {
    load_columns(x, lanes + column);
#if LENGTH % TILE_KV
    if (first_key + column + 32 > LENGTH) {
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            if (first_key + column + i >= LENGTH) x[i] = -HALF_INFINITY;
        }
    }
#endif
}

extern "C" __global__ void BOUNDS
nvfp4_native(const __grid_constant__ TensorMap out_map,
             const __grid_constant__ TensorMap weights_map, const u8* __restrict__ q,
             const u8* __restrict__ q_scale, const float* __restrict__ q_global,
             const u8* __restrict__ k, const u8* __restrict__ k_scale,
             const float* __restrict__ k_global, const u8* __restrict__ v,
             const u8* __restrict__ v_scale, const float* __restrict__ v_global,
             element* __restrict__ out, element* __restrict__ weights_out, float factor) {
    extern __shared__ u8 shared_bytes[];
    const u32 base = (shared_address(shared_bytes) + 1023u) & ~1023u;
    const u32 leaving = base + LEAVING;
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
    const int pair = blockIdx.x / PARTS, part = blockIdx.x % PARTS;   // sequence and kv head
    const i64 first_row = (i64)pair * ROWS, first_key = (i64)pair * LENGTH;
    q += first_row * (HEAD / 2);
    q_scale += first_row * BLOCKS;
    k += first_key * (HEAD / 2);
    k_scale += first_key * BLOCKS;
    v += first_key * (HEAD / 2);
    v_scale += first_key * BLOCKS;

    if (warp == 0) columns_take(base + BARRIER + 8, COLUMNS);
    if (threadIdx.x == 0) {
        barrier_init(base + BARRIER, 1);
        barrier_inits_visible();
    }
    before_sync();
    __syncthreads();
    after_sync();
    u32 memory;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(memory) : "r"(base + BARRIER + 8) : "memory");
    const u32 lanes = memory + ((u32)warp << 21);             // the warp's 32 lanes
    u32 parity = 0;

    wait_for_previous_kernel();
    const float scale = *q_global * *k_global * factor * 1.4426950408889634f;
    const float value_scale = *v_global;

    for (int tile = part; tile < TILES; tile += PARTS) {
        float high = -HALF_INFINITY, total = 0.0f, whole = 0.0f;
#pragma unroll 1
        for (int step = 0; step < 2 * KV_TILES; ++step) {
            const int key = step % KV_TILES * TILE_KV;
            const bool first_time = step < KV_TILES;
            if (first_time || KV_TILES > 1) {
                // All products before were waited for: what they read may change.
                if (step == 0) {
                    copy_codes<128>(base + QUERIES, q, tile * 128, ROWS);
                    copy_row_scales<128, 1>(base + QUERY_SCALES, q_scale, tile * 128, ROWS);
                }
                copy_codes<TILE_KV>(base + KEYS, k, key, LENGTH);
                copy_row_scales<TILE_KV, KEY_PARTS>(base + KEY_SCALES, k_scale, key, LENGTH);
                if (!first_time || KV_TILES == 1) dequantise_rows(base, v, v_scale, key);
                shared_visible_to_engines();
                before_sync();
                __syncthreads();
                if (threadIdx.x == 0) begin_scores(base, memory, step == 0);
                barrier_wait(base + BARRIER, parity);
                parity ^= 1;
                after_sync();
            }
            if (first_time) {
#pragma unroll 1
                for (int column = 0; column < TILE_KV; column += 32) {
                    float x[32];
                    load_scores(x, lanes, key, column);
                    float higher = high;
#pragma unroll
                    for (int i = 0; i < 32; ++i) higher = fmaxf(higher, x[i]);
                    if (step + column > 0) total *= exp2_fast((high - higher) * scale);
                    high = higher;
                    const float shift = higher * scale;
#pragma unroll
                    for (int i = 0; i < 32; ++i) total += exp2_fast(x[i] * scale - shift);
                }
                whole = 1.0f / total;
                continue;
            }

            laid_down_was_read();
            __syncthreads();
            const float shift = high * scale;
#pragma unroll 1
            for (int column = 0; column < TILE_KV; column += 32) {
                float x[32];
                load_scores(x, lanes, key, column);
#pragma unroll
                for (int i = 0; i < 32; ++i) x[i] = exp2_fast(x[i] * scale - shift) * whole;
                lay_down_row(leaving, x, column);
            }
            shared_visible_to_engines();
            before_sync();
            __syncthreads();
            if (threadIdx.x == 0) begin_mixing(base, memory, step > KV_TILES);
            bring_away<TILE_KV, LENGTH>(&weights_map, weights_out, leaving, key, tile, pair);
            barrier_wait(base + BARRIER, parity);
            parity ^= 1;
            after_sync();
        }

        laid_down_was_read();
        __syncthreads();
#pragma unroll 1
        for (int column = 0; column < HEAD; column += 32) {
            float x[32];
            load_columns(x, lanes + MIXED + column);
#pragma unroll
            for (int i = 0; i < 32; ++i) x[i] *= value_scale;
            lay_down_row(leaving, x, column);
        }
        shared_visible_to_engines();
        before_sync();
        __syncthreads();
        bring_away<HEAD, HEAD>(&out_map, out, leaving, 0, tile, pair);
    }
    let_next_kernel_start();
    laid_down_was_read();
    before_sync();
    __syncthreads();
    after_sync();
    if (warp == 0) columns_give_back(memory, COLUMNS);
}
