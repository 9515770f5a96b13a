// out = f(left . right^T (+ bias) (+ residual)): left is (m, k), right (n, k), both contiguous along k.
// With GATED: out = bend(left . right^T) * (left . up^T); a tile has columns of both, side by side.
// With BACKWARD as well: residual is the gradient of that product, out the product again (SiLU), out_2
// and out_3 the gradients of gate and up. With PAIRED: out = left . right^T + left_2 . right_2^T. With RESTED as
// well: each left is the sum of two, rounded and what that lost. With KEPT: the sums are the gradient of a gated
// product whose factors were kept; out and out_2 are the gradients of gate and up, with RESTS also what rounding
// them lost.
// LEFT_ACROSS, RIGHT_ACROSS: that factor is (k, m) or (k, n) instead, contiguous along the other axis.
//
// One producer warp keeps the copy engine busy; warpgroups of consumers multiply what has arrived
// and write the result. Stages of shared memory go round between them, guarded by two barriers
// each: "full" (bytes have arrived) and "empty" (everyone has read). In a cluster a block loads
// only its part of a tile and the copy engine hands it to every block that needs it.
//
// Genes (macros): CONSUMERS, WG_ROWS, TILE_N, TILE_K, STAGES, CLUSTER_M, CLUSTER_N, RASTER_m|n,
// GROUP, SCHEDULE_tiles|persistent|pingpong, SPLIT_K, EPILOGUE_direct|engine, BUFFERS, RESIDUAL_last|engine,
// KEEP_none|left|right|stream, PRODUCER_REGISTERS, PDL, PRODUCTS_warpgroup|warp.
// The job: DTYPE_*, HAS_RESIDUAL, HAS_BIAS, ACTIVATION_none|relu|gelu, GATED, BEND_gelu|silu, BACKWARD, KEPT, RESTS, PAIRED, RESTED, LEFT_ACROSS, RIGHT_ACROSS.

#include "device.cuh"
#include "copy_engine.cuh"
#include "matrices.cuh"
#if PRODUCTS_warpgroup
#include "warpgroup.cuh"
#include "products.cuh"
#endif

#define WG_BLOCKS (WG_ROWS / 64)
#if SCHEDULE_pingpong         // a consumer has a tile for itself, the next one the next tile
#define PINGPONG 1
#define TILE_M WG_ROWS
#define ARRIVALS_OF_BLOCK 1
#else
#define PINGPONG 0
#define TILE_M (CONSUMERS * WG_ROWS)
#define ARRIVALS_OF_BLOCK CONSUMERS
#endif
#if GATED
#define OUT_N (TILE_N / 2)                  // columns of the output that a tile gives
#else
#define OUT_N TILE_N
#endif
#define THREADS (128 * (CONSUMERS + 1))
#define CLUSTER (CLUSTER_M * CLUSTER_N * SPLIT_K)
#define BOXES (TILE_K / 64)                 // a row of a box is 64 elements: 128 bytes
#define LEFT_BOX (TILE_M * 128)
#define RIGHT_BOX (TILE_N * 128)
#define ACROSS_BOX (TILE_K * 128)           // 64 columns of a factor that lies across, and all its depth
#define STAGE_BYTES (BOXES * (LEFT_BOX + RIGHT_BOX))
#define BUFFER_BYTES (64 * 128)             // 64 rows of 64 elements on their way out
#define CHUNKS (OUT_N / 64)
#if EPILOGUE_engine
#define BUFFERS_BYTES (CONSUMERS * BUFFERS * BUFFER_BYTES)
#else
#define BUFFERS_BYTES 0
#endif
#define PARTIAL_STRIDE (TILE_N + 4)         // floats; shifts the rows over the banks
#define CONSUMER_REGISTERS ((512 - 8 * (PRODUCER_REGISTERS / 8)) / CONSUMERS / 8 * 8)

#if HAS_RESIDUAL && RESIDUAL_engine        // parts of the residual on their way in
#define AWAITED (CONSUMERS * BUFFERS)
#else
#define AWAITED 0
#endif

#include "tiles.cuh"

