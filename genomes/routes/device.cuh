// What every CUDA kernel here stands on: plain types, numbers of 16 bits, shuffles, barriers.
// No header of the toolkit is needed, so the text compiles wherever NVRTC is.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define DEVICE __device__ __forceinline__

// How many registers a thread may have: at most MAX_REGISTERS where that is set, otherwise as many
// as let MIN_BLOCKS blocks be resident.
#if MAX_REGISTERS
#define BOUNDS __maxnreg__(MAX_REGISTERS)
#else
#define BOUNDS __launch_bounds__(THREADS, MIN_BLOCKS)
#endif

// ---- elements: DTYPE_bfloat16, DTYPE_float16 or DTYPE_float32 says which

#if DTYPE_float32
typedef float element;
#define ELEMENT_BYTES 4
#else
typedef u16 element;
#define ELEMENT_BYTES 2
#endif

// Two floats as two 16-bit elements, the first in the low half.
DEVICE u32 pack2(float low, float high) {
    u32 packed;
#if DTYPE_float16
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
#else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
#endif
    return packed;
}

DEVICE float2 unpack2(u32 packed) {
#if DTYPE_float16
    float low, high;
    asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.f32.f16 %0, l;\ncvt.f32.f16 %1, h;\n}"
        : "=f"(low), "=f"(high) : "r"(packed));
    return make_float2(low, high);
#else
    return make_float2(__uint_as_float(packed << 16), __uint_as_float(packed & 0xffff0000u));
#endif
}

DEVICE float to_float(element value) {
#if DTYPE_float32
    return value;
#else
    return unpack2(value).x;
#endif
}

DEVICE element to_element(float value) {
#if DTYPE_float32
    return value;
#else
    return (u16)pack2(value, 0.0f);
#endif
}

// ---- launches that overlap: what the kernel before wrote is visible after the wait

DEVICE void wait_for_previous_kernel() {
#if PDL
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

DEVICE void let_next_kernel_start() {
#if PDL
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// ---- shared memory and its barriers; addresses are 32-bit shared-window addresses

DEVICE u32 shared_address(const void* pointer) { return (u32)__cvta_generic_to_shared(pointer); }

DEVICE void barrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

DEVICE void barrier_inits_visible() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

DEVICE void barrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

DEVICE void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// The barrier at the same place in another block of the cluster, and an arrival there.
DEVICE u32 address_in_block(u32 address, u32 block) {
    u32 mapped;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(block));
    return mapped;
}

// What it orders are reads by the tensor cores, which were waited for; a release over the cluster
// would fence all of memory, at every stage.
DEVICE void barrier_arrive_cluster(u32 mapped) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(mapped) : "memory");
}

DEVICE void barrier_wait(u32 barrier, u32 parity) {
    asm volatile(
        "{\n.reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra.uni finished;\n"
        "bra.uni again;\n"
        "finished:\n}"
        ::"r"(barrier), "r"(parity) : "memory");
}

// What ordinary stores wrote to shared memory becomes visible to copy engine and tensor cores.
DEVICE void shared_visible_to_engines() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

DEVICE void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}

DEVICE u32 rank_in_cluster() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// A barrier among some warps of the block: its number (0 is __syncthreads') and its threads.
DEVICE void warps_sync(int number, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// ---- registers of a warpgroup: what one gives up another can take

template <int registers>
DEVICE void registers_down() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers>
DEVICE void registers_up() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
