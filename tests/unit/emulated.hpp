// What the packaged CUDA sources of experts stand on, for a host's compiler: their kernels run on
// a CPU, block after block, every thread a context of its own that yields where a thread waits.
// Stands in for device.cuh, copy_engine.cuh, matrices.cuh, warpgroup.cuh and products.cuh.
//
// Copies by the engine arrive at once; what it writes out is read as late as it may be. Clusters of
// SHARE blocks run together, from the last to the first, so that none can mend what one behind it
// has spoilt. Where no thread can go on, the process ends with a line that says so; so it does
// where a copy into another block comes before that one has read what lay there, as the barriers'
// bytes then do not add up.

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <vector>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef unsigned long long u64;
typedef long long i64;
typedef u16 element;

#define DEVICE inline
#define __global__
#define __grid_constant__
#define __shared__ static
#define __restrict__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
using std::min;

struct float2 { float x, y; };
struct uint4 { u32 x, y, z, w; };
struct Index { int x; };
static float2 make_float2(float x, float y) { return {x, y}; }
static uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
#define __expf expf
static float __fdividef(float x, float y) { return x / y; }
static Index threadIdx, blockIdx, gridDim;

// ---- elements (bfloat16)

static float wide(u16 value) {
    const u32 bits = (u32)value << 16;
    float found;
    memcpy(&found, &bits, 4);
    return found;
}
static u16 narrow(float value) {
    u32 bits;
    memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (u16)(bits + 0x7fffu + (bits >> 16 & 1) >> 16);
}
static u32 pack2(float low, float high) { return narrow(low) | (u32)narrow(high) << 16; }
static float2 unpack2(u32 packed) { return {wide((u16)packed), wide((u16)(packed >> 16))}; }
[[maybe_unused]] static float to_float(element value) { return wide(value); }
[[maybe_unused]] static element to_element(float value) { return narrow(value); }

// ---- threads

namespace emulated {

struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    bool done;
};
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static int current, alive;
static int threads_each, first_block;            // of a block; of the cluster that runs
static u64 events;                   // whatever may let another thread go on
static std::function<void()> body;
static const u32 WINDOW = 256 << 10;
static const int MOST_BLOCKS = 4;                // of a cluster
alignas(1024) static u8 shared[WINDOW * MOST_BLOCKS];

static int rank() { return current / threads_each; }
static void become() {
    threadIdx.x = current % threads_each;
    blockIdx.x = first_block + rank();
}
// Addresses are a block's own; those of another block lie windows further on.
static u32 whole(u32 at) { return at < WINDOW ? rank() * WINDOW + at : at - WINDOW; }
static u8* bytes_at(u32 at) { return shared + whole(at); }

static void yield() {
    swapcontext(&fibers[current].context, &scheduler);
    become();
}

[[noreturn]] static void give_up(const char* why) {
    fprintf(stderr, "emulated: %s\n", why);
    _Exit(3);
}

static void entry() {
    become();
    body();
    fibers[current].done = true;
    --alive, ++events;
    setcontext(&scheduler);
}

// So many threads meet; the last one does what they meet for.
struct Meeting {
    int here = 0;
    u64 number = 0;
    std::vector<void*> brought = std::vector<void*>(4096);
};
static std::map<int, Meeting> meetings;

static void meet(int key, int place, int threads, void* mine,
                 const std::function<void(std::vector<void*>&)>& act) {
    Meeting& meeting = meetings[key < 0 ? key : key + 10000 * rank()];
    meeting.brought[place] = mine;
    if (++meeting.here == threads) {
        act(meeting.brought);
        meeting.here = 0;
        ++meeting.number, ++events;
        return;
    }
    for (const u64 number = meeting.number; meeting.number == number;) yield();
}

static void nothing(std::vector<void*>&) {}

// Meetings of a warp, of a warpgroup, of numbered barriers, of the block.
static void warp(void* mine, const std::function<void(std::vector<void*>&)>& act) {
    meet(1000 + threadIdx.x / 32, threadIdx.x % 32, 32, mine, act);
}

struct Barrier { int arrivals, missing; i64 bytes; u32 phase; };
static std::map<u32, Barrier> barriers;