struct Place {
    int m, n;      // first row and column of this block's tile
};

// Where the block's tile of one turn lies. Turns walk a group of rows (or columns) of tiles
// together, so that blocks which run at the same time share what they read.
DEVICE Place place_of(int turn, int tiles_m, int tiles_n, u32 rank) {
#if RASTER_m
    int across = tiles_n, along = tiles_m;
#else
    int across = tiles_m, along = tiles_n;
#endif
    int group = turn / (GROUP * across);
    int first = group * GROUP;
    int members = min(GROUP, along - first);
    int inside = turn - group * (GROUP * across);
    int lane = first + inside % members;
    int step = inside / members;
#if RASTER_m
    int row = lane, column = step;
#else
    int row = step, column = lane;
#endif
    Place place;
    place.m = (row * CLUSTER_M + (int)(rank % CLUSTER_M)) * TILE_M;
    place.n = (column * CLUSTER_N + (int)(rank / CLUSTER_M % CLUSTER_N)) * OUT_N;
    return place;
}

// What becomes of a sum before it is written: nothing, ReLU, or GELU in its tanh form.
DEVICE float activated(float value) {
#if ACTIVATION_relu
    return fmaxf(value, 0.0f);
#elif ACTIVATION_gelu
    const float inner = 1.5957691216057308f * (value + 0.044715f * value * value * value);
    return __fdividef(value, 1.0f + __expf(-inner));
#else
    return value;
#endif
}

#if GATED
// What the gate becomes before it is multiplied: GELU in its tanh form, or SiLU.
DEVICE float bend(float gate) {
#if BEND_gelu
    const float inner = 1.5957691216057308f * (gate + 0.044715f * gate * gate * gate);
#else
    const float inner = gate;
#endif
    return __fdividef(gate, 1.0f + __expf(-inner));
}
#endif

#if KEPT
struct Kept {
    element *by_gate, *by_up;
    const element *gate, *sigmoid, *silu, *up;
#if RESTS
    element *gate_rest, *up_rest;
#endif
};

DEVICE void leave(element* rounded, [[maybe_unused]] element* rest, int row, int column, int m, int n,
                  float a, float b) {
    store_pair(rounded, row, column, m, n, a, b);
#if RESTS
    const float2 held = unpack2(pack2(a, b));
    store_pair(rest, row, column, m, n, a - held.x, b - held.y);
#endif
}

// What becomes of two neighbours of one row: the gradients of gate and up, from what was kept.
DEVICE void leave_gradients(const Kept& kept, int row, int column, int m, int n, float a, float b) {
    const float2 silu = load_pair(kept.silu, row, column, m, n);
    const float2 up = load_pair(kept.up, row, column, m, n);
    const float2 gate = load_pair(kept.gate, row, column, m, n);
    const float2 sigmoid = load_pair(kept.sigmoid, row, column, m, n);
    const float slope_a = sigmoid.x * (1.0f + gate.x * (1.0f - sigmoid.x));
    const float slope_b = sigmoid.y * (1.0f + gate.y * (1.0f - sigmoid.y));
#if RESTS
    element *gate_rest = kept.gate_rest, *up_rest = kept.up_rest;
#else
    element *gate_rest = nullptr, *up_rest = nullptr;
#endif
    leave(kept.by_gate, gate_rest, row, column, m, n, a * up.x * slope_a, b * up.y * slope_b);
    leave(kept.by_up, up_rest, row, column, m, n, a * silu.x, b * silu.y);
}
#endif

#if CLUSTER > 1
#define CLUSTER_SHAPE __cluster_dims__(CLUSTER, 1, 1)
#else
#define CLUSTER_SHAPE
#endif

