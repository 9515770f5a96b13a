// Codes of 4 bits (e2m1) whose numbers are multiplied as bfloat16: 16 of them share an e4m3 scale.
// Code times scale has at most six significant bits, so bfloat16 holds it exactly.
// The kernel defines HEAD, LENGTH, TILE_KV, THREADS, DEQUANTISE_table or DEQUANTISE_convert.

#define BLOCKS (HEAD / 16)                  // scales of a row

#if DEQUANTISE_convert
// Eight codes as four words of bfloat16, by the converter that chips from 10.0 on have.
DEVICE void eight_codes(u32 codes, u32* words) {
    u32 halves[4];
    asm("{\n.reg .b8 a, b, c, d;\nmov.b32 {a, b, c, d}, %4;\n"
        "cvt.rn.f16x2.e2m1x2 %0, a;\ncvt.rn.f16x2.e2m1x2 %1, b;\n"
        "cvt.rn.f16x2.e2m1x2 %2, c;\ncvt.rn.f16x2.e2m1x2 %3, d;\n}"
        : "=r"(halves[0]), "=r"(halves[1]), "=r"(halves[2]), "=r"(halves[3]) : "r"(codes));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        float low, high;
        asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.f32.f16 %0, l;\ncvt.f32.f16 %1, h;\n}"
            : "=f"(low), "=f"(high) : "r"(halves[i]));
        words[i] = pack2(low, high);
    }
}
#else
// Four codes as two words of bfloat16: their magnitudes looked up byte by byte, signs put in.
DEVICE void four_codes(u32 codes, u32& first, u32& second) {
    const u32 chosen = codes & 0x7777u;
    u32 spread = codes & 0xffffu;
    spread = (spread | spread << 8) & 0x00ff00ffu;
    spread = (spread | spread << 4) & 0x0f0f0f0fu;
    const u32 high = __byte_perm(0x3f3f3f00u, 0x40404040u, chosen) | (spread & 0x08080808u) << 4;
    const u32 low = __byte_perm(0xc0800000u, 0xc0804000u, chosen);
    first = __byte_perm(low, high, 0x5140u);
    second = __byte_perm(low, high, 0x7362u);
}

DEVICE void eight_codes(u32 codes, u32* words) {
    four_codes(codes, words[0], words[1]);
    four_codes(codes >> 16, words[2], words[3]);
}
#endif

DEVICE u32 times(u32 pair, u32 scale) {
    u32 product;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(scale));
    return product;
}

// An e4m3 number, twice, as bfloat16.
DEVICE u32 scale_pair(u32 byte) {
    u32 halves;
    asm("{\n.reg .b16 narrow;\ncvt.u16.u32 narrow, %1;\ncvt.rn.f16x2.e4m3x2 %0, narrow;\n}"
        : "=r"(halves) : "r"(byte & 0xffu));
    float value;
    asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\ncvt.f32.f16 %0, l;\n}" : "=f"(value) : "r"(halves));
    return pack2(value, value);
}

// 16 codes into two chunks of a row in shared memory.
DEVICE void dequantise(u32 base, int rows, int row, int block, uint2 codes, u32 scale_byte) {
    const u32 scale = scale_pair(scale_byte);
    u32 words[8];
    eight_codes(codes.x, words);
    eight_codes(codes.y, words + 4);
#pragma unroll
    for (int i = 0; i < 8; ++i) words[i] = times(words[i], scale);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                     ::"r"(chunk_address(base, rows, row, 2 * block + half)), "r"(words[4 * half]),
                     "r"(words[4 * half + 1]), "r"(words[4 * half + 2]), "r"(words[4 * half + 3])
                     : "memory");
    }
}

// TILE_KV rows of a head, from row `first` on; rows behind the last one are zeros.
DEVICE void dequantise_rows(u32 base, const u8* codes, const u8* scales, int first) {
    for (int i = threadIdx.x; i < TILE_KV * BLOCKS; i += THREADS) {
        const int row = i / BLOCKS, block = i % BLOCKS;
        uint2 held = make_uint2(0, 0);
        u32 scale = 0;
        if (first + row < LENGTH) {
            held = *(const uint2*)(codes + ((i64)first * BLOCKS + i) * 8);
            scale = scales[first * BLOCKS + i];
        }
        dequantise(base, TILE_KV, row, block, held, scale);
    }
}
