// What the packaged CUDA sources of experts stand on, for a host's compiler: their kernels run on
// a CPU, block after block, every thread a context of its own that yields where a thread waits.
// Stands in for device.cuh, copy_engine.cuh, matrices.cuh, warpgroup.cuh and products.cuh.
//
// What is asynchronous on a GPU is so here, by dice of a seed: copies of the engine arrive some turns
// after they were asked for and in any order, a warpgroup's products are made when they are committed
// or not before they are waited for, what the engine writes out is read as late as it may be, threads
// run in changing order and a block at times not at all. Clusters of SHARE blocks run together, from the last to the first, so that
// none can mend what one behind it has spoilt.
//
// The process ends with a line where no thread can go on; where a barrier's bytes or arrivals do not
// add up, or a phase of one is never completed; where a block is written to or told after it has left,
// or leaves while the engine still reads its memory or products were not waited for; and where the
// engine reads what no fence has shown it.

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
#include <random>
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

static std::mt19937 dice;

static int rank() { return current / threads_each; }
static void become() {
    threadIdx.x = current % threads_each;
    blockIdx.x = first_block + rank();
}
// Addresses are a block's own; those of another block lie windows further on.
static u32 whole(u32 at) { return at < WINDOW ? rank() * WINDOW + at : at - WINDOW; }

static void yield() {
    swapcontext(&fibers[current].context, &scheduler);
    become();
}

[[noreturn]] static void give_up(const char* why) {
    fprintf(stderr, "emulated: %s\n", why);
    _Exit(3);
}

static std::vector<int> threads_left;            // of each block of the cluster

// Where an address lies; nobody may reach into a block that has left.
static u32 held(u32 at) {
    const u32 found = whole(at);
    if (found / WINDOW >= threads_left.size()) give_up("no such block in the cluster");
    if (!threads_left[found / WINDOW]) give_up("a block is reached into after it has left");
    return found;
}
static u8* bytes_at(u32 at) { return shared + held(at); }

struct Copy { u32 rank; std::function<void()> land; };
static std::vector<Copy> copies;                 // that were asked for and have not arrived

static void land(size_t which) {
    const auto copy = copies[which];
    copies.erase(copies.begin() + which);
    copy.land();
    ++events;
}

static void leave();

static void entry() {
    become();
    body();
    leave();
    fibers[current].done = true;
    --alive, --threads_left[rank()], ++events;
    for (const Copy& copy : copies) {
        if (!threads_left[copy.rank]) give_up("a block leaves before what is copied to it is there");
    }
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
    if (std::abs(barrier.bytes) >= 1 << 20) give_up("more bytes than a barrier counts");
    if (barrier.missing || barrier.bytes) return;
    barrier.phase ^= 1, barrier.missing = barrier.arrivals, ++events;
}

static std::map<int, std::vector<std::vector<std::function<void()>>>> stores;   // by thread: groups

struct Product { float* sums; int count; u64 left, right; };
static std::vector<std::vector<std::vector<Product>>> products;    // by thread: groups, one is open

// By whom bytes were stored, plus one, that the engine does not see yet; what a thread stored so.
static std::vector<int> unseen;
static std::vector<std::vector<u32>> stored;

static void leave() {
    if (stores.count(current)) {
        for (auto& group : stores[current]) {
            if (!group.empty()) give_up("a block leaves while the engine reads its memory");
        }
    }
    for (auto& group : products[current]) {
        if (!group.empty()) give_up("products were begun and never waited for");
    }
}

static void run_cluster(int threads, int blocks) {
    threads_each = threads;
    fibers.resize(threads * blocks);
    meetings.clear(), barriers.clear(), stores.clear();
    threads_left.assign(blocks, threads);
    products.assign(threads * blocks, {{}}), stored.assign(threads * blocks, {});
    unseen.assign(WINDOW * blocks, 0);
    memset(shared, 0xff, sizeof shared);
    for (auto& fiber : fibers) {
        if (!fiber.stack) fiber.stack.reset(new char[64 << 10]);
        fiber.done = false;
        getcontext(&fiber.context);
        fiber.context.uc_stack = {fiber.stack.get(), 0, 64 << 10};
        makecontext(&fiber.context, entry, 0);
    }
    int held_back = 0, turns = 0;                // a block, and for how many turns it rests
    for (alive = threads * blocks; alive; --turns) {
        const u64 seen = events;
        if (turns <= 0 && blocks > 1 && dice() % 16 == 0) held_back = dice() % blocks, turns = 64;
        const int first = dice() % fibers.size();
        for (size_t i = 0; i < fibers.size(); ++i) {
            current = (first + i) % fibers.size();
            if (fibers[current].done || turns > 0 && rank() == held_back) continue;
            swapcontext(&scheduler, &fibers[current].context);
        }
        for (size_t i = copies.size(); i-- > 0;) {
            if (dice() % 2) land(dice() % copies.size());
        }
        if (events != seen) continue;
        if (!copies.empty()) {
            land(dice() % copies.size());
        } else if (turns > 0) {
            turns = 0;
        } else {
            give_up("every thread waits");
        }
    }
    for (auto& [place, barrier] : barriers) {
        if (barrier.bytes) give_up("not as many bytes came as a barrier was told");
        if (barrier.missing != barrier.arrivals) give_up("a barrier's phase was never completed");
    }
}

