// Products of experts, all in one launch: blocks stay and take one (expert, tile) after another.
//
// Rows of one expert lie together (routing.cu packs them) and are filled up with zeros to whole
// steps. left . right^T of a tile of rows is multiplied with its expert's right factor: `table` says
// which expert a tile of rows belongs to, `counted` how many tiles there are. With BY_WEIGHT rows are
// the depth instead: left (rows, m), right (rows, n), one (m, n) output an expert; `table` has where
// each expert's rows begin and end. Without a table there is one expert for all rows.
//
// GATED: the tile has columns of gate and up side by side and ends in the gradients inside the
// expert: `inner` is the gradient of the hidden row, `out` the hidden row times its scale, out_2 and
// out_3 the gradients of gate and up; `products` gets each row's part of the scale's gradient, a
// tile of columns after another. PAIRED: left . right + left_2 . right_2.
// LEFT_ACROSS, RIGHT_ACROSS: that factor is contiguous along rows or columns, not along the depth.
//
// One producer warp keeps the copy engine busy; warpgroups of consumers multiply what has arrived.
// Of a tile only those blocks of 64 rows are loaded that the expert has, and only warpgroups whose
// rows it has multiply. IN_TURN: every warpgroup has tiles of its own, one multiplies while others
// write out. SHARE blocks of a cluster take neighbouring tiles of columns: each loads a
// part of the rows and hands it to all.
//
// Genes (macros): CONSUMERS, WG_ROWS, TILE_N, TILE_K, STAGES, BLOCKS, GROUP, KEEP_none|left|right|stream,
// EPILOGUE_direct|engine, BUFFERS, PRODUCER_REGISTERS, SHARE, IN_TURN, PDL, PRODUCTS_warpgroup|warp.
// The job: DTYPE_*, BY_WEIGHT, GATED, PAIRED, LEFT_ACROSS, RIGHT_ACROSS.

#include "device.cuh"
#include "copy_engine.cuh"
#include "matrices.cuh"
#if PRODUCTS_warpgroup
#include "warpgroup.cuh"
#include "products.cuh"
#endif

#define WG_BLOCKS (WG_ROWS / 64)
#if IN_TURN
#define TILE_M WG_ROWS
#else
#define TILE_M (CONSUMERS * WG_ROWS)
#endif
#if GATED
#define OUT_N (TILE_N / 2)                  // columns of the output that a tile gives
#else
#define OUT_N TILE_N
#endif
#define THREADS (128 * (CONSUMERS + 1))
#define BOXES (TILE_K / 64)                 // a row of a box is 64 elements: 128 bytes
#define LEFT_BOX (TILE_M * 128)
#define RIGHT_BOX (TILE_N * 128)
#define ACROSS_BOX (TILE_K * 128)           // 64 columns of a factor that lies across, and all its depth
#define STAGE_BYTES (BOXES * (LEFT_BOX + RIGHT_BOX))
#define ROWS_BYTES (64 * 128)               // 64 rows of a left box
#define BUFFER_BYTES (64 * 128)             // 64 rows of 64 elements on their way out
#define CHUNKS (OUT_N / 64)
#if EPILOGUE_engine
#define BUFFERS_BYTES (CONSUMERS * BUFFERS * BUFFER_BYTES)
#else
#define BUFFERS_BYTES 0
#endif
// Blocks that share a multiprocessor keep what the compiler gives them.
#define TRADED (BLOCKS == 1)
#if SHARE > 1
#define CLUSTER_SHAPE __cluster_dims__(SHARE, 1, 1)
#else
#define CLUSTER_SHAPE
#endif
#define CONSUMER_REGISTERS ((512 - 8 * (PRODUCER_REGISTERS / 8)) / CONSUMERS / 8 * 8)

#include "tiles.cuh"

struct Work {
    int expert, row, column;     // whose tile, and its first row and column among the factors
    int depth, steps;            // the first of the depth, and how many steps of it
    int out_row, limit;          // the first row of the output, and where the expert's rows end

    // How many blocks of 64 rows of the tile the expert has.
    DEVICE int blocks() const { return min(TILE_M / 64, (limit - out_row + 63) / 64); }
};

// What there is to do: tiles of rows times tiles of columns, for every expert where BY_WEIGHT.
struct Plan {
    const int* table;
    int tiles_m, tiles_n, turns, rows, m, k;       // tiles_n: of as many columns as a cluster has

