// Genes are macros (VEC, UNROLL, THREADS, STREAM), and so are the axes (AXIS_COLUMNS).

template <int n> struct alignas(4 * n) Vector { float at[n]; };

extern "C" __global__ void __launch_bounds__(THREADS)
scaled_add(const float* __restrict__ x, const float* __restrict__ y0, float alpha,
           float* __restrict__ y, int rows) {
    const long long count = (long long)rows * AXIS_COLUMNS / VEC;
    const auto* from = (const Vector<VEC>*)x;
    const auto* base = (const Vector<VEC>*)y0;
    auto* to = (Vector<VEC>*)y;
    const long long first = (long long)blockIdx.x * THREADS * UNROLL + threadIdx.x;
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) {
        const long long place = first + i * THREADS;
        if (place >= count) return;
        const Vector<VEC> left = from[place], right = base[place];
        Vector<VEC> sum;
#pragma unroll
        for (int j = 0; j < VEC; ++j) sum.at[j] = alpha * left.at[j] + right.at[j];
#if STREAM && VEC == 4
        __stcs((float4*)(to + place), *(const float4*)&sum);
#else
        to[place] = sum;
#endif
    }
}
