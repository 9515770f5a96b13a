// Causal grouped-query attention over a paged cache, sequences of any lengths side by side; also
// with one query a sequence (decoding), and over keys that lie one after another (RAGGED).
//
// The query heads that share a key-value head are rows of one tile: row p of a sequence is query
// p / GROUP, head p % GROUP of the group. A warpgroup of producers gathers keys and values row by
// row (pages may lie anywhere) into stages; each consumer warpgroup owns 64 rows, keeps a running
// maximum and sum, and begins with the newest keys, the only ones that need a mask.
// With SPLITS > 1 blocks share out the keys: a second kernel joins what they found, or, with
// JOIN_cluster, they are a cluster and join it through one another's shared memory.
//
// Genes (macros): PRODUCTS_warpgroup|warp, CONSUMERS, TILE_KV, STAGES, SPLITS,
// JOIN_kernel|cluster, OVERLAP, TURNS, BLOCKS, ORDER_longest|given, PRODUCER_REGISTERS,
// HEADS_first|last, PDL.
// The job: DTYPE_*, HEAD, GROUP, KV_HEADS, PAGE, HAS_LAST_PAGE, RAGGED, DECODING; LENGTH where all
// sequences have so many queries and keys, so that no starts are read.

#include "device.cuh"
#include "matrices.cuh"
#if PRODUCTS_warpgroup
#include "warpgroup.cuh"
#include "products.cuh"
#endif
#include "attention.cuh"

#ifndef BLOCKS
#define BLOCKS 1                            // that share a multiprocessor, so far as registers go
#endif
#define ROWS (64 * CONSUMERS)
#define THREADS (128 * (CONSUMERS + 1))
#define QUERY_BYTES (64 * HEAD * 2)         // of one consumer
#define TILE_BYTES (TILE_KV * HEAD * 2)
#define CHUNKS (HEAD / 8)                   // of 16 bytes in a row
#define PASS (128 / CHUNKS)                 // rows that the producers gather at once
#define PASSES (TILE_KV / PASS)
#define JOINED_HERE (SPLITS > 1 && JOIN_cluster)
#define LINE (HEAD + 8)                     // floats of a row that waits for its cluster: no conflicts
#define CONSUMER_REGISTERS ((512 / BLOCKS - 8 * (PRODUCER_REGISTERS / 8)) / CONSUMERS / 8 * 8)
#define Q_HEADS (KV_HEADS * GROUP)

struct Sequence {
    int query, queries;      // where its queries begin, and how many
    int page, keys;          // where its pages begin, and how many keys they hold
    int tile;                // which of its tiles of rows
};

// The sequence and tile of a work number, counted through all sequences; false beyond the last.
DEVICE bool find_tile(int work, const int* starts, int sequences, int& sequence, int& tile) {
#if DECODING
    sequence = work;
    tile = 0;
    return work < sequences;
#elif LENGTH
    sequence = work % sequences;              // the last tiles of all sequences side by side
    tile = work / sequences;
    return tile * ROWS < LENGTH * GROUP;
#else
    const int lane = threadIdx.x % 32;
    for (int base = 0; base < sequences; base += 32) {
        const int i = base + lane;
        const int queries = i < sequences ? starts[i + 1] - starts[i] : 0;
        const int tiles = (queries * GROUP + ROWS - 1) / ROWS;
        int sum = tiles;
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
            const int other = __shfl_up_sync(0xffffffffu, sum, distance);
            if (lane >= distance) sum += other;
        }
        const int total = __shfl_sync(0xffffffffu, sum, 31);
        if (work < total) {
            const int found = __ffs(__ballot_sync(0xffffffffu, work < sum)) - 1;
            sequence = base + found;
            tile = work - __shfl_sync(0xffffffffu, sum - tiles, found);
            return true;
        }
        work -= total;
    }
    return false;
#endif
}

DEVICE void fetch_chunk(u32 target, const element* from, bool there) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 ::"r"(target), "l"(from), "r"(there ? 16 : 0) : "memory");
}

DEVICE void fetches_arrive(u32 barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

// Consumers take turns: while one turns scores into weights, the tensor cores are another's.
DEVICE void give_turn(int consumer) {
    asm volatile("bar.arrive %0, 256;" ::"r"(4 + consumer) : "memory");
}

DEVICE void wait_for_turn(int consumer) {
#if TURNS
    warps_sync(4 + consumer, 256);
#endif
}

DEVICE void pass_turn(int consumer, bool last) {
#if TURNS
    if (last && consumer == CONSUMERS - 1) return;      // nobody is left to wait for it
    give_turn((consumer + 1) % CONSUMERS);
#endif
}

#if JOINED_HERE
DEVICE void store_shared(u32 address, float value) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

DEVICE void store_shared(u32 address, float first, float second) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(first), "f"(second)
                 : "memory");
}

