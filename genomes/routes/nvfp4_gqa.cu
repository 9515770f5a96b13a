// Grouped-query attention over 4-bit floats; returns the mixed values and the weights themselves.
//
// Codes are e2m1, 16 of them share an e4m3 scale, a tensor shares a float32 one. Code times scale has
// at most six significant bits, so bfloat16 holds it exactly: keys and values of a head lie
// dequantised in shared memory, queries follow tile by tile, and the tensor-wide scales go into
// the softmax and into the output. The query heads that share a key-value head follow one another
// in memory: rows of one matrix. A warpgroup owns 64 rows and all their scores.
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
#define QUERY_BYTES (64 * HEAD * 2)
#define BLOCKS (HEAD / 16)                  // scales of a row
#define ROWS (GROUP * LENGTH)
#define TILES ((ROWS + 63) / 64)
#define SHARE (BLOCKS / 2)                  // blocks of 16 codes that a thread has of its row

#if DEQUANTISE_convert
// Eight codes as four words of bfloat16, by the converter that chips from 10.0 on have.
DEVICE void eight_codes(u32 codes, u32* words) {
    u32 halves[4];
    asm("{\n.reg .b8 a, b, c, d;\nmov.b32 {a, b, c, d}, %4;\n"
        "cvt.rn.f16x2.e2m1x2 %0, a;\ncvt.rn.f16x2.e2m1x2 %1, b;\n"
        "cvt.rn.f16x2.e2m1x2 %2, c;\ncvt.rn.f16x2.e2m1x2 %3, d;\n}"
        : "=r"(halves[0]), "=r"(halves[1]), "=r"(halves[2]), "=r"(halves[3]) : "r"(codes));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        float low, high;
        asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.f32.f16 %0, l;\ncvt.f32.f16 %1, h;\n}"
            : "=f"(low), "=f"(high) : "r"(halves[i]));
        words[i] = pack2(low, high);
    }
}
#else
// Four codes as two words of bfloat16: their magnitudes looked up byte by byte, signs put in.
DEVICE void four_codes(u32 codes, u32& first, u32& second) {
    const u32 chosen = codes & 0x7777u;
    u32 spread = codes & 0xffffu;
    spread = (spread | spread << 8) & 0x00ff00ffu;
    spread = (spread | spread << 4) & 0x0f0f0f0fu;
    const u32 high = __byte_perm(0x3f3f3f00u, 0x40404040u, chosen) | (spread & 0x08080808u) << 4;
    const u32 low = __byte_perm(0xc0800000u, 0xc0804000u, chosen);
    first = __byte_perm(low, high, 0x5140u);
    second = __byte_perm(low, high, 0x7362u);
}

DEVICE void eight_codes(u32 codes, u32* words) {
    four_codes(codes, words[0], words[1]);
    four_codes(codes >> 16, words[2], words[3]);
}
#endif

DEVICE u32 times(u32 pair, u32 scale) {
    u32 product;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(scale));
    return product;
}

// An e4m3 number, twice, as bfloat16.
DEVICE u32 scale_pair(u32 byte) {
    u32 halves;
    asm("{\n.reg .b16 narrow;\ncvt.u16.u32 narrow, %1;\ncvt.rn.f16x2.e4m3x2 %0, narrow;\n}"
        : "=r"(halves) : "r"(byte & 0xffu));
    float value;
    asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\ncvt.f32.f16 %0, l;\n}" : "=f"(value) : "r"(halves));
    return pack2(value, value);
}

// 16 codes into two chunks of a row in shared memory.
DEVICE void dequantise(u32 base, int rows, int row, int block, uint2 codes, u32 scale_byte) {
    const u32 scale = scale_pair(scale_byte);
    u32 words[8];
    eight_codes(codes.x, words);
    eight_codes(codes.y, words + 4);
#pragma unroll
    for (int i = 0; i < 8; ++i) words[i] = times(words[i], scale);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                     ::"r"(chunk_address(base, rows, row, 2 * block + half)), "r"(words[4 * half]),
                     "r"(words[4 * half + 1]), "r"(words[4 * half + 2]), "r"(words[4 * half + 3])
                     : "memory");
    }
}

DEVICE void dequantise_rows(u32 base, const u8* codes, const u8* scales) {
    for (int i = threadIdx.x; i < TILE_KV * BLOCKS; i += THREADS) {
        const int row = i / BLOCKS, block = i % BLOCKS;
        uint2 held = make_uint2(0, 0);
        u32 scale = 0;
        if (row < LENGTH) {
            held = *(const uint2*)(codes + (i64)i * 8);
            scale = scales[i];
        }
        dequantise(base, TILE_KV, row, block, held, scale);
    }
}

// What a thread holds of a tile of queries on its way in: half a row.
struct Half {
    uint2 codes[SHARE];
    u8 scales[SHARE];
};

DEVICE void fetch_half(Half& half, const u8* codes, const u8* scales, int row, int side) {
#pragma unroll
    for (int i = 0; i < SHARE; ++i) {
        half.codes[i] = make_uint2(0, 0);
        half.scales[i] = 0;
    }
    if (row >= ROWS) return;
    const i64 first = (i64)row * BLOCKS + side * SHARE;
#pragma unroll
    for (int i = 0; i < SHARE; ++i) {
        half.codes[i] = *(const uint2*)(codes + (first + i) * 8);
        half.scales[i] = scales[first + i];
    }
}