    DEVICE Plan(const int* table, const int* counted, int rows, int m, int n, int k, int experts)
        : table(table), tiles_n((n + SHARE * OUT_N - 1) / (SHARE * OUT_N)), rows(rows), m(m), k(k) {
#if BY_WEIGHT
        tiles_m = (m + TILE_M - 1) / TILE_M;
        turns = tiles_m * tiles_n * experts;
#else
        tiles_m = table ? *counted : (rows + TILE_M - 1) / TILE_M;
        turns = tiles_m * tiles_n;
#endif
    }

    // Turns walk GROUP tiles of rows together, column by column, so that blocks which run at the
    // same time share what they read.
    DEVICE Work at(int turn, u32 rank) const {
        Work work;
#if BY_WEIGHT
        work.expert = turn / (tiles_m * tiles_n);
        turn -= work.expert * (tiles_m * tiles_n);
#endif
        const int group = turn / (GROUP * tiles_n);
        const int members = min(GROUP, tiles_m - group * GROUP);
        const int inside = turn - group * (GROUP * tiles_n);
        const int tile = group * GROUP + inside % members;
        work.column = (inside / members * SHARE + (int)rank) * OUT_N;
#if BY_WEIGHT
        const int first = table ? table[2 * work.expert] : 0;
        const int end = table ? table[2 * work.expert + 1] : rows;
        work.row = tile * TILE_M;
        work.depth = first;
        work.steps = (end - first + TILE_K - 1) / TILE_K;
        work.out_row = work.expert * m + work.row;
        work.limit = (work.expert + 1) * m;
#else
        work.expert = table ? table[4 * tile] : 0;
        work.row = table ? table[4 * tile + 1] : tile * TILE_M;
        work.depth = 0;
        work.steps = (PAIRED + 1) * ((k + TILE_K - 1) / TILE_K);
        work.out_row = work.row;
        work.limit = table ? table[4 * tile + 2] : rows;
#endif
        return work;
    }
};

// What a warpgroup without rows does: one of its threads tells every block of the cluster that
// stages have been read, as they arrive.
DEVICE void pass_by(Ring ring, int steps, u32 full, u32 empty) {
    for (int step = 0; step < steps; ++step) {
        barrier_wait(full + 8 * ring.stage, ring.parity);
#if SHARE > 1
        for (u32 block = 0; block < SHARE; ++block) {
            barrier_arrive_cluster(address_in_block(empty + 8 * ring.stage, block));
        }
#else
        barrier_arrive(empty + 8 * ring.stage);
#endif
        ring.advance();
    }
}

// Four lanes have a row's pairs of columns of four groups of eight, a group a word; afterwards each
// lane has all eight columns of one group. Done twice it takes itself back.
DEVICE void turn_groups(u32 (&words)[4]) {
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2) {
        const bool upper = threadIdx.x & distance;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int low = distance == 1 ? 2 * i : i, high = low + distance;
            const u32 other =
                __shfl_xor_sync(0xffffffffu, upper ? words[low] : words[high], distance);
            (upper ? words[low] : words[high]) = other;
        }
    }
}

// Four groups of eight columns from `column` on, by 16 bytes a lane. Rows have whole groups.
DEVICE void load_groups(const element* tensor, int row, int column, int m, int n, u32 (&words)[4]) {
    const int own = column + (int)threadIdx.x % 4 * 8;
    uint4 held = make_uint4(0, 0, 0, 0);
    if (row < m && own < n) held = *(const uint4*)(tensor + (i64)row * n + own);
    words[0] = held.x, words[1] = held.y, words[2] = held.z, words[3] = held.w;
    turn_groups(words);
}