// From the shared memory of a block of the cluster.
DEVICE float load_cluster(u32 mapped) {
    float value;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(mapped) : "memory");
    return value;
}

DEVICE float2 load_pair_cluster(u32 mapped) {
    float2 pair;
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
                 : "=f"(pair.x), "=f"(pair.y) : "r"(mapped) : "memory");
    return pair;
}

// Rows wait where keys and values lay, in lines of LINE floats; sums where queries lay. The blocks of
// a cluster share out the rows; a warp of consumers joins one row from the parts of all blocks.
DEVICE void join_rows(u32 parts, u32 sums, const Sequence& at, int kv_head, element* out,
                      float* lse) {
    const int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
    const int share = ROWS / SPLITS, first = (int)rank_in_cluster() * share;
    const int last = min(first + share, at.queries * GROUP - at.tile * ROWS);
    for (int in = first + warp; in < last; in += 4 * CONSUMERS) {
        float logs[SPLITS], mixed[HEAD / 32], highest = -HALF_INFINITY, total = 0.0f;
#pragma unroll
        for (int i = 0; i < SPLITS; ++i) {
            logs[i] = load_cluster(address_in_block(sums + in / 64 * QUERY_BYTES + in % 64 * 4, i));
            highest = fmaxf(highest, logs[i]);
        }
        const float shift = highest == -HALF_INFINITY ? 0.0f : highest;
#pragma unroll
        for (int j = 0; j < HEAD / 32; ++j) mixed[j] = 0.0f;
#pragma unroll
        for (int i = 0; i < SPLITS; ++i) {
            const float weight = exp2_fast(logs[i] - shift);
            const u32 from = address_in_block(parts + (in * LINE + 2 * lane) * 4, i);
            total += weight;
#pragma unroll
            for (int j = 0; j < HEAD / 64; ++j) {
                const float2 part = load_pair_cluster(from + 256 * j);
                mixed[2 * j] += weight * part.x;
                mixed[2 * j + 1] += weight * part.y;
            }
        }
        const int p = at.tile * ROWS + in;
        const i64 head = (i64)(at.query + p / GROUP) * Q_HEADS + kv_head * GROUP + p % GROUP;
        const float whole = total > 0.0f ? 1.0f / total : 0.0f;
        element* target = out + head * HEAD + 2 * lane;
#pragma unroll
        for (int j = 0; j < HEAD / 64; ++j) {
            *(u32*)(target + 64 * j) = pack2(mixed[2 * j] * whole, mixed[2 * j + 1] * whole);
        }
        if (lane == 0) lse[head] = total > 0.0f ? shift + log2f(total) : -HALF_INFINITY;
    }
}
#endif

#if JOINED_HERE
#define CLUSTER_SHAPE __cluster_dims__(1, SPLITS, 1)
#else
#define CLUSTER_SHAPE
#endif

