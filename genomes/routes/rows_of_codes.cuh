// Tiles of 64 rows of a warpgroup: queries of 4 bits on their way in, weights and mixed values on
// their way out. Rows of one key-value head are one matrix (ROWS); results leave by shared memory and
// copy engine, 64 columns at a time and BOXES buffers of them, or by the threads that hold them.

#define ROWS (GROUP * LENGTH)
#define TILES ((ROWS + 63) / 64)
#define QUERY_BYTES (64 * HEAD * 2)
#define SHARE (BLOCKS / 2)                  // blocks of 16 codes that a thread has of its row

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

DEVICE void dequantise_half(u32 queries, const Half& half, int thread) {
#pragma unroll
    for (int i = 0; i < SHARE; ++i) {
        dequantise(queries, 64, thread / 2, thread % 2 * SHARE + i, half.codes[i], half.scales[i]);
    }
}

// Where a warpgroup's results go, and the thread that brings them there.
struct Way {
    const TensorMap *out_map, *weights_map;
    element *out, *weights;
    u32 leaving;                            // buffers of 64 x 64 elements
    i64 first_row;                          // of the head, among all rows
    int pair, warpgroup, thread, warp, lane;

    DEVICE void meet() const { warps_sync(1 + warpgroup, 128); }

    // Until the copy engine reads no more than `pending` of the buffers; then they may change.
    template <int pending>
    DEVICE void buffers_free() const {
        if (thread == 0) stores_have_read<pending>();
        meet();
    }
};

// TILE_KV weights of each row of a tile, from column `first` on.
DEVICE void store_weights(const Way& way, const u32 (&weights)[TILE_KV / 16][4], int tile, int first) {
#if STORE_engine
#pragma unroll
    for (int chunk = 0; chunk < (TILE_KV + 63) / 64; ++chunk) {
        const u32 buffer = way.leaving + chunk % BOXES * 8192;
        if (chunk >= BOXES) way.buffers_free<BOXES - 1>();
        u32 words[4][4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                words[j][i] = chunk * 4 + j < TILE_KV / 16 ? weights[chunk * 4 + j][i] : 0u;
            }
        }
        lay_down(buffer, words, way.warp, way.lane);
        shared_visible_to_engines();
        way.meet();
        if (way.thread == 0) {
            store_plane(way.weights_map, buffer, first + chunk * 64, tile * 64, way.pair);
            stores_commit();
        }
    }
#else
    const int row = tile * 64 + way.warp * 16 + way.lane / 4;
#pragma unroll
    for (int j = 0; j < TILE_KV / 8; ++j) {
        const int column = first + j * 8 + way.lane % 4 * 2;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            if (row + 8 * half >= ROWS || column >= LENGTH) continue;
            const u32 word = weights[j / 2][j % 2 * 2 + half];
            element* target = way.weights + (way.first_row + row + 8 * half) * LENGTH + column;
#if LENGTH % 2 == 0
            *(u32*)target = word;
#else
            target[0] = (element)word;
            if (column + 1 < LENGTH) target[1] = (element)(word >> 16);
#endif
        }
    }
#endif
}

// A tile's mixed values, times the scale that all values share.
DEVICE void store_mixed(const Way& way, const float (&mixed)[HEAD / 2], int tile, float scale) {
#if STORE_engine
    way.buffers_free<0>();
#pragma unroll
    for (int box = 0; box < BOXES; ++box) {
        u32 words[4][4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int at = box * 32 + j * 8 + i * 2;
                words[j][i] = pack2(mixed[at] * scale, mixed[at + 1] * scale);
            }
        }
        lay_down(way.leaving + box * 8192, words, way.warp, way.lane);
    }
    shared_visible_to_engines();
    way.meet();
    if (way.thread == 0) {
#pragma unroll
        for (int box = 0; box < BOXES; ++box) {
            store_plane(way.out_map, way.leaving + box * 8192, box * 64, tile * 64, way.pair);
        }
        stores_commit();
    }
#else
    const int row = tile * 64 + way.warp * 16 + way.lane / 4;
#pragma unroll
    for (int j = 0; j < HEAD / 8; ++j) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            if (row + 8 * half >= ROWS) continue;
            const int at = 4 * j + 2 * half;
            *(u32*)(way.out + (way.first_row + row + 8 * half) * HEAD + j * 8 + way.lane % 4 * 2) =
                pack2(mixed[at] * scale, mixed[at + 1] * scale);
        }
    }
#endif
}
