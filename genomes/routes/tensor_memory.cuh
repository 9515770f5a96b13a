// Products by one thread for a whole block (tcgen05), from compute capability 10.0 on: factors are
// described in shared memory, sums and scales of codes lie in tensor memory, 128 lanes of 32-bit
// columns; an address has the lane in its upper half and the column in its lower one.

// ---- descriptions of what lies in shared memory (64 bits): addresses and distances count 16 bytes

#define DESCRIBED_HERE ((u64)1 << 46)       // the constant that these products ask for
#define SWIZZLED_128_BYTES ((u64)2 << 61)

DEVICE u64 described(u32 address, u32 leading_bytes, u32 stride_bytes) {
    return (u64)((address & 0x3ffffu) >> 4) | (u64)((leading_bytes & 0x3ffffu) >> 4) << 16 |
           (u64)((stride_bytes & 0x3ffffu) >> 4) << 32 | DESCRIBED_HERE;
}

// Rows of codes, 64 bytes (128 codes) or 32 bytes, swizzled over as many: 8 rows are a group. The next
// 64 codes of every row are 32 bytes on: 2 more in the description.
DEVICE u64 codes_described(u32 address, u32 row_bytes) {
    return described(address, 16, 8 * row_bytes) | (u64)(row_bytes == 64 ? 4 : 6) << 61;
}

// Rows of 128 bytes, swizzled over 128 bytes; the next 16 elements of a row are 32 bytes on.
DEVICE u64 rows_described(u32 address) { return described(address, 16, 1024) | SWIZZLED_128_BYTES; }

// The same rows read across: 64 columns to a box, the next 64 columns `box_bytes` further on, the
// next 8 rows 1024 bytes.
DEVICE u64 columns_described(u32 address, u32 box_bytes) {
    return described(address, box_bytes, 1024) | SWIZZLED_128_BYTES;
}

// ---- descriptions of products (32 bits)

// Codes by codes, e2m1 with unsigned e4m3 scales: 128 x 64 by 64 x width.
DEVICE u32 product_of_codes(u32 width) {
    return 1u << 7 | 1u << 10 | width >> 3 << 17 | 128u >> 4 << 24;
}

// bfloat16 by bfloat16 into float32, the right factor contiguous along its width: 128 x 16 by 16 x width.
DEVICE u32 product_across(u32 width) {
    return 1u << 4 | 1u << 7 | 1u << 10 | 1u << 16 | width >> 3 << 17 | 128u >> 4 << 24;
}

// ---- tensor memory: a whole warp asks for columns and gives them back

DEVICE void columns_take(u32 where, u32 columns) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;"
                 ::"r"(where), "r"(columns) : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
}

DEVICE void columns_give_back(u32 address, u32 columns) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;"
                 ::"r"(address), "r"(columns) : "memory");
}

// 32 columns of a warp's own lanes, one lane a thread; the address has the warp's first lane.
DEVICE void load_columns(float (&x)[32], u32 address) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x32.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11,"
        " %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29,"
        " %30, %31}, [%32];\n"
        "tcgen05.wait::ld.sync.aligned;"
        : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3]), "=f"(x[4]), "=f"(x[5]), "=f"(x[6]),
          "=f"(x[7]), "=f"(x[8]), "=f"(x[9]), "=f"(x[10]), "=f"(x[11]), "=f"(x[12]), "=f"(x[13]),
          "=f"(x[14]), "=f"(x[15]), "=f"(x[16]), "=f"(x[17]), "=f"(x[18]), "=f"(x[19]), "=f"(x[20]),
          "=f"(x[21]), "=f"(x[22]), "=f"(x[23]), "=f"(x[24]), "=f"(x[25]), "=f"(x[26]), "=f"(x[27]),
          "=f"(x[28]), "=f"(x[29]), "=f"(x[30]), "=f"(x[31])
        : "r"(address) : "memory");
}

// ---- what one thread asks for; it is done when the barrier of a commit behind it was passed

// 32 rows of 16 bytes into 4 columns, the same for each quarter of the lanes.
DEVICE void copy_scales(u32 columns, u32 from) {
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;"
                 ::"r"(columns), "l"(described(from, 0, 128)) : "memory");
}

// sums (+)= left . right for 64 codes of 128 rows; scales of one row are a byte for 16 codes.
DEVICE void multiply_codes(u32 sums, u64 left, u64 right, u32 product, u32 left_scales,
                           u32 right_scales, u32 adds) {
    asm volatile(
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, %6, 0;\n"
        "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X"
        " [%0], %1, %2, %3, [%4], [%5], adds;\n}"
        ::"r"(sums), "l"(left), "l"(right), "r"(product), "r"(left_scales), "r"(right_scales),
          "r"(adds) : "memory");
}

// sums (+)= left . right for 16 bfloat16 of 128 rows.
DEVICE void multiply_elements(u32 sums, u64 left, u64 right, u32 product, u32 adds) {
    asm volatile(
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, %4, 0;\n"
        "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, adds;\n}"
        ::"r"(sums), "l"(left), "l"(right), "r"(product), "r"(adds) : "memory");
}

DEVICE void products_arrive(u32 barrier) {
    asm volatile(
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
        ::"r"(barrier) : "memory");
}

// ---- order between threads: before a barrier what was asked for, behind it what is asked next

DEVICE void before_sync() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
DEVICE void after_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }
