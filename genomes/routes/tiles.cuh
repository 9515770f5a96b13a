// What kernels of products by tiles share: the ring of stages, loads of boxes, factors in shared
// memory, pairs of elements. The kernel defines STAGES, TILE_M, TILE_N, TILE_K, WG_BLOCKS, BOXES,
// LEFT_BOX, RIGHT_BOX, ACROSS_BOX, LEFT_ACROSS and RIGHT_ACROSS before it.

struct Ring {
    u32 stage, parity;
    DEVICE void advance() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
    DEVICE void skip(u32 steps) {
        u32 total = stage + steps;
        parity ^= total / STAGES & 1;
        stage = total % STAGES;
    }
};

DEVICE float residual_at(const element* residual, int row, int column, int m, int n) {
    return row < m && column < n ? to_float(residual[(i64)row * n + column]) : 0.0f;
}

// Neighbouring columns 2i and 2i+1 of a tensor, at once where rows start on 4 bytes.
DEVICE float2 load_pair(const element* tensor, int row, int column, int m, int n) {
    if ((n & 1) == 0) {
        if (row >= m || column >= n) return make_float2(0.0f, 0.0f);
        return unpack2(*(const u32*)(tensor + (i64)row * n + column));
    }
    return make_float2(residual_at(tensor, row, column, m, n),
                       residual_at(tensor, row, column + 1, m, n));
}

DEVICE void store_pair(element* tensor, int row, int column, int m, int n, float a, float b) {
    if (row >= m) return;
    element* target = tensor + (i64)row * n + column;
    if ((n & 1) == 0) {
        if (column < n) *(u32*)target = pack2(a, b);
        return;
    }
    if (column < n) target[0] = to_element(a);
    if (column + 1 < n) target[1] = to_element(b);
}

// A factor's part of a stage: to this block alone, or to all blocks that need it.
template <bool shared>
DEVICE void load_part(u32 target, const TensorMap* map, u32 barrier, int x, int y, u16 blocks,
                      u64 policy) {
    if constexpr (shared) {
        load_box_shared(target, map, barrier, x, y, blocks, policy);
    } else {
        load_box_hinted(target, map, barrier, x, y, policy);
    }
}

// The same for one that lies across: box by box, a slice of the depth of each.
template <bool shared, int columns>
DEVICE void load_across(u32 target, const TensorMap* map, u32 barrier, int column, int depth,
                        u16 blocks, u64 policy) {
#pragma unroll
    for (int box = 0; box < columns / 64; ++box) {
        load_part<shared>(target + box * ACROSS_BOX, map, barrier, column + box * 64, depth, blocks,
                          policy);
    }
}

#if PRODUCTS_warpgroup
// Factors of 16 steps of the depth: `part` counts them in a stage.
DEVICE u64 left_factor(u32 left, int block, int part) {
#if LEFT_ACROSS
    return columns_of_128_bytes(left + block * ACROSS_BOX, ACROSS_BOX) + 128 * part;
#else
    return rows_of_128_bytes(left + part / 4 * LEFT_BOX + block * 8192) + 2 * (part % 4);
#endif
}

DEVICE u64 right_factor(u32 right, int part) {
#if RIGHT_ACROSS
    return columns_of_128_bytes(right, ACROSS_BOX) + 128 * part;
#else
    return rows_of_128_bytes(right + part / 4 * RIGHT_BOX) + 2 * (part % 4);
#endif
}
#endif

#if !PRODUCTS_warpgroup
// The same product warp by warp: 16 rows each, sums laid out as a warpgroup has them.
DEVICE void multiply_by_warps(float (&sums)[WG_BLOCKS][TILE_N / 2], u32 left, u32 right, int warp,
                              int lane) {
    [[maybe_unused]] const int row = warp * 16 + lane % 16, column = lane / 16 * 8 + lane % 8;
#pragma unroll
    for (int part = 0; part < 4 * BOXES; ++part) {
        [[maybe_unused]] const u32 box = part / 4;
        u32 a[WG_BLOCKS][4];
#pragma unroll
        for (int block = 0; block < WG_BLOCKS; ++block) {
#if LEFT_ACROSS
            const int depth = part * 16 + column;
            const u32 at = left + block * ACROSS_BOX + depth * 128;
            load_matrices_transposed(at + ((warp * 2 + lane / 8 % 2 ^ depth & 7) << 4), a[block]);
#else
            const u32 at = left + box * LEFT_BOX + block * 8192 + row * 128;
            load_matrices(at + ((part % 4 * 2 + lane / 16 ^ row & 7) << 4), a[block]);
#endif
        }
#pragma unroll
        for (int j = 0; j < TILE_N / 16; ++j) {
            u32 b[4];
#if RIGHT_ACROSS
            const int depth = part * 16 + lane % 16;
            const u32 at = right + j / 4 * ACROSS_BOX + depth * 128;
            load_matrices_transposed(at + ((j % 4 * 2 + lane / 16 ^ depth & 7) << 4), b);
#else
            const u32 at = right + box * RIGHT_BOX + (j * 16 + column) * 128;
            load_matrices(at + ((part % 4 * 2 + lane / 8 % 2 ^ column & 7) << 4), b);
#endif
#pragma unroll
            for (int block = 0; block < WG_BLOCKS; ++block) {
                multiply_warp(sums[block] + 8 * j, a[block], b[0], b[1]);
                multiply_warp(sums[block] + 8 * j + 4, a[block], b[2], b[3]);
            }
        }
    }
}
#endif