DEVICE void store_groups(element* tensor, int row, int column, int m, int n, u32 (&words)[4]) {
    turn_groups(words);
    const int own = column + (int)threadIdx.x % 4 * 8;
    if (row < m && own < n) {
        *(uint4*)(tensor + (i64)row * n + own) = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

#if GATED
// Gradients of two columns of a row, and the hidden row times its scale; `part` gets their share of
// the scale's gradient.
struct Gradients { u32 hidden, gate, up; };

DEVICE Gradients gradients_of(const float* gate, const float* up, float2 given, float scale,
                              float& part) {
    const float grad[2] = {given.x, given.y};
    float hidden[2], by_gate[2], by_up[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const float sigmoid = __fdividef(1.0f, 1.0f + __expf(-gate[i]));
        const float silu = gate[i] * sigmoid, scaled = grad[i] * scale;
        hidden[i] = silu * up[i] * scale;
        part += grad[i] * (silu * up[i]);
        by_up[i] = scaled * silu;
        by_gate[i] = scaled * up[i] * sigmoid * (1.0f + gate[i] * (1.0f - sigmoid));
    }
    return {pack2(hidden[0], hidden[1]), pack2(by_gate[0], by_gate[1]), pack2(by_up[0], by_up[1])};
}

// The end of a gated tile: gradients inside the expert, 32 columns of a row at a time.
DEVICE void leave_gradients(float (&sums)[WG_BLOCKS][TILE_N / 2], const Work& work, int first_row,
                            int lane, int rows, int n, const element* inner, element* out,
                            element* out_2, element* out_3, const float* scales,
                            float* products) {
#pragma unroll
    for (int block = 0; block < WG_BLOCKS; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + block * 64 + lane / 4 + half * 8;
            const float scale = !scales ? 1.0f : row < work.limit ? scales[row] : 0.0f;
            const float* gate = sums[block] + 2 * half;
            const float* up = gate + OUT_N / 2;
            float part = 0.0f;
#pragma unroll
            for (int j = 0; j + 4 <= OUT_N / 8; j += 4) {
                const int column = work.column + j * 8;
                u32 given[4], hidden[4], by_gate[4], by_up[4];
                load_groups(inner, row, column, work.limit, n, given);
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int at = 4 * (j + i);
                    float product = 0.0f;
                    const Gradients found =
                        gradients_of(gate + at, up + at, unpack2(given[i]), scale, product);
                    if (column + 8 * i < n) part += product;   // beyond, another expert's were read
                    hidden[i] = found.hidden, by_gate[i] = found.gate, by_up[i] = found.up;
                }
                store_groups(out, row, column, work.limit, n, hidden);
                store_groups(out_2, row, column, work.limit, n, by_gate);
                store_groups(out_3, row, column, work.limit, n, by_up);
            }
#pragma unroll
            for (int j = OUT_N / 32 * 4; j < OUT_N / 8; ++j) {
                const int column = work.column + j * 8 + lane % 4 * 2;
                if (row >= work.limit || column >= n) continue;
                const i64 at = (i64)row * n + column;
                const Gradients found = gradients_of(gate + 4 * j, up + 4 * j,
                                                     unpack2(*(const u32*)(inner + at)), scale, part);
                *(u32*)(out + at) = found.hidden;
                *(u32*)(out_2 + at) = found.gate;
                *(u32*)(out_3 + at) = found.up;
            }
            part += __shfl_xor_sync(0xffffffffu, part, 1);
            part += __shfl_xor_sync(0xffffffffu, part, 2);
            if (products && lane % 4 == 0 && row < work.limit && work.column < n) {
                products[(i64)(work.column / OUT_N) * rows + row] = part;
            }
        }
    }
}
#endif