static void settle(Barrier& barrier) {
    if (barrier.missing < 0) give_up("more arrivals than a barrier has");
    if (barrier.missing || barrier.bytes) return;
    barrier.phase ^= 1, barrier.missing = barrier.arrivals, ++events;
}

static std::map<int, std::vector<std::vector<std::function<void()>>>> stores;   // by thread: groups

static void run_cluster(int threads, int blocks) {
    threads_each = threads;
    fibers.resize(threads * blocks);
    meetings.clear(), barriers.clear(), stores.clear();
    memset(shared, 0xff, sizeof shared);
    for (auto& fiber : fibers) {
        if (!fiber.stack) fiber.stack.reset(new char[64 << 10]);
        fiber.done = false;
        getcontext(&fiber.context);
        fiber.context.uc_stack = {fiber.stack.get(), 0, 64 << 10};
        makecontext(&fiber.context, entry, 0);
    }
    for (alive = threads * blocks; alive;) {
        const u64 seen = events;
        for (current = 0; current < threads * blocks; ++current) {
            if (!fibers[current].done) swapcontext(&scheduler, &fibers[current].context);
        }
        if (events == seen) give_up("every thread waits");
    }
    for (auto& [thread, groups] : stores) {
        for (auto& group : groups) for (auto& store : group) store();
    }
}

static void launch(int blocks, int threads, int cluster, std::function<void()> kernel) {
    body = kernel;
    gridDim.x = blocks;
    if (blocks % cluster || cluster > MOST_BLOCKS) give_up("no such cluster");
    for (first_block = blocks; (first_block -= cluster) >= 0;) run_cluster(threads, cluster);
}

// An argument: the address of a tensor or buffer, as whatever the kernel calls it.
struct Address {
    void* at;
    template <class T> operator T*() const { return (T*)at; }
};

}  // namespace emulated

static void __syncthreads() {
    emulated::meet(0, threadIdx.x, emulated::threads_each, nullptr, emulated::nothing);
}
[[maybe_unused]] static u32 rank_in_cluster() { return emulated::rank(); }
[[maybe_unused]] static void cluster_sync() {
    const int threads = (int)emulated::fibers.size();
    emulated::meet(-1, emulated::current, threads, nullptr, emulated::nothing);
}
[[maybe_unused]] static u32 address_in_block(u32 at, u32 block) {
    return emulated::WINDOW * (block + 1) + at;
}
static void warps_sync(int number, int threads) {
    emulated::meet(number, threadIdx.x % threads, threads, nullptr, emulated::nothing);
}
static int atomicAdd(int* at, int more) { return (*at += more) - more; }

template <class T>
static T shuffled(T value, const std::function<int(int)>& from) {
    T mine[2] = {value, value};
    emulated::warp(mine, [&](std::vector<void*>& all) {
        for (int lane = 0; lane < 32; ++lane) ((T*)all[lane])[1] = *(T*)all[from(lane)];
    });
    return mine[1];
}
template <class T> static T __shfl_sync(u32, T value, int lane) {
    return shuffled<T>(value, [=](int) { return lane; });
}
template <class T> static T __shfl_xor_sync(u32, T value, int mask) {
    return shuffled<T>(value, [=](int lane) { return lane ^ mask; });
}
template <class T> static T __shfl_up_sync(u32, T value, int distance) {
    return shuffled<T>(value, [=](int lane) { return lane >= distance ? lane - distance : lane; });
}

static void wait_for_previous_kernel() {}
static void let_next_kernel_start() {}
template <int registers> static void registers_down() {}
template <int registers> static void registers_up() {}

// ---- shared memory, barriers, copies

static u32 shared_address(const void* at) { return (u32)((const u8*)at - emulated::shared); }
static void barrier_init(u32 at, u32 arrivals) {
    emulated::barriers[emulated::whole(at)] = {(int)arrivals, (int)arrivals, 0, 0};
}
static void barrier_inits_visible() {}
static emulated::Barrier& barrier_at(u32 at) {
    if (!emulated::barriers.count(emulated::whole(at))) emulated::give_up("no barrier lies there");
    return emulated::barriers[emulated::whole(at)];
}
static void barrier_arrive(u32 at) {
    auto& barrier = barrier_at(at);
    --barrier.missing;
    emulated::settle(barrier);
}
[[maybe_unused]] static void barrier_arrive_cluster(u32 at) { barrier_arrive(at); }
static void barrier_expect(u32 at, u32 bytes) {
    barrier_at(at).bytes += bytes;
    barrier_arrive(at);
}
static void barrier_wait(u32 at, u32 parity) {
    while (barrier_at(at).phase == parity) emulated::yield();
}
static void shared_visible_to_engines() {}

