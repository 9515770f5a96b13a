/* Vectors, macro repetition and loops that GCC and Clang both understand. C11, no intrinsics. */
#ifndef KERNELARC_LANES_H
#define KERNELARC_LANES_H

#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A vector of VEC floats that may stand at any float's address. */
typedef float lanes __attribute__((vector_size(VEC * 4), aligned(4), may_alias));

/* HOLD(v): when PIN is set, v must be in a register here, so that the compiler cannot fold its load
   into each use of it. Only for vectors that the machine has. */
#if defined(__AVX512F__)
#define REGISTER_BYTES 64
#elif defined(__AVX__)
#define REGISTER_BYTES 32
#else
#define REGISTER_BYTES 16
#endif
#if !PIN || VEC * 4 > REGISTER_BYTES || VEC * 4 < 16
#define HOLD(v)
#elif defined(__x86_64__)
#define HOLD(v) __asm__("" : "+v"(v));
#elif defined(__aarch64__)
#define HOLD(v) __asm__("" : "+w"(v));
#else
#define HOLD(v)
#endif

/* STREAM_STORE(to, v): past the caches; `to` must be aligned to the vector. STREAM_FENCE after it. */
#if defined(__x86_64__) && VEC * 4 <= REGISTER_BYTES && VEC * 4 >= 16
#if defined(__AVX__)
#define STREAM_STORE(to, v) __asm__ volatile("vmovntps %1, %0" : "=m"(*(lanes *)(to)) : "v"(v))
#else
#define STREAM_STORE(to, v) __asm__ volatile("movntps %1, %0" : "=m"(*(lanes *)(to)) : "x"(v))
#endif
#define STREAM_FENCE() __asm__ volatile("sfence" ::: "memory")
#else
#define STREAM_STORE(to, v) (*(lanes *)(to) = (v))
#define STREAM_FENCE() ((void)0)
#endif

#define INLINE static inline __attribute__((always_inline))
/* A function of its own: copies of it in its callers would cost compile time and gain nothing. */
#define APART static __attribute__((noinline))
#define MIN(x, y) ((x) < (y) ? (x) : (y))
#define ROUND_UP(x, step) (((x) + (step) - 1) / (step) * (step))

#define JOIN_(x, y) x##y
#define JOIN(x, y) JOIN_(x, y)

/* IS(WORD) is 1 when WORD is defined as 1 and 0 when it is not defined. */
#define PRESENT_1 0,
#define SECOND(x, y, ...) y
#define IS__(present) SECOND(present 1, 0, 0)
#define IS_(x) IS__(PRESENT_##x)
#define IS(x) IS_(x)

/* Rows of a tile: ROWS(F, n, x) writes F(0, x) ... F(n - 1, x). */
#define ROWS_1(F, x) F(0, x)
#define ROWS_2(F, x) ROWS_1(F, x) F(1, x)
#define ROWS_3(F, x) ROWS_2(F, x) F(2, x)
#define ROWS_4(F, x) ROWS_3(F, x) F(3, x)
#define ROWS_5(F, x) ROWS_4(F, x) F(4, x)
#define ROWS_6(F, x) ROWS_5(F, x) F(5, x)
#define ROWS_7(F, x) ROWS_6(F, x) F(6, x)
#define ROWS_8(F, x) ROWS_7(F, x) F(7, x)
#define ROWS_9(F, x) ROWS_8(F, x) F(8, x)
#define ROWS_10(F, x) ROWS_9(F, x) F(9, x)
#define ROWS_11(F, x) ROWS_10(F, x) F(10, x)
#define ROWS_12(F, x) ROWS_11(F, x) F(11, x)
#define ROWS(F, n, x) JOIN(ROWS_, n)(F, x)

/* Columns of a tile: the same with the row and one more word passed on. */
#define COLS_1(F, i, x) F(i, 0, x)
#define COLS_2(F, i, x) COLS_1(F, i, x) F(i, 1, x)
#define COLS_3(F, i, x) COLS_2(F, i, x) F(i, 2, x)
#define COLS_4(F, i, x) COLS_3(F, i, x) F(i, 3, x)
#define COLS_5(F, i, x) COLS_4(F, i, x) F(i, 4, x)
#define COLS_6(F, i, x) COLS_5(F, i, x) F(i, 5, x)
#define COLS(F, n, i, x) JOIN(COLS_, n)(F, i, x)

/* Unrolled steps: STEPS(F, n) writes F(0) ... F(n - 1). */
#define STEPS_1(F) F(0)
#define STEPS_2(F) STEPS_1(F) F(1)
#define STEPS_4(F) STEPS_2(F) F(2) F(3)
#define STEPS_8(F) STEPS_4(F) F(4) F(5) F(6) F(7)
#define STEPS(F, n) JOIN(STEPS_, n)(F)

/* Which of n accumulators step u adds to: CHAIN(n, u) is u modulo n. */
#define CHAIN(n, u) JOIN(JOIN(CHAIN_, n), JOIN(_OF_, u))
#define CHAIN_1_OF_0 0
#define CHAIN_1_OF_1 0
#define CHAIN_1_OF_2 0
#define CHAIN_1_OF_3 0
#define CHAIN_1_OF_4 0
#define CHAIN_1_OF_5 0
#define CHAIN_1_OF_6 0
#define CHAIN_1_OF_7 0
#define CHAIN_2_OF_0 0
#define CHAIN_2_OF_1 1
#define CHAIN_2_OF_2 0
#define CHAIN_2_OF_3 1
#define CHAIN_2_OF_4 0
#define CHAIN_2_OF_5 1
#define CHAIN_2_OF_6 0
#define CHAIN_2_OF_7 1
#define CHAIN_4_OF_0 0
#define CHAIN_4_OF_1 1
#define CHAIN_4_OF_2 2
#define CHAIN_4_OF_3 3
#define CHAIN_4_OF_4 0
#define CHAIN_4_OF_5 1
#define CHAIN_4_OF_6 2
#define CHAIN_4_OF_7 3

/* Runs work(job, part) for each part below `parts` on as many threads, the caller's included.
   All are joined before it returns: nothing runs on afterwards. 0, or pthread_create's error. */
typedef struct {
    void (*work)(const void *job, int part);
    const void *job;
    int part;
} Share;

static void *run_share(void *opaque) {
    const Share *share = opaque;
    share->work(share->job, share->part);
    return NULL;
}

static int in_parallel(void (*work)(const void *, int), const void *job, int parts) {
    pthread_t threads[THREADS];
    Share shares[THREADS];
    int failed = 0, started = 1;
    for (; started < parts && !failed; started++) {
        shares[started] = (Share){work, job, started};
        failed = pthread_create(&threads[started], NULL, run_share, &shares[started]);
    }
    if (failed) started--;
    work(job, 0);
    for (int part = 1; part < started; part++) pthread_join(threads[part], NULL);
    return failed;
}

#endif