extern "C" __global__ void CLUSTER_SHAPE __launch_bounds__(THREADS, BLOCKS)
grouped(const __grid_constant__ TensorMap left_map, const __grid_constant__ TensorMap right_map,
        const __grid_constant__ TensorMap out_map, const __grid_constant__ TensorMap aside_map,
#if PAIRED
        const __grid_constant__ TensorMap left_2_map, const __grid_constant__ TensorMap right_2_map,
#endif
        element* out,
#if GATED
        const element* inner, element* out_2, element* out_3, const float* scales, float* products,
#endif
        const int* table, const int* counted, int rows, int m, int n, int k, int experts) {
    extern __shared__ u8 shared_bytes[];
    const u32 base = (shared_address(shared_bytes) + 1023u) & ~1023u;
    const u32 buffers = base + STAGES * STAGE_BYTES;
    const u32 full = buffers + BUFFERS_BYTES;
    const u32 empty = full + 8 * STAGES;
#if IN_TURN
    const u32 my_turn = empty + 8 * STAGES;
#endif
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int thread = threadIdx.x % 128;
#if SHARE > 1
    const u32 rank = rank_in_cluster();
#else
    const u32 rank = 0;
#endif

    if (threadIdx.x == 0) {
        for (u32 stage = 0; stage < STAGES; ++stage) {
            barrier_init(full + 8 * stage, 1);
            barrier_init(empty + 8 * stage, (IN_TURN ? 1 : CONSUMERS) * SHARE);
        }
#if IN_TURN
        for (u32 i = 0; i < CONSUMERS; ++i) barrier_init(my_turn + 8 * i, 1);
#endif
        barrier_inits_visible();
        prefetch_map(&left_map);
        prefetch_map(&right_map);
    }
#if SHARE > 1
    cluster_sync();
#else
    __syncthreads();
#endif
    wait_for_previous_kernel();
    const Plan plan(table, counted, rows, m, n, k, experts);

    if (warpgroup == 0) {
#if TRADED
        registers_down<PRODUCER_REGISTERS>();
#endif
        if (thread == 0) {
            Ring ring = {0, 0};
#if KEEP_left
            const u64 left_policy = evict_last(), right_policy = evict_normal();
#elif KEEP_right
            const u64 left_policy = evict_normal(), right_policy = evict_last();
#elif KEEP_stream
            const u64 left_policy = evict_first(), right_policy = evict_first();
#else
            const u64 left_policy = evict_normal(), right_policy = evict_normal();
#endif
            for (int turn = blockIdx.x / SHARE; turn < plan.turns; turn += gridDim.x / SHARE) {
                const Work work = plan.at(turn, rank);
#if !LEFT_ACROSS
                const int blocks = work.blocks();
#endif
                for (int step = 0; step < work.steps; ++step) {
                    const u32 barrier = full + 8 * ring.stage;
                    const u32 left = base + ring.stage * STAGE_BYTES;
                    const u32 right = left + BOXES * LEFT_BOX;
                    const TensorMap *left_from = &left_map, *right_from = &right_map;
                    int depth = work.depth + step * TILE_K;
#if PAIRED
                    if (step >= work.steps / 2) {
                        depth -= work.steps / 2 * TILE_K;
                        left_from = &left_2_map, right_from = &right_2_map;
                    }
#endif
                    barrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);
#if LEFT_ACROSS
                    barrier_expect(barrier, STAGE_BYTES);
                    const int slice = (int)rank * (TILE_K / SHARE);
                    load_across<(SHARE > 1), TILE_M>(left + slice * 128, left_from, barrier,
                                                     work.row, depth + slice,
                                                     (u16)((1 << SHARE) - 1), left_policy);
#else
                    barrier_expect(barrier, BOXES * (blocks * ROWS_BYTES + RIGHT_BOX));
#endif
#if RIGHT_ACROSS
                    const int over = BY_WEIGHT ? 0 : work.expert * k;     // experts' depths
                    load_across<false, TILE_N>(right, right_from, barrier, work.column,
                                               over + depth, 0, right_policy);
#endif
#pragma unroll
                    for (int box = 0; box < BOXES; ++box) {
#if !LEFT_ACROSS
                        for (int block = (int)rank; block < blocks; block += SHARE) {
                            load_part<(SHARE > 1)>(left + box * LEFT_BOX + block * ROWS_BYTES,
                                                   left_from, barrier, depth + box * 64,
                                                   work.row + block * 64, (u16)((1 << SHARE) - 1),
                                                   left_policy);
                        }
#endif
#if !RIGHT_ACROSS
                        const int y = work.expert * n + work.column;
                        load_box_hinted(right + box * RIGHT_BOX, right_from, barrier,
                                        depth + box * 64, y, right_policy);
#if GATED
                        load_box_hinted(right + box * RIGHT_BOX + OUT_N * 128, &aside_map, barrier,
                                        depth + box * 64, y, right_policy);
#endif
#endif
                    }
                    ring.advance();
                }
            }
            let_next_kernel_start();
        }
    } else {
#if TRADED && CONSUMERS > 1
        registers_up<CONSUMER_REGISTERS>();
#endif
        const int consumer = warpgroup - 1;
        const int warp = thread / 32, lane = thread % 32;
        const int wg_row = IN_TURN ? 0 : consumer * WG_ROWS;
        Ring ring = {0, 0};
        float sums[WG_BLOCKS][TILE_N / 2];
#if SHARE > 1
        const u32 told = address_in_block(empty, thread < SHARE ? thread : 0);
        auto release = [&](u32 stage) {
            if (thread < SHARE) barrier_arrive_cluster(told + 8 * stage);
        };
#else
        auto release = [&](u32 stage) {
            if (thread == 0) barrier_arrive(empty + 8 * stage);
        };
#endif
#if EPILOGUE_engine
        const u32 my_buffers = buffers + consumer * (BUFFERS * BUFFER_BYTES);
        u32 chunk_number = 0;     // of all chunks that this warpgroup has written
#endif
        [[maybe_unused]] int number = -1;
        for (int turn = blockIdx.x / SHARE; turn < plan.turns; turn += gridDim.x / SHARE) {
            const Work work = plan.at(turn, rank);
#if IN_TURN
            if (++number % CONSUMERS != consumer) {
                ring.skip(work.steps);
                continue;
            }
#endif
            const int first_row = work.out_row + wg_row;
            if (first_row >= work.limit) {     // none of these rows is the expert's
                if (thread == 0) pass_by(ring, work.steps, full, empty);
                warps_sync(1 + consumer, 128);
                ring.skip(work.steps);
                continue;
            }
#pragma unroll
            for (int block = 0; block < WG_BLOCKS; ++block) {
#pragma unroll
                for (int i = 0; i < TILE_N / 2; ++i) sums[block][i] = 0.0f;
            }
#if PRODUCTS_warpgroup
            u32 before = 0;        // the stage that may still be read
#endif
#if IN_TURN
            // Not before all of what the others multiply has arrived: a stage's parity tells only
            // its last two fillings apart.
            if (number > 0) barrier_wait(my_turn + 8 * consumer, (number - 1) / CONSUMERS & 1);
#endif
            for (int step = 0; step < work.steps; ++step) {
                barrier_wait(full + 8 * ring.stage, ring.parity);
                const u32 stage = base + ring.stage * STAGE_BYTES;
                const u32 right = stage + BOXES * LEFT_BOX;
#if LEFT_ACROSS
                const u32 left = stage + wg_row / 64 * ACROSS_BOX;
#else
                const u32 left = stage + wg_row * 128;
#endif
#if PRODUCTS_warpgroup
#pragma unroll
                for (int block = 0; block < WG_BLOCKS; ++block) hold(sums[block]);
                products_begin();
#pragma unroll
                for (int part = 0; part < 4 * BOXES; ++part) {
                    const u64 b = right_factor(right, part);
#pragma unroll
                    for (int block = 0; block < WG_BLOCKS; ++block) {
                        multiply(sums[block], left_factor(left, block, part), b);
                    }
                }
                products_commit();
#pragma unroll
                for (int block = 0; block < WG_BLOCKS; ++block) hold(sums[block]);
                products_wait<1>();
                if (step > 0) release(before);
                before = ring.stage;
#else
                multiply_by_warps(sums, left, right, warp, lane);
                warps_sync(1 + consumer, 128);
                release(ring.stage);
#endif
                ring.advance();
            }
#if PRODUCTS_warpgroup
            products_wait<0>();
#pragma unroll
            for (int block = 0; block < WG_BLOCKS; ++block) hold(sums[block]);
            if (work.steps > 0) release(before);
#endif
#if IN_TURN
            warps_sync(1 + consumer, 128);         // all of them have seen that it was their turn
            if (thread == 0) barrier_arrive(my_turn + 8 * ((consumer + 1) % CONSUMERS));
#endif

#if GATED
            leave_gradients(sums, work, first_row + warp * 16, lane, rows, n, inner, out, out_2,
                            out_3, scales, products);
#elif EPILOGUE_engine
            // Rows of an expert begin and end at multiples of 64: a box is its own or none of its.
#pragma unroll
            for (int block = 0; block < WG_BLOCKS; ++block) {
                const int box_row = first_row + block * 64;
                if (box_row >= work.limit) continue;
#pragma unroll
                for (int chunk = 0; chunk < CHUNKS; ++chunk, ++chunk_number) {
                    const u32 buffer = my_buffers + chunk_number % BUFFERS * BUFFER_BYTES;
                    const int row_in = warp * 16 + lane % 16;
                    if (thread == 0) stores_have_read<BUFFERS - 1>();
                    warps_sync(1 + consumer, 128);
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        const float* s = sums[block] + chunk * 32 + j * 8;
                        const u32 at =
                            buffer + row_in * 128 + ((2 * j + lane / 16 ^ (row_in & 7)) << 4);
                        store_matrices(at, pack2(s[0], s[1]), pack2(s[2], s[3]), pack2(s[4], s[5]),
                                       pack2(s[6], s[7]));
                    }
                    shared_visible_to_engines();
                    warps_sync(1 + consumer, 128);
                    if (thread == 0) {
                        store_box(&out_map, buffer, work.column + chunk * 64, box_row);
                        stores_commit();
                    }
                }
            }
#else
#pragma unroll
            for (int block = 0; block < WG_BLOCKS; ++block) {
                const int row = first_row + block * 64 + warp * 16 + lane / 4;
#pragma unroll
                for (int j = 0; j < OUT_N / 8; j += 4) {
                    const float* s = sums[block] + 4 * j;
                    u32 upper[4], lower[4];
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        upper[i] = pack2(s[4 * i], s[4 * i + 1]);
                        lower[i] = pack2(s[4 * i + 2], s[4 * i + 3]);
                    }
                    store_groups(out, row, work.column + j * 8, work.limit, n, upper);
                    store_groups(out, row + 8, work.column + j * 8, work.limit, n, lower);
                }
            }
#endif
        }
#if EPILOGUE_engine
        if (thread == 0) stores_have_read<0>();
#endif
    }
#if SHARE > 1
    cluster_sync();              // no block leaves while another may still write to it or tell it
#endif
}
