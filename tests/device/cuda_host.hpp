// Runs the text of a CUDA kernel on this machine's processor: every thread a fiber, PTX by function.
//
// What is asynchronous on a GPU happens late here: copies some turns of the scheduler after they were
// asked for, products when they are waited for. Shared memory starts as NaNs. A run in which no fiber
// can go on is a deadlock and says who waits. Order of fibers by a seed; of a cluster, a block at times
// rests. Nobody may reach into a block that has left.
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __align__(bytes) alignas(bytes)
#define threadIdx (host::fiber().thread)
#define blockIdx (host::fiber().home->index)
#define gridDim (host::grid_of_launch)

struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct float2 { float x, y; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }

namespace host {

[[noreturn]] inline void fail(const std::string& what) {
    std::fprintf(stderr, "%s\n", what.c_str());
    std::exit(3);
}

struct Index { unsigned x, y, z; };

struct Barrier { int64_t wanted = 0, pending = 0, bytes = 0; uint64_t phase = 0; };
struct Meeting { int arrived = 0, wanted = 0; uint64_t phase = 0; };

struct Product {
    int width, held, fresh, left_across, right_across;
    float* sums;
    uint32_t a[4];
    uint64_t left, right;
};

struct Cluster;

struct Block {
    Index index;
    unsigned rank;
    Cluster* cluster;
    unsigned alive = 0;                                    // threads that have not left
    std::vector<uint8_t> memory;                           // what a launch asks for, then fixed arrays
    size_t asked = 0, fixed_from = 0, fixed_until = 0;
    std::vector<Barrier> barriers;
    std::vector<Meeting> named = std::vector<Meeting>(16);
    std::vector<Meeting> warps, groups;
    std::vector<std::vector<uint32_t>> lanes;
    std::vector<unsigned> unseen;                          // bytes that engines do not see yet: by whom
    std::vector<std::vector<std::vector<uint32_t>>> given; // by the lanes of a warp
    std::vector<uint32_t> tensor_memory = std::vector<uint32_t>(128 * 512, 0xffffffffu);
    unsigned first_column = 0, columns = 0;                // taken of it
};

struct Cluster { std::vector<std::unique_ptr<Block>> blocks; Meeting meeting; int alive = 0; };

struct Fiber {
    Index thread;
    unsigned place;
    Block* home;
    ucontext_t context;
    std::vector<uint8_t> stack;
    bool done = false;
    const char* waits = "";
    std::vector<std::function<void()>> late;               // copies, in order
    std::vector<std::vector<Product>> groups = {{}};       // products; the last group is open
    uint64_t cluster_phase = 0;
    std::vector<std::pair<uint32_t, uint32_t>> written;    // since its last fence: where, bytes
    std::vector<std::vector<std::function<void()>>> stores = {{}};  // by groups; the last is open
    unsigned uncommitted = 0;                              // products and copies to tensor memory
};

inline Fiber* running;
inline ucontext_t scheduler;
inline uint64_t progress;
constexpr uint32_t OFFSET = 16, WINDOW = 1u << 24;         // shared memory starts off its alignment

inline Fiber& fiber() { return *running; }
inline Block& block() { return *running->home; }

template <typename Until>
void wait_until(const char* what, Until until) {
    while (!until()) {
        running->waits = what;
        swapcontext(&running->context, &scheduler);
    }
    running->waits = "";
    ++progress;
}

// ---- memory

inline uint8_t* shared(uint32_t address, uint32_t bytes) {
    Block* at = running->home;
    if (address >= WINDOW) {
        at = at->cluster->blocks.at(address / WINDOW - 1).get();
        if (!at->alive) fail("a block is reached into after it has left");
        address %= WINDOW;
    }
    const size_t from = address - OFFSET, until = from + bytes;
    const bool fixed = from >= at->fixed_from && until <= at->fixed_until;
    if (address < OFFSET || (until > at->asked && !fixed)) fail("outside of shared memory");
    if (address % bytes) fail("misaligned in shared memory");
    return at->memory.data() + (address - OFFSET);
}

inline uint8_t* whole_shared() { return block().memory.data(); }

// Arrays whose size is known when compiling: each has a place of its own behind the rest.
constexpr size_t FIXED_ARRAYS = 4, FIXED_BYTES = 4096;
template <typename T> T* fixed_shared(size_t place, size_t count) {
    if (place >= FIXED_ARRAYS || count * sizeof(T) > FIXED_BYTES) fail("no room for a fixed array");
    const size_t from = block().fixed_from + place * FIXED_BYTES;
    block().fixed_until = std::max(block().fixed_until, from + count * sizeof(T));
    return (T*)(whole_shared() + from);
}

inline Index grid_of_launch;

template <typename T> T read_global(const void* from) {
    if ((uint64_t)from % sizeof(T)) fail("misaligned in device memory");
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
}
template <typename T> void write_global(void* to, const T& value) {
    if ((uint64_t)to % sizeof(T)) fail("misaligned in device memory");
    std::memcpy(to, &value, sizeof(T));
}

template <typename T> T load(uint32_t address) {
    T value;
    std::memcpy(&value, shared(address, sizeof(T)), sizeof(T));
    return value;
}
template <typename T> void store(uint32_t address, T value) {
    std::memcpy(shared(address, sizeof(T)), &value, sizeof(T));
    if (address >= WINDOW) return;
    running->written.push_back({address, sizeof(T)});
    std::fill_n(block().unseen.begin() + (address - OFFSET), sizeof(T), running->place + 1);
}

// What a thread stored is seen by copy engine and tensor cores from its fence on.
inline void fence_engines() {
    for (auto [address, bytes] : running->written)
        for (uint32_t i = 0; i < bytes; ++i) {
            unsigned& by = block().unseen[address - OFFSET + i];
            if (by == running->place + 1) by = 0;
        }
    running->written.clear();
}
template <typename T> T load_by_engine(uint32_t address) {
    const T value = load<T>(address);
    for (unsigned i = 0; i < sizeof(T); ++i)
        if (block().unseen[address - OFFSET + i]) fail("an engine reads what no fence has shown it");
    return value;
}

inline uint32_t mapped(uint32_t address, uint32_t rank) {
    if (rank >= block().cluster->blocks.size()) fail("no such block in the cluster");
    return (rank + 1) * WINDOW + address;
}

// ---- barriers in shared memory

inline Barrier& barrier(uint32_t address) {
    auto& all = address < WINDOW ? block().barriers
                                 : block().cluster->blocks.at(address / WINDOW - 1)->barriers;
    const size_t place = load<uint64_t>(address);
    if (place >= all.size()) fail("no barrier lies there");
    return all[place];
}

inline void barrier_init(uint32_t address, uint32_t arrivals) {
    store<uint64_t>(address, block().barriers.size());
    block().barriers.push_back({arrivals, arrivals});
}

inline void next_phase(Barrier& at) {                      // once threads and bytes are all there
    ++progress;
    if (at.pending || at.bytes) return;
    at.pending = at.wanted;
    ++at.phase;
}
inline void arrive_at(Barrier& at) {
    --at.pending;
    next_phase(at);
}
inline void bytes_arrive(Barrier& at, int64_t bytes) {
    at.bytes -= bytes;
    next_phase(at);
}

inline void barrier_arrive(uint32_t address) { arrive_at(barrier(address)); }
inline void barrier_expect(uint32_t address, int64_t bytes) {
    barrier(address).bytes += bytes;
    arrive_at(barrier(address));
}

inline void barrier_wait(uint32_t address, uint32_t parity) {
    wait_until("a barrier in shared memory", [&] { return (barrier(address).phase & 1) != parity; });
}

// ---- barriers of threads

inline bool arrive(Meeting& at, int wanted) {
    if (at.arrived && at.wanted != wanted) fail("threads disagree about a barrier's count");
    at.wanted = wanted;
    ++progress;
    if (++at.arrived < wanted) return false;
    at.arrived = 0;
    ++at.phase;
    return true;
}

inline void meet(Meeting& at, int wanted, const char* what) {
    const uint64_t phase = at.phase;
    arrive(at, wanted);
    wait_until(what, [&] { return at.phase != phase; });
}

inline void bar_sync(int number, int threads) { meet(block().named.at(number), threads, "bar.sync"); }
inline void bar_arrive(int number, int threads) { arrive(block().named.at(number), threads); }
inline int threads_of_block;

inline void cluster_arrive() {
    auto& cluster = *block().cluster;
    running->cluster_phase = cluster.meeting.phase;
    arrive(cluster.meeting, cluster.alive);
}
inline void cluster_wait() {
    wait_until("the cluster", [] { return block().cluster->meeting.phase != running->cluster_phase; });
}

// ---- warps

inline uint32_t exchanged(uint32_t value, int from) {
    const unsigned warp = running->place / 32;
    auto& lanes = block().lanes[warp];
    meet(block().warps[warp], 32, "its warp");
    lanes[running->place % 32] = value;
    meet(block().warps[warp], 32, "its warp");
    return lanes[from & 31];
}
template <typename T> T shuffled(T value, int from) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    bits = exchanged(bits, from);
    std::memcpy(&value, &bits, 4);
    return value;
}
inline unsigned ballot(bool truth) {
    unsigned found = 0;
    exchanged(truth, 0);
    for (int i = 0; i < 32; ++i) found |= (block().lanes[running->place / 32][i] & 1u) << i;
    return found;
}