extern "C" __global__ void CLUSTER_SHAPE __launch_bounds__(THREADS, BLOCKS)
gqa_paged(const element* __restrict__ q, const element* __restrict__ k_cache,
          const element* __restrict__ v_cache, const int* __restrict__ q_starts,
          const int* __restrict__ kv_starts, const int* __restrict__ kv_pages,
          const int* __restrict__ last_pages, element* __restrict__ out, float* __restrict__ lse,
          float* __restrict__ partial_out, float* __restrict__ partial_lse, int sequences,
          int total_q, int tiles, float sm_scale) {
    extern __shared__ u8 shared_bytes[];
    const u32 base = (shared_address(shared_bytes) + 1023u) & ~1023u;
    const u32 key_stages = base + CONSUMERS * QUERY_BYTES;
    const u32 value_stages = key_stages + STAGES * TILE_BYTES;
    const u32 keys_full = value_stages + STAGES * TILE_BYTES;
    const u32 values_full = keys_full + 8 * STAGES;
    const u32 keys_empty = values_full + 8 * STAGES;
    const u32 values_empty = keys_empty + 8 * STAGES;
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int thread = threadIdx.x % 128;

    if (threadIdx.x == 0) {
        for (u32 stage = 0; stage < STAGES; ++stage) {
            barrier_init(keys_full + 8 * stage, 128);
            barrier_init(values_full + 8 * stage, 128);
            barrier_init(keys_empty + 8 * stage, CONSUMERS);
            barrier_init(values_empty + 8 * stage, CONSUMERS);
        }
        barrier_inits_visible();
    }
    __syncthreads();
    wait_for_previous_kernel();

#if HEADS_first
    const int kv_head = blockIdx.x % KV_HEADS, place = blockIdx.x / KV_HEADS;
#else
    const int kv_head = blockIdx.x / tiles, place = blockIdx.x % tiles;
#endif
#if ORDER_longest
    const int work = tiles - 1 - place;       // the last tiles of a sequence see the most keys
#else
    const int work = place;
#endif
    Sequence at;
    int sequence;
    if (!find_tile(work, q_starts, sequences, sequence, at.tile)) return;
#if DECODING
    at.query = sequence;
    at.queries = 1;
#elif LENGTH
    at.query = sequence * LENGTH;
    at.queries = LENGTH;
#else
    at.query = q_starts[sequence];
    at.queries = q_starts[sequence + 1] - at.query;
#endif
#if LENGTH
    at.page = at.query;
    at.keys = LENGTH;
#else
    at.page = kv_starts[sequence];
    at.keys = (kv_starts[sequence + 1] - at.page) * PAGE;
#endif
#if HAS_LAST_PAGE
    if (at.keys > 0) at.keys += last_pages[sequence] - PAGE;
#endif
    const int ahead = at.keys - at.queries;   // query i sees keys up to i + ahead
    const int last_row = min((at.tile + 1) * ROWS, at.queries * GROUP) - 1;
    const int seen = max(0, min(at.keys, last_row / GROUP + ahead + 1));
    const int all_steps = (seen + TILE_KV - 1) / TILE_KV;
#if SPLITS > 1
    const int share = (all_steps + SPLITS - 1) / SPLITS;
    const int low = min((int)blockIdx.y * share, all_steps), high = min(low + share, all_steps);
#else
    const int low = 0, high = all_steps;
#endif

    if (warpgroup == 0) {
        registers_down<PRODUCER_REGISTERS>();
        const int chunk = thread % CHUNKS, row = thread / CHUNKS;
        u32 stage = 0, parity = 1;
        int slots[PASSES];
        auto look_up = [&](int step) {
#pragma unroll
            for (int i = 0; i < PASSES; ++i) {
                const int key = step * TILE_KV + i * PASS + row;
                const bool there = key < at.keys && step >= low;
#if RAGGED
                slots[i] = there ? at.page + key : -1;
#else
                slots[i] = there ? kv_pages[at.page + key / PAGE] * PAGE + key % PAGE : -1;
#endif
            }
        };
        const i64 part = kv_head * HEAD + chunk * 8;
        auto gather = [&](u32 stage_at, const element* cache) {
            const u32 target = chunk_address(stage_at, TILE_KV, row, chunk);
#pragma unroll
            for (int i = 0; i < PASSES; ++i) {
                // PASS is a multiple of the 8 rows that a swizzle spans.
                const i64 from = (i64)max(slots[i], 0) * (KV_HEADS * HEAD) + part;
                fetch_chunk(target + i * PASS * 128, cache + from, slots[i] >= 0);
            }
        };
        look_up(high - 1);
        for (int step = high - 1; step >= low; --step) {
            barrier_wait(keys_empty + 8 * stage, parity);
            gather(key_stages + stage * TILE_BYTES, k_cache);
            fetches_arrive(keys_full + 8 * stage);
            barrier_wait(values_empty + 8 * stage, parity);
            gather(value_stages + stage * TILE_BYTES, v_cache);
            fetches_arrive(values_full + 8 * stage);
            look_up(step - 1);
            if (++stage == STAGES) {
                stage = 0;
                parity ^= 1;
            }
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
        let_next_kernel_start();
#if JOINED_HERE
        cluster_sync();                       // a cluster's barrier counts all of its threads
        cluster_sync();
#endif
    } else {
#if CONSUMERS > 1 || BLOCKS > 1
        registers_up<CONSUMER_REGISTERS>();
#endif
        const int consumer = warpgroup - 1;
        const int warp = thread / 32, lane = thread % 32;
        const u32 queries = base + consumer * QUERY_BYTES;
        const int first_row = at.tile * ROWS + consumer * 64;
        // Rows of this thread's sums: `row` and eight further on.
        const int row = first_row + warp * 16 + lane / 4;
        const int rows = at.queries * GROUP;

#pragma unroll
        for (int i = 0; i < 64 / PASS; ++i) {
            const int in = i * PASS + thread / CHUNKS, p = first_row + in, chunk = thread % CHUNKS;
            uint4 held = make_uint4(0, 0, 0, 0);
            if (p < rows) {
                const i64 head = (i64)(at.query + p / GROUP) * Q_HEADS + kv_head * GROUP + p % GROUP;
                held = *(const uint4*)(q + head * HEAD + chunk * 8);
            }
            asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                         ::"r"(chunk_address(queries, 64, in, chunk)), "r"(held.x), "r"(held.y),
                         "r"(held.z), "r"(held.w) : "memory");
        }
        shared_visible_to_engines();
        warps_sync(1 + consumer, 128);

        const float scale = sm_scale * 1.4426950408889634f;
        const int limits[2] = {row / GROUP + ahead, (row + 8) / GROUP + ahead};
        const int always_seen = first_row / GROUP + ahead;
        float maxima[2] = {-HALF_INFINITY, -HALF_INFINITY}, totals[2] = {0.0f, 0.0f};
        float scores[TILE_KV / 2], mixed[HEAD / 2];
        u32 weights[TILE_KV / 16][4];
#pragma unroll
        for (int i = 0; i < HEAD / 2; ++i) mixed[i] = 0.0f;

        u32 key_stage = 0, key_parity = 0, value_stage = 0, value_parity = 0;
        auto keys_there = [&]() {
            barrier_wait(keys_full + 8 * key_stage, key_parity);
            shared_visible_to_engines();
        };
        auto values_there = [&]() {
            barrier_wait(values_full + 8 * value_stage, value_parity);
            shared_visible_to_engines();
        };
        auto release = [&](u32 barriers, u32& stage, u32& parity) {
#if !PRODUCTS_warpgroup
            warps_sync(1 + consumer, 128);
#endif
            if (thread == 0) barrier_arrive(barriers + 8 * stage);
            if (++stage == STAGES) {
                stage = 0;
                parity ^= 1;
            }
        };
        // Turns scores into weights; returns by how much what was mixed so far must shrink.
        auto soften = [&](int step, float (&shrink)[2]) {
            if ((step + 1) * TILE_KV - 1 > always_seen) {
#pragma unroll
                for (int i = 0; i < TILE_KV / 2; ++i) {
                    const int key = step * TILE_KV + i / 4 * 8 + lane % 4 * 2 + i % 2;
                    if (key > limits[i / 2 % 2]) scores[i] = -HALF_INFINITY;
                }
            }
            float shift[2];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float high_score = maxima[half];
#pragma unroll
                for (int i = 0; i < TILE_KV / 4; ++i) {
                    high_score = fmaxf(high_score, scores[i / 2 * 4 + 2 * half + i % 2]);
                }
                high_score = row_max(high_score);
                shift[half] = high_score == -HALF_INFINITY ? 0.0f : high_score * scale;
                shrink[half] = exp2_fast(maxima[half] * scale - shift[half]);
                maxima[half] = high_score;
                totals[half] *= shrink[half];
            }
#pragma unroll
            for (int i = 0; i < TILE_KV / 2; ++i) {
                scores[i] = exp2_fast(scores[i] * scale - shift[i / 2 % 2]);
                totals[i / 2 % 2] += scores[i];
            }
        };
        auto shrink_mixed = [&](const float (&shrink)[2]) {
#pragma unroll
            for (int i = 0; i < HEAD / 2; ++i) mixed[i] *= shrink[i / 2 % 2];
        };

#if OVERLAP
        // Scores of the next keys are computed while this step's weights are still being mixed.
#if TURNS
        if (consumer == CONSUMERS - 1 && low < high) give_turn(0);
#endif
        if (low < high) {
            float shrink[2];
            keys_there();
            wait_for_turn(consumer);
            begin_scores(scores, queries, key_stages + key_stage * TILE_BYTES, warp, lane);
            pass_turn(consumer, high - low == 1);
            products_wait<0>();
            hold(scores);
            release(keys_empty, key_stage, key_parity);
            soften(high - 1, shrink);
            narrow(weights, scores);
        }
        for (int step = high - 2; step >= low; --step) {
            float shrink[2];
            keys_there();
            wait_for_turn(consumer);
            begin_scores(scores, queries, key_stages + key_stage * TILE_BYTES, warp, lane);
            values_there();
            begin_mixing(mixed, weights, value_stages + value_stage * TILE_BYTES, lane);
            pass_turn(consumer, step == low);
            products_wait<1>();
            hold(scores);
            release(keys_empty, key_stage, key_parity);
            soften(step, shrink);
            products_wait<0>();
            hold(mixed);
            release(values_empty, value_stage, value_parity);
            shrink_mixed(shrink);
            narrow(weights, scores);
        }
        if (low < high) {
            values_there();
            begin_mixing(mixed, weights, value_stages + value_stage * TILE_BYTES, lane);
            products_wait<0>();
            hold(mixed);
        }
#else
        for (int step = high - 1; step >= low; --step) {
            float shrink[2];
            keys_there();
            begin_scores(scores, queries, key_stages + key_stage * TILE_BYTES, warp, lane);
            products_wait<0>();
            hold(scores);
            release(keys_empty, key_stage, key_parity);
            soften(step, shrink);
            shrink_mixed(shrink);
            narrow(weights, scores);
            values_there();
            begin_mixing(mixed, weights, value_stages + value_stage * TILE_BYTES, lane);
            products_wait<0>();
            hold(mixed);
            release(values_empty, value_stage, value_parity);
        }
#endif

#if JOINED_HERE
        // Until all consumers are done with keys and values, in whose place rows are about to lie.
        warps_sync(7, 128 * CONSUMERS);
#endif
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float total = row_add(totals[half]);
            const float whole = total > 0.0f ? 1.0f / total : 0.0f;
            const float log_sum =
                total > 0.0f ? maxima[half] * scale + log2f(total) : -HALF_INFINITY;
#if JOINED_HERE
            const int in = warp * 16 + lane / 4 + 8 * half;
            if (lane % 4 == 0) store_shared(queries + 4 * in, log_sum);
            const u32 target = key_stages + ((consumer * 64 + in) * LINE + lane % 4 * 2) * 4;
#pragma unroll
            for (int j = 0; j < HEAD / 8; ++j) {
                store_shared(target + 32 * j, mixed[4 * j + 2 * half] * whole,
                             mixed[4 * j + 2 * half + 1] * whole);
            }
#else
            const int p = row + 8 * half;
            if (p >= rows) continue;
            const i64 head = (i64)(at.query + p / GROUP) * Q_HEADS + kv_head * GROUP + p % GROUP;
#if SPLITS > 1
            const i64 line = (i64)blockIdx.y * total_q * Q_HEADS + head;
            if (lane % 4 == 0) partial_lse[line] = log_sum;
            float* target = partial_out + line * HEAD + lane % 4 * 2;
#pragma unroll
            for (int j = 0; j < HEAD / 8; ++j) {
                *(float2*)(target + 8 * j) = make_float2(mixed[4 * j + 2 * half] * whole,
                                                         mixed[4 * j + 2 * half + 1] * whole);
            }
#else
            if (lane % 4 == 0) lse[head] = log_sum;
            element* target = out + head * HEAD + lane % 4 * 2;
#pragma unroll
            for (int j = 0; j < HEAD / 8; ++j) {
                *(u32*)(target + 8 * j) =
                    pack2(mixed[4 * j + 2 * half] * whole, mixed[4 * j + 2 * half + 1] * whole);
            }
#endif
#endif
        }
