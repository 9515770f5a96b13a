// summed = x + residual, or x alone; y = summed / sqrt(mean(summed^2) + epsilon) * weight, row by row.
//
// A team of warps holds a row in registers between the two passes, so device memory is read and
// written once. Long rows can be spread over the blocks of a cluster, which exchange their partial
// sums through shared memory. With PATH_engine rows arrive by bulk copies, STAGES rows ahead.
//
// Genes (macros): VEC_BYTES, WARPS, TEAMS, CLUSTER, PATH_registers|engine, STAGES, BLOCKS_PER_SM,
// LOAD_plain|stream|no_allocate|leave, STORE_plain|stream, WEIGHT_EARLY, ROUNDED, MAX_REGISTERS,
// MIN_BLOCKS, PDL.
// The job: DTYPE_*, HIDDEN, ADD_RESIDUAL (otherwise nothing is read through `residual`), WRITE_SUM.

#include "device.cuh"
#include "copy_engine.cuh"

#define ROW_THREADS (WARPS * 32)
#define THREADS (ROW_THREADS * TEAMS)
#define VECTOR (VEC_BYTES / ELEMENT_BYTES)
#define ROW_VECTORS (HIDDEN / VECTOR)
#define STEP (ROW_THREADS * CLUSTER)
#define HELD ((ROW_VECTORS + STEP - 1) / STEP)
#define EVEN (ROW_VECTORS % STEP == 0)
#define ROW_BYTES (HIDDEN * ELEMENT_BYTES)
#define PART_BYTES (ROW_BYTES / CLUSTER)
#define STAGE_BYTES ((1 + ADD_RESIDUAL) * PART_BYTES)

#if VEC_BYTES == 16
typedef uint4 Raw;
#elif VEC_BYTES == 8
typedef uint2 Raw;
#elif VEC_BYTES == 4
typedef u32 Raw;
#else
typedef u16 Raw;
#endif

DEVICE Raw load(const Raw* from, u64 policy) {
#if LOAD_stream
    return __ldcs(from);
#elif LOAD_leave && VEC_BYTES == 16
    Raw raw;
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(raw.x), "=r"(raw.y), "=r"(raw.z), "=r"(raw.w) : "l"(from), "l"(policy));
    return raw;
#elif LOAD_no_allocate && VEC_BYTES == 16
    Raw raw;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(raw.x), "=r"(raw.y), "=r"(raw.z), "=r"(raw.w) : "l"(from));
    return raw;
#elif LOAD_no_allocate && VEC_BYTES == 8
    Raw raw;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(raw.x), "=r"(raw.y) : "l"(from));
    return raw;
#else
    return __ldg(from);
#endif
}

DEVICE void store(Raw* to, Raw raw) {
#if STORE_stream
    __stcs(to, raw);
#else
    *to = raw;
#endif
}

DEVICE void unpack(Raw raw, float (&values)[VECTOR]) {
#if VEC_BYTES == 2
    values[0] = to_float(raw);
#else
    u32 words[VEC_BYTES / 4];
    *(Raw*)words = raw;
#pragma unroll
    for (int i = 0; i < VEC_BYTES / 4; ++i) {
#if DTYPE_float32
        values[i] = __uint_as_float(words[i]);
#else
        const float2 pair = unpack2(words[i]);
        values[2 * i] = pair.x, values[2 * i + 1] = pair.y;
#endif
    }
#endif
}

DEVICE Raw pack(const float (&values)[VECTOR]) {
#if VEC_BYTES == 2
    return to_element(values[0]);
#else
    u32 words[VEC_BYTES / 4];
#pragma unroll
    for (int i = 0; i < VEC_BYTES / 4; ++i) {
#if DTYPE_float32
        words[i] = __float_as_uint(values[i]);
#else
        words[i] = pack2(values[2 * i], values[2 * i + 1]);
#endif
    }
    return *(Raw*)words;
#endif
}

DEVICE void team_sync(int team) {
#if TEAMS == 1
    __syncthreads();
#else
    warps_sync(1 + team, ROW_THREADS);
#endif
}