// ---- copies

inline void fetch(uint32_t target, const void* from, uint32_t bytes) {
    uint8_t* at = shared(target, 16);
    running->late.push_back([=] {
        std::memset(at, 0, 16);
        std::memcpy(at, from, bytes);
    });
}
inline void arrive_after_fetches(uint32_t address) {
    Barrier* at = &barrier(address);
    running->late.push_back([=] { arrive_at(*at); });
}
inline void fetch_row(uint32_t target, const void* from, uint32_t bytes, uint32_t address) {
    if (target % 16 || (uint64_t)from % 16 || bytes % 16) fail("the copy engine moves pieces of 16 bytes");
    uint8_t* to = whole_shared() + (target - OFFSET);
    if (target < OFFSET || target - OFFSET + bytes > block().asked) fail("a copy outside of shared memory");
    Barrier* at = &barrier(address);
    running->late.push_back([=] {
        std::memcpy(to, from, bytes);
        bytes_arrive(*at, bytes);
    });
}
inline void send(uint32_t target, uint32_t word, uint32_t address) {
    uint8_t* to = shared(target, 4);
    Barrier* at = &barrier(address);
    running->late.push_back([=] {
        std::memcpy(to, &word, 4);
        bytes_arrive(*at, 4);
    });
}
inline void fetches_finish(size_t first) {
    auto& late = running->late;
    first = std::min(first, late.size());
    for (size_t i = 0; i < first; ++i) late[i]();
    late.erase(late.begin(), late.begin() + first);
}
inline void fetches_finish() { fetches_finish(running->late.size()); }