struct TensorMap {
    u16* at;
    int columns, rows, box_columns, box_rows;
};
static void prefetch_map(const TensorMap*) {}
static u64 evict_last() { return 0; }
static u64 evict_first() { return 0; }
static u64 evict_normal() { return 0; }
static u32 swizzled(u32 at) { return at ^ (at >> 7 & 7) << 4; }      // over 128 bytes

static void load_box_hinted(u32 target, const TensorMap* map, u32 barrier, int x, int y, u64) {
    if (target % 1024) emulated::give_up("a box begins where its rows would be swizzled otherwise");
    for (int row = 0; row < map->box_rows; ++row) {
        for (int column = 0; column < map->box_columns; ++column) {
            const bool inside = y + row < map->rows && x + column < map->columns;
            const u16 value = inside ? map->at[(i64)(y + row) * map->columns + x + column] : 0;
            memcpy(emulated::bytes_at(swizzled(target + row * 128 + column * 2)), &value, 2);
        }
    }
    auto& there = barrier_at(barrier);
    there.bytes -= map->box_rows * map->box_columns * 2;
    emulated::settle(there);
}
static void load_box_shared(u32 target, const TensorMap* map, u32 barrier, int x, int y, u16 blocks,
                            u64 policy) {
    for (int block = 0; block < 16; ++block) {
        if (!(blocks >> block & 1)) continue;
        if (block >= (int)emulated::fibers.size() / emulated::threads_each) {
            emulated::give_up("no such block in the cluster");
        }
        load_box_hinted(address_in_block(target, block), map, address_in_block(barrier, block), x, y,
                        policy);
    }
}
static std::vector<std::vector<std::function<void()>>>& my_stores() {
    auto& groups = emulated::stores[emulated::current];
    if (groups.empty()) groups.emplace_back();
    return groups;
}
static void store_box(const TensorMap* map, u32 own, int x, int y) {
    const u32 source = address_in_block(own, emulated::rank());  // who writes it out may be another
    my_stores().back().push_back([=] {
        for (int row = 0; row < map->box_rows; ++row) {
            for (int column = 0; column < map->box_columns; ++column) {
                if (y + row >= map->rows || x + column >= map->columns) continue;
                u16* to = map->at + (i64)(y + row) * map->columns + x + column;
                memcpy(to, emulated::bytes_at(swizzled(source + row * 128 + column * 2)), 2);
            }
        }
    });
}
static void stores_commit() { my_stores().emplace_back(); }
template <int pending> static void stores_have_read() {
    auto& groups = my_stores();                 // the last one is not committed yet
    while ((int)groups.size() - 1 > pending) {
        for (auto& store : groups.front()) store();
        groups.erase(groups.begin());
    }
}

// ---- matrices of a warp