// The sum over a row's team, and over the cluster; `turn` says which of two places to use.
DEVICE float row_sum(float value, float* places, u32 exchange, int team, u32 turn) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, distance);
    }
#if WARPS > 1
    float* mine = places + ((turn & 1) * TEAMS + team) * WARPS;
    if (threadIdx.x % 32 == 0) mine[threadIdx.x % ROW_THREADS / 32] = value;
    team_sync(team);
    value = 0.0f;
#pragma unroll
    for (int i = 0; i < WARPS; ++i) value += mine[i];
#endif
#if CLUSTER > 1
    // Every block sends its sum to all, which wait for as many bytes as there are senders. A place
    // is written again two rows later: its sender has then heard from this block about the next.
    const u32 slots = shared_address(places + 2 * TEAMS * WARPS) + (turn & 1) * (4 * CLUSTER);
    const u32 heard = exchange + 8 * (turn & 1);
    if (turn == 0) cluster_wait();      // no block is written to before it has begun
    if (threadIdx.x == 0) barrier_expect(heard, 4 * CLUSTER);
    if (threadIdx.x < CLUSTER) {
        const u32 to = address_in_block(slots + 4 * rank_in_cluster(), threadIdx.x);
        asm volatile(
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
            ::"r"(to), "r"(__float_as_uint(value)), "r"(address_in_block(heard, threadIdx.x))
            : "memory");
    }
    barrier_wait(heard, turn >> 1 & 1);
    value = 0.0f;
#pragma unroll
    for (int i = 0; i < CLUSTER; ++i) {
        float part;
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(part) : "r"(slots + 4 * i) : "memory");
        value += part;
    }
#endif
    return value;
}

#if PATH_engine
DEVICE void fetch_row(u32 target, const element* from, u32 barrier, u64 policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1], %2, [%3], %4;"
        ::"r"(target), "l"(from), "r"(PART_BYTES), "r"(barrier), "l"(policy) : "memory");
}
#endif

#if CLUSTER > 1
#define CLUSTER_SHAPE __cluster_dims__(CLUSTER, 1, 1)
#else
#define CLUSTER_SHAPE
#endif

extern "C" __global__ void CLUSTER_SHAPE BOUNDS
add_rmsnorm(const element* __restrict__ x, const element* __restrict__ residual,
            const element* __restrict__ weight, element* __restrict__ y,
            element* __restrict__ summed, int rows, float epsilon) {
    __shared__ float places[2 * TEAMS * WARPS + 2 * CLUSTER];
#if CLUSTER > 1
    __shared__ __align__(8) u64 exchanged[2];
    const u32 exchange = shared_address(exchanged);
#else
    const u32 exchange = 0;
#endif
#if PATH_engine
    extern __shared__ __align__(128) u8 shared_bytes[];
    __shared__ __align__(8) u64 arrived[STAGES];
    const u32 stages = shared_address(shared_bytes);
    const u32 barriers = shared_address(arrived);
#endif
    const int team = threadIdx.x / ROW_THREADS;
#if CLUSTER > 1
    const int rank = rank_in_cluster();
#else
    const int rank = 0;
#endif
    // Vectors of a row go round the threads; with the engine a block takes a contiguous part.
    const int thread = threadIdx.x % ROW_THREADS;
#if PATH_engine
    const int first = rank * (ROW_VECTORS / CLUSTER) + thread;
    const int stride = ROW_THREADS;
    const int end = (rank + 1) * (ROW_VECTORS / CLUSTER);
#else
    const int first = rank * ROW_THREADS + thread;
    const int stride = STEP;
    const int end = ROW_VECTORS;
#endif
#if LOAD_leave
    const u64 policy = evict_first();         // nothing reads a row twice
#else
    const u64 policy = evict_normal();
#endif
    const int row_step = gridDim.x / CLUSTER * TEAMS;
    int row = blockIdx.x / CLUSTER * TEAMS + team;
    u32 turn = 0;

#if PATH_engine
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) barrier_init(barriers + 8 * i, 1);
        barrier_inits_visible();
    }
    __syncthreads();