// ---- numbers

inline float widened(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
}
inline uint32_t narrowed(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if (value != value) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline uint32_t pack_bfloat16(float high, float low) { return narrowed(high) << 16 | narrowed(low); }
inline uint32_t times_bfloat16(uint32_t a, uint32_t b) {
    return pack_bfloat16(widened(a >> 16) * widened(b >> 16), widened(a) * widened(b));
}
inline float half(uint32_t bits) {
    const float size = std::ldexp((float)(bits & 0x3ff) + ((bits & 0x7c00) ? 1024 : 0),
                                  (int)std::max(1u, bits >> 10 & 31) - 25);
    return bits & 0x8000 ? -size : size;
}
inline uint32_t halved(float value) {                      // exact for the few bits of a code or scale
    const float size = std::fabs(value);
    uint32_t bits = std::signbit(value) ? 0x8000 : 0;
    if (size > 0) {
        const int exponent = std::max(std::ilogb(size), -14);
        const int count = (int)std::ldexp(size, 10 - exponent);
        bits |= count >= 1024 ? (exponent + 15) << 10 | (count - 1024) : count;
    }
    if (half(bits) != value) fail("no half holds that exactly");
    return bits;
}
inline float code(uint32_t bits) {                         // e2m1
    const float size = (bits & 6) ? std::ldexp(1.0f + (bits & 1) * 0.5f, (int)(bits >> 1 & 3) - 1)
                                  : (bits & 1) * 0.5f;
    return bits & 8 ? -size : size;
}
inline float scale(uint32_t bits) {                        // e4m3
    const float size = std::ldexp((float)(bits & 7) + ((bits & 0x78) ? 8 : 0),
                                  (int)std::max(1u, bits >> 3 & 15) - 10);
    return bits & 0x80 ? -size : size;
}
inline uint32_t halves_of_codes(uint32_t byte) { return halved(code(byte >> 4 & 15)) << 16 | halved(code(byte)); }
inline uint32_t halves_of_scales(uint32_t pair) {
    return halved(scale(pair >> 8 & 255)) << 16 | halved(scale(pair & 255));
}

// ---- matrices of a warp

inline const std::vector<std::vector<uint32_t>>& given_by_warp(std::vector<uint32_t> words) {
    const unsigned warp = running->place / 32;
    meet(block().warps[warp], 32, "its warp");
    block().given[warp][running->place % 32] = std::move(words);
    meet(block().warps[warp], 32, "its warp");
    return block().given[warp];
}
inline void load_matrices(uint32_t address, bool across, std::vector<uint32_t*> to) {
    const unsigned lane = running->place % 32;
    const auto given = given_by_warp({address});
    for (int matrix = 0; matrix < 4; ++matrix) {
        *to[matrix] = 0;
        for (unsigned i = 0; i < 2; ++i) {
            const unsigned row = across ? lane % 4 * 2 + i : lane / 4, column = across ? lane / 4 : lane % 4 * 2 + i;
            *to[matrix] |= (uint32_t)load<uint16_t>(given[8 * matrix + row][0] + 2 * column) << 16 * i;
        }
    }
    meet(block().warps[running->place / 32], 32, "its warp");   // nobody's loads were overtaken
}
inline void store_matrices(uint32_t address, std::vector<uint32_t> words) {
    const unsigned lane = running->place % 32;
    words.push_back(address);
    const auto given = given_by_warp(words);
    for (int matrix = 0; matrix < 4; ++matrix)
        store<uint32_t>(given[8 * matrix + lane / 4][4] + 4 * (lane % 4), words[matrix]);
}
inline void multiply_warp(std::vector<float*> sums, std::vector<uint32_t> factors) {
    const unsigned lane = running->place % 32;
    const auto given = given_by_warp(factors);
    for (unsigned i = 0; i < 4; ++i) {
        const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        for (unsigned k = 0; k < 16; ++k) {
            const unsigned from = k % 8 / 2, shift = k % 2 * 16;
            const uint32_t left = given[row % 8 * 4 + from][row / 8 + k / 8 * 2];
            const uint32_t right = given[column * 4 + from][4 + k / 8];
            *sums[i] += widened(left >> shift) * widened(right >> shift);
        }
    }
}

// ---- the copy engine's stores, which read shared memory as late as they may

struct Map { uint64_t address, extents[3], strides[2], box[3], swizzle; };

inline void store_plane(const void* opaque, uint32_t source, int x, int y, int z) {
    const Map map = *(const Map*)opaque;
    if (map.swizzle != 128 || map.box[0] != 64 || source % 1024) fail("not a box of swizzled rows");
    running->stores.back().push_back([=] {
        for (unsigned row = 0; row < map.box[1]; ++row)
            for (int column = 0; column < 64; ++column) {
                const uint32_t at = source + row * 128 + column * 2;
                const uint16_t value = load_by_engine<uint16_t>(at ^ (at >> 7 & 7) << 4);
                if (x + column >= (int64_t)map.extents[0] || y + row >= map.extents[1]) continue;
                if (z >= (int64_t)map.extents[2]) continue;
                const uint64_t place = map.address + z * map.strides[1] + (y + row) * map.strides[0];
                std::memcpy((uint8_t*)place + (x + column) * 2, &value, 2);
            }
    });
}
inline void stores_commit() { running->stores.emplace_back(); }
inline void stores_have_read(size_t pending) {
    while (running->stores.size() > pending + 1) {
        for (auto& each : running->stores[0]) each();
        running->stores.erase(running->stores.begin());
    }
}

// ---- tensor memory, and products that one thread asks for: done in order, some turns later

inline void columns_take(uint32_t where, unsigned columns) {
    meet(block().warps[running->place / 32], 32, "its warp");
    if (running->place % 32) return;
    if (columns < 32 || columns > 512 || columns & (columns - 1)) fail("so many columns cannot be taken");
    if (block().columns) fail("columns are taken twice");
    block().columns = columns;
    block().first_column = 512 - columns;                  // seldom the first ones
    store<uint32_t>(where, block().first_column);
}
inline void columns_give_back(uint32_t address, unsigned columns) {
    meet(block().warps[running->place / 32], 32, "its warp");
    if (running->place % 32) return;
    if (columns != block().columns || address != block().first_column) fail("others were taken");
    block().columns = 0;
}
inline uint32_t& cell(unsigned lane, unsigned column) {
    if (lane >= 128 || column < block().first_column || column >= block().first_column + block().columns)
        fail("outside of the columns taken");
    return block().tensor_memory[lane * 512 + column];
}
inline float& sum_at(unsigned lane, unsigned column) { return reinterpret_cast<float&>(cell(lane, column)); }
inline void load_columns(uint32_t address, float** to, unsigned count) {
    if (address >> 16 != running->place / 32 % 4 * 32) fail("a warp reads lanes that are not its own");
    for (unsigned i = 0; i < count; ++i)
        *to[i] = sum_at((address >> 16) + running->place % 32, (address & 0xffff) + i);
    ++progress;
}

// A description of rows in shared memory, field by field.
struct Described {
    uint32_t start, leading, stride, swizzle;
    explicit Described(uint64_t bits)
        : start((bits & 0x3fff) << 4), leading((bits >> 16 & 0x3fff) << 4),
          stride((bits >> 32 & 0x3fff) << 4), swizzle(bits >> 61) {
        if ((bits >> 46 & 7) != 1) fail("a description without its constant");
        if (bits >> 14 & 3 || bits >> 30 & 3 || bits >> 49 & 0xfff) fail("a description with other bits");
    }
};

inline void copy_scales(uint32_t columns, uint64_t bits) {
    ++running->uncommitted;
    running->late.push_back([=] {
        const Described from(bits);
        if (from.swizzle) fail("scales are not swizzled");
        for (unsigned row = 0; row < 32; ++row)
            for (unsigned word = 0; word < 4; ++word) {
                const uint32_t at = from.start + row / 8 * from.stride + row % 8 * 16 + word * 4;
                const uint32_t value = load_by_engine<uint32_t>(at);
                for (unsigned quarter = 0; quarter < 4; ++quarter) cell(quarter * 32 + row, columns + word) = value;
            }
        ++progress;
    });
}

// The scale of a row's 16 codes: the same in all quarters of the lanes.
inline float scale_of(uint32_t columns, unsigned row, unsigned block16) {
    const uint32_t word = cell(row % 32, columns + row / 32);
    for (unsigned quarter = 1; quarter < 4; ++quarter)
        if (cell(quarter * 32 + row % 32, columns + row / 32) != word) fail("scales differ between lanes");
    const uint32_t bits = word >> 8 * block16 & 255;
    if (bits & 0x80 || bits == 0x7f) fail("no unsigned e4m3 number");
    return scale(bits);
}

inline void multiply_codes(uint32_t sums, uint64_t a, uint64_t b, uint32_t product, uint32_t a_scales,
                           uint32_t b_scales, bool adds) {
    ++running->uncommitted;
    running->late.push_back([=] {
        const Described left(a), right(b);
        const unsigned width = (product >> 17 & 63) * 8;
        // Dense; scale parts 0; e2m1 twice; nothing negated or turned; unsigned e4m3; 128 rows; 64 deep.
        if ((product & ~(63u << 17)) != (1u << 7 | 1u << 10 | 8u << 24)) fail("not that product of codes");
        if (left.swizzle != right.swizzle || (left.swizzle != 4 && left.swizzle != 6))
            fail("codes lie in rows of 64 or 32 bytes, swizzled over as many");
        const auto numbers = [](const Described& from, uint32_t scales, unsigned rows) {
            std::vector<float> found(rows * 64);
            const uint32_t row_bytes = from.swizzle == 4 ? 64 : 32, turned = row_bytes / 16 - 1;
            for (unsigned row = 0; row < rows; ++row)
                for (unsigned k = 0; k < 64; ++k) {
                    const uint32_t at = from.start + row / 8 * from.stride + row % 8 * row_bytes + k / 2;
                    const uint8_t pair = load_by_engine<uint8_t>(at ^ (at >> 7 & turned) << 4);
                    found[row * 64 + k] = code(k % 2 ? pair >> 4 : pair) * scale_of(scales, row, k / 16);
                }
            return found;
        };
        const auto rows = numbers(left, a_scales, 128), columns = numbers(right, b_scales, width);
        for (unsigned row = 0; row < 128; ++row)
            for (unsigned column = 0; column < width; ++column) {
                float total = adds ? sum_at(row, sums + column) : 0.0f;
                for (unsigned k = 0; k < 64; ++k) total += rows[row * 64 + k] * columns[column * 64 + k];
                sum_at(row, sums + column) = total;
            }
        ++progress;
    });
}

inline void multiply_elements(uint32_t sums, uint64_t a, uint64_t b, uint32_t product, bool adds) {
    ++running->uncommitted;
    running->late.push_back([=] {
        const Described left(a), right(b);
        const unsigned width = (product >> 17 & 63) * 8;
        // float32 sums; bfloat16 twice; the right factor turned; 128 rows.
        if ((product & ~(63u << 17)) != (1u << 4 | 1u << 7 | 1u << 10 | 1u << 16 | 8u << 24))
            fail("not that product of elements");
        if (left.swizzle != 2 || right.swizzle != 2) fail("only 128-byte swizzles are known");
        const auto element = [](uint32_t at) { return widened(load_by_engine<uint16_t>(at ^ (at >> 7 & 7) << 4)); };
        std::vector<float> rows(128 * 16), columns(width * 16);
        for (unsigned k = 0; k < 16; ++k) {
            for (unsigned row = 0; row < 128; ++row)
                rows[row * 16 + k] = element(left.start + row / 8 * left.stride + row % 8 * 128 + k * 2);
            for (unsigned column = 0; column < width; ++column)
                columns[column * 16 + k] = element(right.start + column / 64 * right.leading + column % 64 * 2 +
                                                   k / 8 * right.stride + k % 8 * 128);
        }
        for (unsigned row = 0; row < 128; ++row)
            for (unsigned column = 0; column < width; ++column) {
                float total = adds ? sum_at(row, sums + column) : 0.0f;
                for (unsigned k = 0; k < 16; ++k) total += rows[row * 16 + k] * columns[column * 16 + k];
                sum_at(row, sums + column) = total;
            }
        ++progress;
    });
}

inline void products_arrive(uint32_t address) {
    running->uncommitted = 0;
    arrive_after_fetches(address);
}

// ---- products of a warpgroup

inline float factor(uint64_t described, bool across, int line, int k) {
    if (described >> 62 != 1) fail("only 128-byte swizzles are known");
    const uint32_t start = (described & 0x3fff) << 4, leading = (described >> 16 & 0x3fff) << 4;
    const uint32_t stride = (described >> 32 & 0x3fff) << 4;
    uint32_t at = start;
    if (across) at += line / 64 * leading + k / 8 * stride + k % 8 * 128 + line % 64 * 2;
    else at += line / 8 * stride + line % 8 * 128 + k * 2;
    return widened(load_by_engine<uint16_t>(at ^ (at >> 7 & 7) << 4));
}

inline void compute(const std::vector<Product*>& each) {    // of the 128 threads
    const Product& first = *each[0];
    const int width = first.width;
    std::vector<float> left(64 * 16), right(width * 16);
    for (int row = 0; row < 64; ++row) {
        for (int k = 0; k < 16; ++k) {
            const int lane = row / 16 * 32 + row % 8 * 4 + k % 8 / 2;
            const uint32_t pair = each[lane]->a[row % 16 / 8 + k / 8 * 2];
            left[row * 16 + k] = first.held ? widened(pair >> (k % 2 * 16))
                                            : factor(first.left, first.left_across, row, k);
        }
    }
    for (int column = 0; column < width; ++column)
        for (int k = 0; k < 16; ++k)
            right[column * 16 + k] = factor(first.right, first.right_across, column, k);
    for (int thread = 0; thread < 128; ++thread) {
        for (int i = 0; i < width / 2; ++i) {
            const int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
            const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
            float sum = first.fresh ? 0.0f : each[thread]->sums[i];
            for (int k = 0; k < 16; ++k) sum += left[row * 16 + k] * right[column * 16 + k];
            each[thread]->sums[i] = sum;
        }
    }
}

inline std::vector<std::unique_ptr<Fiber>>* all_fibers;

inline void products_commit() { running->groups.emplace_back(); }

inline void products_wait(size_t pending) {
    const unsigned group = running->place / 128;
    meet(block().groups[group], 128, "its warpgroup");
    if (running->place % 128 == 0) {
        std::vector<Fiber*> members;
        for (auto& each : *all_fibers)
            if (each->home == running->home && each->place / 128 == group) members.push_back(each.get());
        std::sort(members.begin(), members.end(), [](auto* a, auto* b) { return a->place < b->place; });
        while (members[0]->groups.size() > pending + 1) {
            for (size_t i = 0; i < members[0]->groups[0].size(); ++i) {
                std::vector<Product*> each;
                for (auto* member : members) each.push_back(&member->groups.at(0).at(i));
                compute(each);
            }
            for (auto* member : members) member->groups.erase(member->groups.begin());
        }
    }
    meet(block().groups[group], 128, "its warpgroup");
}

inline void product(int width, bool fresh, bool left_across, bool right_across, float* sums,
                    uint64_t left, uint64_t right) {
    running->groups.back().push_back(
        {width, false, fresh, left_across, right_across, sums, {0, 0, 0, 0}, left, right});
}
inline void product_held(int width, bool fresh, bool right_across, float* sums, uint32_t a0, uint32_t a1,
                         uint32_t a2, uint32_t a3, uint64_t right) {
    running->groups.back().push_back(
        {width, true, fresh, false, right_across, sums, {a0, a1, a2, a3}, 0, right});
}

// ---- launching

inline std::function<void()> entry;

inline void start() {
    entry();
    fetches_finish();
    for (auto& group : running->groups)
        if (!group.empty()) fail("products were begun and never waited for");
    if (running->uncommitted) fail("products were asked for and never committed");
    if (running->stores.size() > 1 || !running->stores[0].empty()) fail("stores still read shared memory");
    running->done = true;
    ++progress;
    auto& cluster = *running->home->cluster;
    --cluster.alive, --running->home->alive;
    if (cluster.meeting.arrived && cluster.meeting.arrived == cluster.alive) {
        cluster.meeting.arrived = 0;
        ++cluster.meeting.phase;
    }
    swapcontext(&running->context, &scheduler);
}

inline void run_cluster(std::vector<Index> indices, unsigned threads, size_t bytes, std::mt19937& random) {
    Cluster cluster;
    std::vector<std::unique_ptr<Fiber>> fibers;
    cluster.alive = threads * indices.size();
    for (unsigned rank = 0; rank < indices.size(); ++rank) {
        auto made = std::make_unique<Block>();
        made->index = indices[rank];
        made->rank = rank;
        made->cluster = &cluster;
        made->alive = threads;
        made->asked = bytes;
        made->fixed_from = made->fixed_until = (bytes + 127) / 128 * 128;
        made->memory.assign(made->fixed_from + FIXED_ARRAYS * FIXED_BYTES, 0xff);
        made->unseen.assign(made->memory.size(), 0);
        made->given.assign(threads / 32, std::vector<std::vector<uint32_t>>(32));
        made->barriers.reserve(1024);
        made->warps.resize(threads / 32);
        made->groups.resize(threads / 128 + 1);
        made->lanes.assign(threads / 32, std::vector<uint32_t>(32));
        for (unsigned i = 0; i < threads; ++i) {
            auto fiber = std::make_unique<Fiber>();
            fiber->thread = {i, 0, 0};
            fiber->place = i;
            fiber->home = made.get();
            fiber->stack.resize(96 << 10);
            getcontext(&fiber->context);
            fiber->context.uc_stack.ss_sp = fiber->stack.data();
            fiber->context.uc_stack.ss_size = fiber->stack.size();
            fiber->context.uc_link = nullptr;
            makecontext(&fiber->context, start, 0);
            fibers.push_back(std::move(fiber));
        }
        cluster.blocks.push_back(std::move(made));
    }
    all_fibers = &fibers;
    threads_of_block = threads;
    std::shuffle(fibers.begin(), fibers.end(), random);
    size_t left = fibers.size();
    unsigned held_back = 0;                                // a block, and for how many turns it rests
    for (int turns = 0; left; --turns) {
        const uint64_t before = progress;
        if (turns <= 0 && indices.size() > 1 && random() % 16 == 0) {
            held_back = random() % indices.size();
            turns = 64;
        }
        left = 0;
        const size_t turn = random() % fibers.size();
        bool copies = false;
        for (size_t i = 0; i < fibers.size(); ++i) {
            running = fibers[(i + turn) % fibers.size()].get();
            if (running->done) continue;
            if (turns > 0 && running->home->rank == held_back) {
                ++left;
                continue;
            }
            swapcontext(&scheduler, &running->context);
            copies |= !running->late.empty();
            if (random() % 8 == 0) fetches_finish(random() % (running->late.size() + 1));
            left += !running->done;
        }
        if (left && progress == before && !copies && turns > 0) {
            turns = 0;
        } else if (left && progress == before && !copies) {
            std::string waits = "deadlock:";
            for (auto& each : fibers)
                if (!each->done)
                    waits += " " + std::to_string(each->home->rank) + "/" + std::to_string(each->place) +
                             " " + each->waits + ";";
            fail(waits.substr(0, 2000));
        }
    }
    for (auto& at : cluster.blocks) {
        if (at->columns) fail("tensor memory was not given back");
        for (auto& each : at->barriers)
            if (each.bytes) fail("bytes that a barrier expects never came, or more came");
        for (auto& named : at->named)
            if (named.arrived) fail("threads arrived at a barrier that nobody waits at");
    }
}

inline uint64_t bits(float value) {
    uint32_t found;
    std::memcpy(&found, &value, 4);
    return found;
}

template <typename T> T argument(uint64_t bits) {       // what is wider lies where they point
    T value;
    std::memcpy(&value, sizeof(T) > 8 ? (const void*)bits : &bits, sizeof(T));
    return value;
}

template <typename... A, size_t... I>
void prepare(void (*kernel)(A...), const std::vector<uint64_t>& values, std::index_sequence<I...>) {
    entry = [=] { kernel(argument<A>(values[I])...); };
}

template <typename... A>
void launch(void (*kernel)(A...), Index grid, unsigned threads, Index cluster, size_t bytes,
            const std::vector<uint64_t>& values, unsigned seed) {
    if (values.size() != sizeof...(A)) fail("so many arguments does the kernel not take");
    prepare(kernel, values, std::index_sequence_for<A...>());
    std::mt19937 random(seed);
    grid_of_launch = grid;
    for (unsigned z = 0; z < grid.z; z += cluster.z)
        for (unsigned y = 0; y < grid.y; y += cluster.y)
            for (unsigned x = 0; x < grid.x; x += cluster.x) {
                std::vector<Index> indices;
                for (unsigned k = 0; k < cluster.z; ++k)
                    for (unsigned j = 0; j < cluster.y; ++j)
                        for (unsigned i = 0; i < cluster.x; ++i)
                            indices.push_back({x + i, y + j, z + k});
                run_cluster(indices, threads, bytes, random);
            }
}

inline std::vector<uint8_t> read(const char* name) {
    std::FILE* file = std::fopen(name, "rb");
    if (!file) fail(std::string("cannot read ") + name);
    std::vector<uint8_t> found;
    uint8_t part[65536];
    for (size_t n; (n = std::fread(part, 1, sizeof part, file)) > 0;) found.insert(found.end(), part, part + n);
    std::fclose(file);
    return found;
}

inline void write(const char* name, const std::vector<uint8_t>& bytes) {
    std::FILE* file = std::fopen(name, "wb");
    if (!file || std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size()) fail("cannot write");
    std::fclose(file);
}

}  // namespace host

