// Bulk tensor copies between device and shared memory.

struct __align__(64) TensorMap { u64 opaque[16]; };

DEVICE void prefetch_map(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// A box whose first element is (x, y); x runs along the contiguous axis. Rows and columns outside
// of the tensor arrive as zeros and are counted as bytes all the same.
DEVICE void load_box(u32 target, const TensorMap* map, u32 barrier, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4}], [%2];"
        ::"r"(target), "l"(map), "r"(barrier), "r"(x), "r"(y) : "memory");
}

DEVICE void load_box_hinted(u32 target, const TensorMap* map, u32 barrier, int x, int y,
                            u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;"
        ::"r"(target), "l"(map), "r"(barrier), "r"(x), "r"(y), "l"(policy) : "memory");
}

// The same box into every block of the cluster whose bit is set, each told on its own barrier.
DEVICE void load_box_shared(u32 target, const TensorMap* map, u32 barrier, int x, int y, u16 blocks,
                            u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5, %6;"
        ::"r"(target), "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(blocks), "l"(policy) : "memory");
}

DEVICE void store_box(const TensorMap* map, u32 source, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
                 ::"l"(map), "r"(source), "r"(x), "r"(y) : "memory");
}

DEVICE void stores_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Until at most `pending` groups of stores still read shared memory.
template <int pending>
DEVICE void stores_have_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

DEVICE u64 evict_last() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

DEVICE u64 evict_first() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

DEVICE u64 evict_normal() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// As store_box, into plane z of a tensor of three axes.
DEVICE void store_plane(const TensorMap* map, u32 source, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];"
                 ::"l"(map), "r"(source), "r"(x), "r"(y), "r"(z) : "memory");
}