extern "C" __global__ void CLUSTER_SHAPE __launch_bounds__(THREADS, 1)
gemm(const __grid_constant__ TensorMap left_map, const __grid_constant__ TensorMap right_map,
     const __grid_constant__ TensorMap out_map, const __grid_constant__ TensorMap aside_map,
#if PAIRED
     const __grid_constant__ TensorMap left_2_map, const __grid_constant__ TensorMap right_2_map,
#endif
#if RESTED
     const __grid_constant__ TensorMap rest_map, const __grid_constant__ TensorMap rest_2_map,
#endif
     element* out, const element* residual,
#if HAS_BIAS
     const element* bias,
#endif
#if BACKWARD
     element* out_2, element* out_3,
#endif
#if KEPT
     element* out_2, const element* kept_gate, const element* kept_sigmoid, const element* kept_silu,
     const element* kept_up,
#if RESTS
     element* rest, element* rest_2,
#endif
#endif
     int m, int n, int k) {
    extern __shared__ u8 shared_bytes[];
    const u32 base = (shared_address(shared_bytes) + 1023u) & ~1023u;
    const u32 buffers = base + STAGES * STAGE_BYTES;
    const u32 full = buffers + BUFFERS_BYTES;
    const u32 empty = full + 8 * STAGES;
#if AWAITED
    const u32 residual_full = empty + 8 * STAGES;
#endif
#if PINGPONG
    const u32 my_turn = empty + 8 * STAGES + 8 * AWAITED;
#endif
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int thread = threadIdx.x % 128;
#if CLUSTER > 1
    const u32 rank = rank_in_cluster();
#else
    const u32 rank = 0;
#endif

    if (threadIdx.x == 0) {
        for (u32 stage = 0; stage < STAGES; ++stage) {
            barrier_init(full + 8 * stage, 1);
            barrier_init(empty + 8 * stage, ARRIVALS_OF_BLOCK * (CLUSTER_M + CLUSTER_N - 1));
        }
#if AWAITED
        for (u32 i = 0; i < AWAITED; ++i) barrier_init(residual_full + 8 * i, 1);
#endif
#if PINGPONG
        for (u32 i = 0; i < CONSUMERS; ++i) barrier_init(my_turn + 8 * i, 1);
#endif
        barrier_inits_visible();
        prefetch_map(&left_map);
        prefetch_map(&right_map);
    }
#if CLUSTER > 1
    cluster_sync();
#else
    __syncthreads();
#endif
    wait_for_previous_kernel();
#if KEPT
    const Kept kept = {out, out_2, kept_gate, kept_sigmoid, kept_silu, kept_up,
#if RESTS
                       rest, rest_2
#endif
    };
#endif

    const int tiles_m = (m + CLUSTER_M * TILE_M - 1) / (CLUSTER_M * TILE_M);
    const int tiles_n = (n + CLUSTER_N * OUT_N - 1) / (CLUSTER_N * OUT_N);
    const int turns = tiles_m * tiles_n;
    const int stride = gridDim.x / CLUSTER;
#if PAIRED
    const int steps_each = (k + TILE_K - 1) / TILE_K, all_steps = (2 + 2 * RESTED) * steps_each;
#else
    const int all_steps = (k + TILE_K - 1) / TILE_K;
#endif
#if SPLIT_K > 1
    const int share = (all_steps + SPLIT_K - 1) / SPLIT_K;
    const int first_step = min((int)rank * share, all_steps);
    const int steps = min(share, all_steps - first_step);
#else
    const int first_step = 0;
    const int steps = all_steps;
#endif

    if (warpgroup == 0) {
        registers_down<PRODUCER_REGISTERS>();
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
            // A block loads every CLUSTER_N-th part of left's rows and CLUSTER_M-th of right's.
            const int part_m = rank % CLUSTER_M, part_n = rank / CLUSTER_M % CLUSTER_N;
            u16 same_rows = 0, same_columns = 0;
            for (int i = 0; i < CLUSTER_N; ++i) same_rows |= (u16)(1 << (part_m + CLUSTER_M * i));
            for (int i = 0; i < CLUSTER_M; ++i) same_columns |= (u16)(1 << (i + CLUSTER_M * part_n));
            const int left_rows = TILE_M / CLUSTER_N, right_rows = OUT_N / CLUSTER_M;
            for (int turn = blockIdx.x / CLUSTER; turn < turns; turn += stride) {
                const Place place = place_of(turn, tiles_m, tiles_n, rank);
                [[maybe_unused]] const int left_y = place.m + part_n * left_rows;
                [[maybe_unused]] const int right_y = place.n + part_m * right_rows;
                for (int step = 0; step < steps; ++step) {
                    const u32 barrier = full + 8 * ring.stage;
                    u32 target = base + ring.stage * STAGE_BYTES;
                    int x = (first_step + step) * TILE_K;
                    barrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);
                    barrier_expect(barrier, STAGE_BYTES);
                    const TensorMap *left_from = &left_map, *right_from = &right_map;
#if PAIRED
                    const int pair = (first_step + step) / steps_each;
                    x -= pair * steps_each * TILE_K;
                    if (pair % 2) left_from = &left_2_map, right_from = &right_2_map;
#if RESTED
                    if (pair >= 2) left_from = pair % 2 ? &rest_2_map : &rest_map;
#endif
#endif
#if LEFT_ACROSS
                    const int left_slice = part_n * (TILE_K / CLUSTER_N);
                    load_across<(CLUSTER_N > 1), TILE_M>(target + left_slice * 128, left_from,
                                                         barrier, place.m, x + left_slice,
                                                         same_rows, left_policy);
#endif
#if RIGHT_ACROSS
                    const int right_slice = part_m * (TILE_K / CLUSTER_M);
                    load_across<(CLUSTER_M > 1), TILE_N>(
                        target + BOXES * LEFT_BOX + right_slice * 128, right_from, barrier, place.n,
                        x + right_slice, same_columns, right_policy);
#endif
#pragma unroll
                    for (int box = 0; box < BOXES; ++box, x += 64) {
                        [[maybe_unused]] const u32 left_at =
                            target + box * LEFT_BOX + part_n * left_rows * 128;
                        [[maybe_unused]] const u32 right_at =
                            target + BOXES * LEFT_BOX + box * RIGHT_BOX + part_m * right_rows * 128;
#if !LEFT_ACROSS
                        load_part<(CLUSTER_N > 1)>(left_at, left_from, barrier, x, left_y,
                                                   same_rows, left_policy);
#endif
#if !RIGHT_ACROSS
                        load_part<(CLUSTER_M > 1)>(right_at, right_from, barrier, x, right_y,
                                                   same_columns, right_policy);
#endif
#if GATED
                        load_part<(CLUSTER_M > 1)>(right_at + OUT_N * 128, &aside_map, barrier, x,
                                                   right_y, same_columns, right_policy);
#endif
                    }
                    ring.advance();
                }
            }
            let_next_kernel_start();
        }
    } else {
#if CONSUMERS > 1
        registers_up<CONSUMER_REGISTERS>();
#endif
        const int consumer = warpgroup - 1;
        const int warp = thread / 32, lane = thread % 32;
        Ring ring = {0, 0};
        float sums[WG_BLOCKS][TILE_N / 2];
        const int wg_row = PINGPONG ? 0 : consumer * WG_ROWS;

        // Whom to tell that a stage has been read: every block that loads a part of it.
        u32 told = empty;
        bool tells = thread == 0;
#if CLUSTER_M * CLUSTER_N > 1
        tells = thread < CLUSTER && (thread % CLUSTER_M == rank % CLUSTER_M ||
                                     thread / CLUSTER_M == rank / CLUSTER_M);
        told = address_in_block(empty, tells ? thread : 0);
#endif
        auto release = [&](u32 stage) {
            if (!tells) return;
#if CLUSTER_M * CLUSTER_N > 1
            barrier_arrive_cluster(told + 8 * stage);
#else
            barrier_arrive(told + 8 * stage);
#endif
        };

#if EPILOGUE_engine
        const u32 my_buffers = buffers + consumer * (BUFFERS * BUFFER_BYTES);
#if AWAITED
        const u32 my_residuals = residual_full + 8 * consumer * BUFFERS;
#endif
        u32 chunk_number = 0;     // of all chunks that this warpgroup has written
#endif
        int number = 0;
        for (int turn = blockIdx.x / CLUSTER; turn < turns; turn += stride, ++number) {
#if PINGPONG
            if (number % CONSUMERS != consumer) {
                ring.skip(steps);
                continue;
            }
#endif
            const Place place = place_of(turn, tiles_m, tiles_n, rank);
#if SPLIT_K == 1
            const int row_0 = place.m + wg_row;
#endif

#if HAS_RESIDUAL && RESIDUAL_engine
            if (thread == 0) {
                stores_have_read<0>();
#pragma unroll
                for (int i = 0; i < BUFFERS && i < WG_BLOCKS * CHUNKS; ++i) {
                    const u32 slot = (chunk_number + i) % BUFFERS;
                    barrier_expect(my_residuals + 8 * slot, BUFFER_BYTES);
                    load_box(my_buffers + slot * BUFFER_BYTES, &aside_map, my_residuals + 8 * slot,
                             place.n + i % CHUNKS * 64, row_0 + i / CHUNKS * 64);
                }
            }
#endif
#pragma unroll
            for (int block = 0; block < WG_BLOCKS; ++block) {
#pragma unroll
                for (int i = 0; i < TILE_N / 2; ++i) sums[block][i] = 0.0f;
            }

#if PINGPONG
            // A barrier tells only odd phases from even ones: a consumer looks at the stages when
            // the one before it has taken its last.
            if (number > 0) barrier_wait(my_turn + 8 * consumer, (number - 1) / CONSUMERS & 1);
#endif
#if PRODUCTS_warpgroup
            u32 before = 0;        // the stage that may still be read
#endif
            for (int step = 0; step < steps; ++step) {
                barrier_wait(full + 8 * ring.stage, ring.parity);
#if LEFT_ACROSS
                const u32 left = base + ring.stage * STAGE_BYTES + wg_row / 64 * ACROSS_BOX;
#else
                const u32 left = base + ring.stage * STAGE_BYTES + wg_row * 128;
#endif
                const u32 right = base + ring.stage * STAGE_BYTES + BOXES * LEFT_BOX;
#if PRODUCTS_warpgroup
#pragma unroll
                for (int block = 0; block < WG_BLOCKS; ++block) hold(sums[block]);
                products_begin();
#if LEFT_ACROSS || RIGHT_ACROSS
#pragma unroll
                for (int part = 0; part < 4 * BOXES; ++part) {
                    const u64 b = right_factor(right, part);
#pragma unroll
                    for (int block = 0; block < WG_BLOCKS; ++block) {
                        multiply(sums[block], left_factor(left, block, part), b);
                    }
                }
#else
#pragma unroll
                for (int box = 0; box < BOXES; ++box) {
                    const u64 b = rows_of_128_bytes(right + box * RIGHT_BOX);
#pragma unroll
                    for (int part = 0; part < 4; ++part) {
#pragma unroll
                        for (int block = 0; block < WG_BLOCKS; ++block) {
                            const u64 a = rows_of_128_bytes(left + box * LEFT_BOX + block * 8192);
                            multiply(sums[block], a + 2 * part, b + 2 * part);
                        }
                    }
                }
#endif
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
            if (steps > 0) release(before);
#endif

#if PINGPONG
            if (thread == 0) barrier_arrive(my_turn + 8 * ((consumer + 1) % CONSUMERS));
#endif
#if GATED && !BACKWARD
#pragma unroll
            for (int block = 0; block < WG_BLOCKS; ++block) {
#pragma unroll
                for (int i = 0; i < OUT_N / 2; ++i) {
                    sums[block][i] = bend(sums[block][i]) * sums[block][i + OUT_N / 2];
                }
            }
#endif

#if HAS_BIAS && SPLIT_K == 1
#pragma unroll
            for (int j = 0; j < TILE_N / 8; ++j) {
                const float2 more = load_pair(bias, 0, place.n + j * 8 + lane % 4 * 2, 1, n);
#pragma unroll
                for (int block = 0; block < WG_BLOCKS; ++block) {
                    float* s = sums[block] + 4 * j;
                    s[0] += more.x, s[1] += more.y, s[2] += more.x, s[3] += more.y;
                }
            }
#endif
#if BACKWARD
#pragma unroll
            for (int block = 0; block < WG_BLOCKS; ++block) {
#pragma unroll
                for (int j = 0; j < OUT_N / 4; ++j) {      // two columns of one row
                    const int row = row_0 + block * 64 + warp * 16 + lane / 4 + j % 2 * 8;
                    const int column = place.n + j / 2 * 8 + lane % 4 * 2;
                    const float* gate = sums[block] + 2 * j;
                    const float* up = gate + OUT_N / 2;
                    const float2 given = load_pair(residual, row, column, m, n);
                    const float grad[2] = {given.x, given.y};
                    float hidden[2], by_gate[2], by_up[2];
#pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        const float sigmoid = __fdividef(1.0f, 1.0f + __expf(-gate[i]));
                        const float silu = gate[i] * sigmoid;
                        hidden[i] = silu * up[i];
                        by_up[i] = grad[i] * silu;
                        by_gate[i] = grad[i] * up[i] * sigmoid * (1.0f + gate[i] * (1.0f - sigmoid));
                    }
                    store_pair(out, row, column, m, n, hidden[0], hidden[1]);
                    store_pair(out_2, row, column, m, n, by_gate[0], by_gate[1]);
                    store_pair(out_3, row, column, m, n, by_up[0], by_up[1]);
                }
            }
#elif SPLIT_K > 1
            // Every block of the cluster lays its sums down; each then adds up its share of rows.
            float* partial = (float*)(shared_bytes + (base - shared_address(shared_bytes)));
            warps_sync(1 + CONSUMERS, 128 * CONSUMERS);
#pragma unroll
            for (int block = 0; block < WG_BLOCKS; ++block) {
                float* at = partial + (wg_row + block * 64 + warp * 16 + lane / 4) * PARTIAL_STRIDE +
                            lane % 4 * 2;
#pragma unroll
                for (int j = 0; j < TILE_N / 8; ++j) {
                    *(float2*)(at + 8 * j) =
                        make_float2(sums[block][4 * j], sums[block][4 * j + 1]);
                    *(float2*)(at + 8 * j + 8 * PARTIAL_STRIDE) =
                        make_float2(sums[block][4 * j + 2], sums[block][4 * j + 3]);
                }
            }
            cluster_sync();
            const int share_rows = TILE_M / SPLIT_K;
            for (int i = consumer * 128 + thread; i < share_rows * (TILE_N / 4);
                 i += 128 * CONSUMERS) {
                const int row_in = (int)rank * share_rows + i / (TILE_N / 4);
                const int column_in = i % (TILE_N / 4) * 4;
                const u32 here = base + 4 * (row_in * PARTIAL_STRIDE + column_in);
                float total[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
                for (int peer = 0; peer < SPLIT_K; ++peer) {
                    float a, b, c, d;
                    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                                 : "=f"(a), "=f"(b), "=f"(c), "=f"(d)
                                 : "r"(address_in_block(here, peer)));
                    total[0] += a, total[1] += b, total[2] += c, total[3] += d;
                }
                const int row = place.m + row_in, column = place.n + column_in;
#pragma unroll
                for (int pair = 0; pair < 4; pair += 2) {
#if HAS_RESIDUAL
                    const float2 more = load_pair(residual, row, column + pair, m, n);
                    total[pair] += more.x, total[pair + 1] += more.y;
#endif
#if HAS_BIAS
                    const float2 shift = load_pair(bias, 0, column + pair, 1, n);
                    total[pair] += shift.x, total[pair + 1] += shift.y;
#endif
#if KEPT
                    leave_gradients(kept, row, column + pair, m, n, total[pair], total[pair + 1]);
#else
                    store_pair(out, row, column + pair, m, n, activated(total[pair]),
                               activated(total[pair + 1]));
#endif
                }
            }
#elif EPILOGUE_engine
#pragma unroll
            for (int block = 0; block < WG_BLOCKS; ++block) {
#pragma unroll
                for (int chunk = 0; chunk < CHUNKS; ++chunk, ++chunk_number) {
                    const u32 slot = chunk_number % BUFFERS;
                    const u32 buffer = my_buffers + slot * BUFFER_BYTES;
                    const int row_in = warp * 16 + lane % 16;
                    const u32 row_at = buffer + row_in * 128;
#if HAS_RESIDUAL && RESIDUAL_engine
                    barrier_wait(my_residuals + 8 * slot, chunk_number / BUFFERS & 1);
#else
                    if (thread == 0) stores_have_read<BUFFERS - 1>();
                    warps_sync(1 + consumer, 128);
#endif
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        const u32 at = row_at + ((2 * j + lane / 16 ^ (row_in & 7)) << 4);
                        float* s = sums[block] + chunk * 32 + j * 8;
#if HAS_RESIDUAL && RESIDUAL_engine
                        u32 r[4];
                        load_matrices(at, r);
#pragma unroll
                        for (int i = 0; i < 4; ++i) {
                            const float2 more = unpack2(r[i]);
                            s[2 * i] += more.x, s[2 * i + 1] += more.y;
                        }
#elif HAS_RESIDUAL && RESIDUAL_last
#pragma unroll
                        for (int i = 0; i < 4; ++i) {
                            const float2 more = load_pair(
                                residual, row_0 + block * 64 + warp * 16 + lane / 4 + i % 2 * 8,
                                place.n + chunk * 64 + (2 * j + i / 2) * 8 + lane % 4 * 2, m, n);
                            s[2 * i] += more.x, s[2 * i + 1] += more.y;
                        }
#endif
#pragma unroll
                        for (int i = 0; i < 8; ++i) s[i] = activated(s[i]);
                        store_matrices(at, pack2(s[0], s[1]), pack2(s[2], s[3]), pack2(s[4], s[5]),
                                       pack2(s[6], s[7]));
                    }
                    shared_visible_to_engines();
                    warps_sync(1 + consumer, 128);
                    if (thread == 0) {
                        store_box(&out_map, buffer, place.n + chunk * 64, row_0 + block * 64);
                        stores_commit();
#if HAS_RESIDUAL && RESIDUAL_engine
                        const int next = block * CHUNKS + chunk + BUFFERS;
                        if (next < WG_BLOCKS * CHUNKS) {
                            stores_have_read<0>();
                            barrier_expect(my_residuals + 8 * slot, BUFFER_BYTES);
                            load_box(buffer, &aside_map, my_residuals + 8 * slot,
                                     place.n + next % CHUNKS * 64, row_0 + next / CHUNKS * 64);
                        }
#endif
                    }
                }
            }
#else
#pragma unroll
            for (int block = 0; block < WG_BLOCKS; ++block) {
                const int row = row_0 + block * 64 + warp * 16 + lane / 4;
#pragma unroll
                for (int j = 0; j < OUT_N / 8; ++j) {
                    const int column = place.n + j * 8 + lane % 4 * 2;
                    float* s = sums[block] + 4 * j;
#if HAS_RESIDUAL && RESIDUAL_last
                    const float2 upper = load_pair(residual, row, column, m, n);
                    const float2 lower = load_pair(residual, row + 8, column, m, n);
                    s[0] += upper.x, s[1] += upper.y, s[2] += lower.x, s[3] += lower.y;
#endif
#pragma unroll
                    for (int i = 0; i < 4; ++i) s[i] = activated(s[i]);
#if KEPT
                    leave_gradients(kept, row, column, m, n, s[0], s[1]);
                    leave_gradients(kept, row + 8, column, m, n, s[2], s[3]);
#else
                    store_pair(out, row, column, m, n, s[0], s[1]);
                    store_pair(out, row + 8, column, m, n, s[2], s[3]);
#endif
                }
            }
#endif
        }
#if EPILOGUE_engine
        if (thread == 0) stores_have_read<0>();
#endif
    }
#if SPLIT_K > 1
    if (warpgroup == 0) {
        __syncwarp();
        cluster_sync();      // the consumers' sums lie in shared memory
    }
#endif
#if CLUSTER > 1
    __syncwarp();
    cluster_sync();          // no block leaves while another may still write to it or read from it
#endif
}