template <typename T> T __ldg(const T* from) { return host::read_global<T>(from); }
template <typename T> T __ldcs(const T* from) { return host::read_global<T>(from); }
template <typename T> void __stcs(T* to, const T& value) { host::write_global(to, value); }
inline unsigned __float_as_uint(float value) { return (unsigned)host::bits(value); }
inline float rsqrtf(float value) { return 1.0f / std::sqrt(value); }
inline void __syncwarp() { host::exchanged(0, 0); }
inline float __int_as_float(int bits) { return host::argument<float>((uint32_t)bits); }
inline float __uint_as_float(unsigned bits) { return host::argument<float>(bits); }
inline uint64_t __cvta_generic_to_shared(const void* pointer) {
    return host::OFFSET + ((const uint8_t*)pointer - host::whole_shared());
}
template <typename T> T min(T a, T b) { return a < b ? a : b; }
template <typename T> T max(T a, T b) { return a > b ? a : b; }
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned choice) {
    const uint64_t bytes = (uint64_t)high << 32 | low;
    unsigned found = 0;
    for (int i = 0; i < 4; ++i) found |= (unsigned)(bytes >> 8 * (choice >> 4 * i & 7) & 255) << 8 * i;
    return found;
}
inline int __ffs(unsigned bits) { return __builtin_ffs((int)bits); }
template <typename T> T __shfl_sync(unsigned, T value, int lane) { return host::shuffled(value, lane); }
template <typename T> T __shfl_xor_sync(unsigned, T value, int mask) {
    return host::shuffled(value, (int)(host::fiber().place % 32) ^ mask);
}
template <typename T> T __shfl_up_sync(unsigned, T value, int distance) {
    const int lane = host::fiber().place % 32;
    return host::shuffled(value, lane < distance ? lane : lane - distance);
}
inline unsigned __ballot_sync(unsigned, bool truth) { return host::ballot(truth); }
inline void __syncthreads() { host::bar_sync(0, host::threads_of_block); }
