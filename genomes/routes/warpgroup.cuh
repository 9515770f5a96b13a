// Products of warpgroups (wgmma), beside what is generated for the genome's tile.

DEVICE void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int pending>
DEVICE void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Describes rows of 128 bytes that are swizzled over 128 bytes, 8 rows a group of 1024 bytes. The
// next 16 elements along a row are 32 bytes on: 2 more in the descriptor.
DEVICE u64 rows_of_128_bytes(u32 address) {
    return (u64)((address & 0x3ffffu) >> 4) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

// The same rows read across: 8 of them (k) to a group, 64 columns (n) to a box, the next 64 columns
// `box_bytes` further on. The next 16 rows are 2048 bytes on: 128 more in the descriptor.
DEVICE u64 columns_of_128_bytes(u32 address, u32 box_bytes) {
    return (u64)((address & 0x3ffffu) >> 4) | (u64)(box_bytes >> 4) << 16 |
           (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