#if JOINED_HERE
        cluster_sync();
        join_rows(key_stages, base, at, kv_head, out, lse);
        cluster_sync();                       // nobody leaves while its rows are being read
#endif
    }
}

#if SPLITS > 1 && !JOIN_cluster
// One warp joins the parts of one query head.
extern "C" __global__ void __launch_bounds__(128)
gqa_join(const float* __restrict__ partial_out, const float* __restrict__ partial_lse,
         element* __restrict__ out, float* __restrict__ lse, int heads) {
    const int head = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    wait_for_previous_kernel();
    if (head >= heads) return;
    float logs[SPLITS], highest = -HALF_INFINITY, total = 0.0f;
#pragma unroll
    for (int i = 0; i < SPLITS; ++i) {
        logs[i] = partial_lse[(i64)i * heads + head];
        highest = fmaxf(highest, logs[i]);
    }
    const float shift = highest == -HALF_INFINITY ? 0.0f : highest;
    float sums[HEAD / 32];
#pragma unroll
    for (int j = 0; j < HEAD / 32; ++j) sums[j] = 0.0f;
#pragma unroll
    for (int i = 0; i < SPLITS; ++i) {
        const float weight = exp2_fast(logs[i] - shift);
        total += weight;
        const float* from = partial_out + ((i64)i * heads + head) * HEAD + lane * (HEAD / 32);
#pragma unroll
        for (int j = 0; j < HEAD / 32; ++j) sums[j] += weight * from[j];
    }
    const float whole = total > 0.0f ? 1.0f / total : 0.0f;
    element* target = out + (i64)head * HEAD + lane * (HEAD / 32);
#pragma unroll
    for (int j = 0; j < HEAD / 32; j += 2) {
        *(u32*)(target + j) = pack2(sums[j] * whole, sums[j + 1] * whole);
    }
    if (lane == 0) lse[head] = total > 0.0f ? shift + log2f(total) : -HALF_INFINITY;
}
#endif