static void load_eight(u32 address, u32 (&m)[4], bool turned) {
    struct { u32 address; u32* m; } mine = {address, m};
    using Mine = decltype(mine);
    emulated::warp(&mine, [=](std::vector<void*>& all) {
        for (int lane = 0; lane < 32; ++lane) {
            for (int matrix = 0; matrix < 4; ++matrix) {
                u16 found[2];
                for (int i = 0; i < 2; ++i) {
                    int row = lane / 4, column = lane % 4 * 2 + i;
                    if (turned) std::swap(row, column);
                    const u32 at = ((Mine*)all[matrix * 8 + row])->address + 2 * column;
                    memcpy(&found[i], emulated::bytes_at(at), 2);
                }
                ((Mine*)all[lane])->m[matrix] = found[0] | (u32)found[1] << 16;
            }
        }
    });
}
[[maybe_unused]] static void load_matrices(u32 at, u32 (&m)[4]) { load_eight(at, m, false); }
[[maybe_unused]] static void load_matrices_transposed(u32 at, u32 (&m)[4]) {
    load_eight(at, m, true);
}
[[maybe_unused]] static void store_matrices(u32 address, u32 a, u32 b, u32 c, u32 d) {
    struct { u32 address, m[4]; } mine = {address, {a, b, c, d}};
    using Mine = decltype(mine);
    emulated::warp(&mine, [](std::vector<void*>& all) {
        for (int lane = 0; lane < 32; ++lane) {
            for (int matrix = 0; matrix < 4; ++matrix) {
                const u32 to = ((Mine*)all[matrix * 8 + lane / 4])->address + lane % 4 * 4;
                memcpy(emulated::bytes_at(to), &((Mine*)all[lane])->m[matrix], 4);
            }
        }
    });
}
[[maybe_unused]] static void multiply_warp(float* d, const u32 (&a)[4], u32 b0, u32 b1) {
    struct { float* d; const u32* a; u32 b[2]; } mine = {d, a, {b0, b1}};
    using Mine = decltype(mine);
    emulated::warp(&mine, [](std::vector<void*>& all) {
        float left[16][16], right[16][8];
        for (int lane = 0; lane < 32; ++lane) {
            auto& one = *(Mine*)all[lane];
            for (int i = 0; i < 4; ++i) {
                const float2 pair = unpack2(one.a[i]);
                float* to = &left[lane / 4 + i % 2 * 8][lane % 4 * 2 + i / 2 * 8];
                to[0] = pair.x, to[1] = pair.y;
            }
            for (int i = 0; i < 2; ++i) {
                const float2 pair = unpack2(one.b[i]);
                right[lane % 4 * 2 + i * 8][lane / 4] = pair.x;
                right[lane % 4 * 2 + i * 8 + 1][lane / 4] = pair.y;
            }
        }
        for (int lane = 0; lane < 32; ++lane) {
            for (int i = 0; i < 4; ++i) {
                float& sum = ((Mine*)all[lane])->d[i];
                for (int k = 0; k < 16; ++k) {
                    sum += left[lane / 4 + i / 2 * 8][k] * right[k][lane % 4 * 2 + i % 2];
                }
            }
        }
    });
}

// ---- products of a warpgroup: factors by descriptor, as warpgroup.cuh makes them

#if PRODUCTS_warpgroup
static void products_begin() {}
static void products_commit() {}
template <int pending> static void products_wait() {}
static u64 rows_of_128_bytes(u32 address) { return address >> 4; }
static u64 columns_of_128_bytes(u32 address, u32 box_bytes) {
    return (u64)(address >> 4) | (u64)box_bytes << 32;
}
static float factor_at(u64 factor, bool across, int wide_place, int depth) {
    const u32 begin = (u32)factor << 4, box_bytes = (u32)(factor >> 32);
    const u32 at = across ? begin + wide_place / 64 * box_bytes + depth * 128 + wide_place % 64 * 2
                          : begin + wide_place * 128 + depth * 2;
    u16 found;
    memcpy(&found, emulated::bytes_at(swizzled(at)), 2);
    return wide(found);
}
template <int count> static void hold(float (&)[count]) {}
template <int count> static void multiply(float (&d)[count], u64 left, u64 right) {
    struct { float* d; u64 left, right; } mine = {d, left, right};
    using Mine = decltype(mine);
    emulated::meet(2000 + threadIdx.x / 128, threadIdx.x % 128, 128, &mine,
                   [](std::vector<void*>& all) {
        const auto& one = *(Mine*)all[0];
        const int width = count * 2;
        std::vector<float> a(64 * 16), b(16 * width);
        for (int k = 0; k < 16; ++k) {
            for (int m = 0; m < 64; ++m) a[m * 16 + k] = factor_at(one.left, LEFT_ACROSS, m, k);
            for (int n = 0; n < width; ++n) b[k * width + n] = factor_at(one.right, RIGHT_ACROSS, n, k);
        }
        for (int thread = 0; thread < 128; ++thread) {
            float* d = ((Mine*)all[thread])->d;
            for (int i = 0; i < count; ++i) {
                const int row = thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8;
                const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
                for (int k = 0; k < 16; ++k) d[i] += a[row * 16 + k] * b[k * width + column];
            }
        }
    });
}
#endif