extern "C" void emulated_seed(unsigned seed) { dice.seed(seed); }

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
    const auto found = emulated::barriers.find(emulated::held(at));
    if (found == emulated::barriers.end()) emulated::give_up("no barrier lies there");
    return found->second;
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
static void shared_visible_to_engines() {
    for (u32 at : emulated::stored[emulated::current]) {
        int& by = emulated::unseen[at];
        if (by == emulated::current + 1) by = 0;
    }
    emulated::stored[emulated::current].clear();
}

struct TensorMap {
    u16* at;
    int columns, rows, box_columns, box_rows;
};
static void prefetch_map(const TensorMap*) {}
static u64 evict_last() { return 0; }
static u64 evict_first() { return 0; }
static u64 evict_normal() { return 0; }
static u32 swizzled(u32 at) { return at ^ (at >> 7 & 7) << 4; }      // over 128 bytes

static void box_arrives(u32 target, const TensorMap* map, u32 barrier, int x, int y) {
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
                            u64) {
    if (target % 1024) emulated::give_up("a box begins where its rows would be swizzled otherwise");
    for (u32 block = 0; block < 16; ++block) {
        if (!(blocks >> block & 1)) continue;
        const u32 to = address_in_block(target, block), told = address_in_block(barrier, block);
        barrier_at(told);                         // the block is there, and so is its barrier
        emulated::copies.push_back({block, [=] { box_arrives(to, map, told, x, y); }});
    }
}
static void load_box_hinted(u32 target, const TensorMap* map, u32 barrier, int x, int y, u64 policy) {
    load_box_shared(target, map, barrier, x, y, (u16)(1 << emulated::rank()), policy);
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
                const u32 at = swizzled(source + row * 128 + column * 2);
                if (emulated::unseen[emulated::held(at)]) {
                    emulated::give_up("the engine reads what no fence has shown it");
                }
                memcpy(to, emulated::bytes_at(at), 2);
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
                const int by = emulated::current / 32 * 32 + lane;
                for (u32 i = 0; i < 4; ++i) {
                    emulated::unseen[emulated::held(to) + i] = by + 1;
                    emulated::stored[by].push_back(emulated::held(to) + i);
                }
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
    emulated::products[emulated::current].back().push_back({d, count, left, right});
}
// Makes what a warpgroup has committed, but for the last so many groups.
static void make_products(size_t pending) {
    const int first = emulated::current / 128 * 128;
    while (emulated::products[first].size() - 1 > pending) {
        for (size_t i = 0; i < emulated::products[first][0].size(); ++i) {
            const auto one = emulated::products[first][0][i];
            const int width = one.count * 2;
            std::vector<float> a(64 * 16), b(16 * width);
            for (int k = 0; k < 16; ++k) {
                for (int m = 0; m < 64; ++m) a[m * 16 + k] = factor_at(one.left, LEFT_ACROSS, m, k);
                for (int n = 0; n < width; ++n) b[k * width + n] = factor_at(one.right, RIGHT_ACROSS, n, k);
            }
            for (int thread = 0; thread < 128; ++thread) {
                float* d = emulated::products[first + thread].at(0).at(i).sums;
                for (int i = 0; i < one.count; ++i) {
                    const int row = thread / 32 * 16 + thread % 32 / 4 + i % 4 / 2 * 8;
                    const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
                    for (int k = 0; k < 16; ++k) d[i] += a[row * 16 + k] * b[k * width + column];
                }
            }
        }
        for (int thread = 0; thread < 128; ++thread) {
            auto& groups = emulated::products[first + thread];
            groups.erase(groups.begin());
        }
    }
}
static void meet_for_products(const std::function<void()>& act) {
    emulated::meet(2000 + threadIdx.x / 128, threadIdx.x % 128, 128, nullptr,
                   [&](std::vector<void*>&) { act(); });
}
static void products_begin() {}
static void products_commit() {
    emulated::products[emulated::current].emplace_back();
    meet_for_products([] { if (emulated::dice() % 2) make_products(0); });
}
template <int pending> static void products_wait() {
    meet_for_products([] { make_products(pending); });
}
#endif
