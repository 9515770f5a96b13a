// What attention kernels share: factors in shared memory as rows of 64 elements (128 bytes, swizzled),
// scores of 64 rows by a warpgroup, the running softmax, the mixing of values.

#define BOXES (HEAD / 64)
#define HALF_INFINITY __int_as_float(0x7f800000)

// Where 16 bytes of a row lie: `chunk` counts them along the row of HEAD elements.
DEVICE u32 chunk_address(u32 base, int rows, int row, int chunk) {
    return base + chunk / 8 * (rows * 128) + row * 128 + ((chunk % 8 ^ (row & 7)) << 4);
}

DEVICE float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Over the four lanes that share a row of sums.
DEVICE float row_max(float value) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

DEVICE float row_add(float value) {
    value += __shfl_xor_sync(0xffffffffu, value, 1);
    return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

#if PRODUCTS_warpgroup

// Begins scores = queries . keys^T; they are there after products_wait.
DEVICE void begin_scores(float (&scores)[TILE_KV / 2], u32 queries, u32 keys, int warp, int lane) {
    products_begin();
    multiply_new(scores, rows_of_128_bytes(queries), rows_of_128_bytes(keys));
#pragma unroll
    for (int part = 1; part < HEAD / 16; ++part) {
        const u64 q = rows_of_128_bytes(queries + part / 4 * 8192);
        const u64 k = rows_of_128_bytes(keys + part / 4 * (TILE_KV * 128));
        multiply(scores, q + 2 * (part % 4), k + 2 * (part % 4));
    }
    products_commit();
}

// Begins mixed += weights . values.
DEVICE void begin_mixing(float (&mixed)[HEAD / 2], const u32 (&weights)[TILE_KV / 16][4], u32 values,
                         int lane) {
    hold(mixed);
    products_begin();
    const u64 v = columns_of_128_bytes(values, TILE_KV * 128);
#pragma unroll
    for (int part = 0; part < TILE_KV / 16; ++part) {
        multiply_held(mixed, weights[part], v + 128 * part);
    }
    products_commit();
}

#else

template <int pending>
DEVICE void products_wait() {}

DEVICE void hold(float (&)[TILE_KV / 2]) {}
#if TILE_KV != HEAD
DEVICE void hold(float (&)[HEAD / 2]) {}
#endif

DEVICE void begin_scores(float (&scores)[TILE_KV / 2], u32 queries, u32 keys, int warp, int lane) {
#pragma unroll
    for (int i = 0; i < TILE_KV / 2; ++i) scores[i] = 0.0f;
    const int row = warp * 16 + lane % 16, key = lane / 16 * 8 + lane % 8;
#pragma unroll
    for (int part = 0; part < HEAD / 16; ++part) {
        u32 a[4];
        load_matrices(chunk_address(queries, 64, row, 2 * part + lane / 16), a);
#pragma unroll
        for (int j = 0; j < TILE_KV / 16; ++j) {
            u32 b[4];
            load_matrices(chunk_address(keys, TILE_KV, 16 * j + key, 2 * part + lane / 8 % 2), b);
            multiply_warp(scores + 8 * j, a, b[0], b[1]);
            multiply_warp(scores + 8 * j + 4, a, b[2], b[3]);
        }
    }
}

DEVICE void begin_mixing(float (&mixed)[HEAD / 2], const u32 (&weights)[TILE_KV / 16][4], u32 values,
                         int lane) {
    const int key = lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
    for (int part = 0; part < TILE_KV / 16; ++part) {
#pragma unroll
        for (int j = 0; j < HEAD / 16; ++j) {
            u32 b[4];
            load_matrices_transposed(
                chunk_address(values, TILE_KV, 16 * part + key, 2 * j + lane / 16), b);
            multiply_warp(mixed + 8 * j, weights[part], b[0], b[1]);
            multiply_warp(mixed + 8 * j + 4, weights[part], b[2], b[3]);
        }
    }
}

#endif

// Sums of 16 columns are the next product's left factor, narrowed to 16 bits.
DEVICE void narrow(u32 (&weights)[TILE_KV / 16][4], const float (&scores)[TILE_KV / 2]) {
#pragma unroll
    for (int part = 0; part < TILE_KV / 16; ++part) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            weights[part][i] = pack2(scores[8 * part + 2 * i], scores[8 * part + 2 * i + 1]);
        }
    }
}