#endif
#if CLUSTER > 1
    if (threadIdx.x == 0) {
        barrier_init(exchange, 1);
        barrier_init(exchange + 8, 1);
        barrier_inits_visible();
    }
    __syncwarp();
    cluster_arrive();
    if (row >= rows) cluster_wait();
#endif
    wait_for_previous_kernel();
#if PATH_engine
    const i64 part = (i64)rank * (HIDDEN / CLUSTER);
    auto fetch = [&](int which, u32 stage) {
        if (which >= rows) return;
        barrier_expect(barriers + 8 * stage, STAGE_BYTES);
        const i64 at = (i64)which * HIDDEN + part;
        fetch_row(stages + stage * STAGE_BYTES, x + at, barriers + 8 * stage, policy);
#if ADD_RESIDUAL
        fetch_row(stages + stage * STAGE_BYTES + PART_BYTES, residual + at,
                  barriers + 8 * stage, policy);
#endif
    };
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) fetch(row + i * row_step, i);
    }
#endif
#if WEIGHT_EARLY
    Raw weights[HELD];
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
        const int vector = first + i * stride;
        if (EVEN || vector < end) weights[i] = __ldg((const Raw*)weight + vector);
    }
#endif

    for (; row < rows; row += row_step, ++turn) {
        const i64 base = (i64)row * ROW_VECTORS;
        Raw left[HELD];
#if ADD_RESIDUAL
        Raw right[HELD];
#endif
#if PATH_engine
        const u32 stage = turn % STAGES;
        barrier_wait(barriers + 8 * stage, turn / STAGES & 1);
        const Raw* from = (const Raw*)(shared_bytes + stage * STAGE_BYTES);
#pragma unroll
        for (int i = 0; i < HELD; ++i) {
            const int vector = thread + i * stride;
            if (EVEN || first + i * stride < end) {
                left[i] = from[vector];
#if ADD_RESIDUAL
                right[i] = from[ROW_VECTORS / CLUSTER + vector];
#endif
            }
        }
#else
#pragma unroll
        for (int i = 0; i < HELD; ++i) {
            const int vector = first + i * stride;
            if (EVEN || vector < end) {
                left[i] = load((const Raw*)x + base + vector, policy);
#if ADD_RESIDUAL
                right[i] = load((const Raw*)residual + base + vector, policy);
#endif
            }
        }
#endif
        float sums[HELD][VECTOR];
        float squares = 0.0f;
#pragma unroll
        for (int i = 0; i < HELD; ++i) {
            const int vector = first + i * stride;
            if (EVEN || vector < end) {
                unpack(left[i], sums[i]);
#if ADD_RESIDUAL
                float more[VECTOR];
                unpack(right[i], more);
#pragma unroll
                for (int j = 0; j < VECTOR; ++j) sums[i][j] += more[j];
#endif
#if WRITE_SUM || ROUNDED
                const Raw packed = pack(sums[i]);
#endif
#if WRITE_SUM
                store((Raw*)summed + base + vector, packed);
#endif
#if ROUNDED
                unpack(packed, sums[i]);
#endif
#pragma unroll
                for (int j = 0; j < VECTOR; ++j) squares += sums[i][j] * sums[i][j];
            }
        }
        const float total = row_sum(squares, places, exchange, team, turn);
#if PATH_engine
        // Everybody has read this stage: the sum went through a barrier.
        if (threadIdx.x == 0) fetch(row + STAGES * row_step, stage);
#endif
        const float scale = rsqrtf(total * (1.0f / HIDDEN) + epsilon);
#pragma unroll
        for (int i = 0; i < HELD; ++i) {
            const int vector = first + i * stride;
            if (EVEN || vector < end) {
                float factor[VECTOR];
#if WEIGHT_EARLY
                unpack(weights[i], factor);
#else
                unpack(__ldg((const Raw*)weight + vector), factor);
#endif
#pragma unroll
                for (int j = 0; j < VECTOR; ++j) factor[j] *= sums[i][j] * scale;
                store((Raw*)y + base + vector, pack(factor));
            }
        }
    }
    let_next_kernel_start();
}