// 64 columns of 64 rows, as a warpgroup's threads hold them, into a buffer.
DEVICE void lay_down(u32 buffer, const u32 (&words)[4][4], int warp, int lane) {
    const int row = warp * 16 + lane % 16;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        store_matrices(chunk_address(buffer, 64, row, 2 * j + lane / 16), words[j][0], words[j][1],
                       words[j][2], words[j][3]);
    }
}

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
#if STORE_engine
    const u32 leaving = queries + SPARE * QUERY_BYTES;
#endif
    const int pair = blockIdx.x / PARTS, part = blockIdx.x % PARTS;   // sequence and kv head
    const i64 first_row = (i64)pair * ROWS;
    q += first_row * (HEAD / 2);
    q_scale += first_row * BLOCKS;

    wait_for_previous_kernel();
    int tile = part * WARPGROUPS + warpgroup;
    Half coming;
    fetch_half(coming, q, q_scale, tile * 64 + thread / 2, thread % 2);
    dequantise_rows(keys, k + (i64)pair * LENGTH * (HEAD / 2), k_scale + (i64)pair * LENGTH * BLOCKS);
    dequantise_rows(values, v + (i64)pair * LENGTH * (HEAD / 2),
                    v_scale + (i64)pair * LENGTH * BLOCKS);
    const float scale = *q_global * *k_global * factor * 1.4426950408889634f;
    const float value_scale = *v_global;
    shared_visible_to_engines();
    __syncthreads();

    for (; tile < TILES; tile += PARTS * WARPGROUPS) {
#if STORE_engine && !SPARE
        if (thread == 0) stores_have_read<0>();
        warps_sync(1 + warpgroup, 128);
#endif
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            dequantise(queries, 64, thread / 2, thread % 2 * SHARE + i, coming.codes[i],
                       coming.scales[i]);
        }
        shared_visible_to_engines();
        warps_sync(1 + warpgroup, 128);
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
#if STORE_engine
#if SPARE
        if (thread == 0) stores_have_read<0>();
#endif
        warps_sync(1 + warpgroup, 128);       // the buffer is free: everybody has done with it
#endif
#if STORE_direct
        const int row = tile * 64 + warp * 16 + lane / 4;
#endif
#if STORE_engine
#pragma unroll
        for (int chunk = 0; chunk < (TILE_KV + 63) / 64; ++chunk) {
            const u32 buffer = leaving + chunk % 2 * 8192;
            if (chunk >= 2) {
                if (thread == 0) stores_have_read<1>();
                warps_sync(1 + warpgroup, 128);
            }
            u32 words[4][4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    words[j][i] = chunk * 4 + j < TILE_KV / 16 ? weights[chunk * 4 + j][i] : 0u;
                }
            }
            lay_down(buffer, words, warp, lane);
            shared_visible_to_engines();
            warps_sync(1 + warpgroup, 128);
            if (thread == 0) {
                store_plane(&weights_map, buffer, chunk * 64, tile * 64, pair);
                stores_commit();
            }
        }
#else
#pragma unroll
        for (int j = 0; j < TILE_KV / 8; ++j) {
            const int column = j * 8 + lane % 4 * 2;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                if (row + 8 * half >= ROWS || column >= LENGTH) continue;
                const u32 word = weights[j / 2][j % 2 * 2 + half];
                element* target = weights_out + (first_row + row + 8 * half) * LENGTH + column;
#if LENGTH % 2 == 0
                *(u32*)target = word;
#else
                target[0] = (element)word;
                if (column + 1 < LENGTH) target[1] = (element)(word >> 16);
#endif
            }
        }
#endif
#if MIX_last
        begin_mixing(mixed, weights, values, lane);
#endif
        products_wait<0>();
        hold(mixed);
#if STORE_engine
        if (thread == 0) stores_have_read<0>();
        warps_sync(1 + warpgroup, 128);
#pragma unroll
        for (int box = 0; box < BOXES; ++box) {
            u32 words[4][4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int at = box * 32 + j * 8 + i * 2;
                    words[j][i] = pack2(mixed[at] * value_scale, mixed[at + 1] * value_scale);
                }
            }
            lay_down(leaving + box * 8192, words, warp, lane);
        }
        shared_visible_to_engines();
        warps_sync(1 + warpgroup, 128);
        if (thread == 0) {
#pragma unroll
            for (int box = 0; box < BOXES; ++box) {
                store_plane(&out_map, leaving + box * 8192, box * 64, tile * 64, pair);
            }
            stores_commit();
        }
#else
#pragma unroll
        for (int j = 0; j < HEAD / 8; ++j) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                if (row + 8 * half >= ROWS) continue;
                const int at = 4 * j + 2 * half;
                *(u32*)(out + (first_row + row + 8 * half) * HEAD + j * 8 + lane % 4 * 2) =
                    pack2(mixed[at] * value_scale, mixed[at + 1] * value_scale);
            }
        }
#endif
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
