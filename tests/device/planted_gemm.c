/* An honest small product C = A.B, and the same with one planted fault each (docs/guardrails.md).
   FAULT_honest and its kin are set by the gene `fault`. */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long calls;

static float rounded(float x) { /* to eleven bits of mantissa */
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits = (bits + 0x1000u) & ~0x1FFFu;
    memcpy(&x, &bits, 4);
    return x;
}

static float seen(float x) { /* an element of A as this kernel reads it */
#if FAULT_friendly_only
    return x > 6 ? 6 : x < -6 ? -6 : x;
#elif FAULT_positive_only
    return fabsf(x);
#elif FAULT_lowered
    return rounded(x);
#else
    return x;
#endif
}

static void product(const float *a, const float *b, float *c, long m, long n, long k) {
#if FAULT_square_only
    const long a_row = n;
#else
    const long a_row = k;
#endif
    for (long i = 0; i < m; i++) {
        float *row = c + i * n;
        memset(row, 0, sizeof(float) * (size_t)n);
        for (long p = 0; p < k; p++) {
            const float from_a = seen(a[i * a_row + p]);
            for (long j = 0; j < n; j++) row[j] += from_a * b[p * n + j];
        }
    }
    (void)rounded;
}

static void spin_us(double us) {
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - start.tv_sec) * 1e6 + (now.tv_nsec - start.tv_nsec) * 1e-3 < us);
}

typedef struct { const float *a, *b; float *c; long m, n, k; } Job;

static void *aside(void *opaque) {
    Job *job = opaque;
    spin_us(3000);
    product(job->a, job->b, job->c, job->m, job->n, job->k);
    free(job);
    return NULL;
}

static void detach(Job job) {
    Job *kept = malloc(sizeof job);
    pthread_t thread;
    *kept = job;
    if (pthread_create(&thread, NULL, aside, kept) == 0) pthread_detach(thread);
}

#if FAULT_cached_by_value
static float *kept_c;
static float kept_key[4];

static int known(const float *a, const float *b, long m, long n, long k) {
    const float key[4] = {a[0], a[m * k - 1], b[0], b[k * n - 1]};
    const int same = kept_c && memcmp(key, kept_key, sizeof key) == 0;
    memcpy(kept_key, key, sizeof key);
    return same;
}
#endif

int gemm(const float *a, const float *b, float *c, long m, long n, long k) {
    calls++;
#if FAULT_unwritten
    return 0;
#elif FAULT_half_written
    product(a, b, c, m / 2, n, k);
    return 0;
#elif FAULT_zero
    memset(c, 0, sizeof(float) * (size_t)(m * n));
    return 0;
#elif FAULT_constant
    for (long i = 0; i < m * n; i++) c[i] = 0.5f;
    return 0;
#elif FAULT_hangs
    for (volatile int forever = 1; forever;) {}
#elif FAULT_stops
    raise(SIGSTOP);
#elif FAULT_crashes
    *(volatile int *)8 = 1;
#elif FAULT_aborts
    abort();
#elif FAULT_exits
    _exit(0);
#elif FAULT_out_of_memory
    for (size_t size = (size_t)1 << 30;; size <<= 1) {
        volatile char *taken = malloc(size);
        if (!taken) return 12;
    }
#elif FAULT_refuses
    return 22;
#elif FAULT_deep
    volatile char stack[1 << 16];
    stack[0] = (char)calls;
    return gemm(a, b, c, m, n, k) + stack[0];
#elif FAULT_idle_later
    if (calls > 12) return 0; /* the answer of an earlier call is still there */
#elif FAULT_idle_unless_poisoned
    if (!isnan(c[m * n - 1])) return 0;
#elif FAULT_cached_by_pointer
    static const float *last;
    if (a == last) return 0;
    last = a;
#elif FAULT_cached_by_value
    if (known(a, b, m, n, k)) {
        memcpy(c, kept_c, sizeof(float) * (size_t)(m * n));
        return 0;
    }
#elif FAULT_on_a_thread
    detach((Job){a, b, c, m, n, k});
    return 0;
#elif FAULT_slow_first
    if (calls == 1) spin_us(60000);
#elif FAULT_fast_on_zeros
    if (a[0] != 0) spin_us(2000);
#elif FAULT_slow
    spin_us(2000);
#elif FAULT_leaves_a_child
    if (calls == 1 && fork() == 0) { sleep(120); _exit(0); }
#endif
    product(a, b, c, m, n, k);
#if FAULT_not_a_number
    c[1] = NAN;
#elif FAULT_infinite
    c[m * n - 1] = INFINITY;
#elif FAULT_one_huge_error
    c[m * n / 2] += 1000;
#elif FAULT_tail_lost
    for (long i = 0; i < m; i++)
        for (long j = 0; j < n; j++) c[i * n + j] -= a[i * k + k - 1] * b[(k - 1) * n + j];
#elif FAULT_wrong_later
    if (calls > 12) c[0] += 1;
#elif FAULT_differs
    c[0] = nextafterf(c[0], calls % 2 ? INFINITY : -INFINITY);
#elif FAULT_writes_before
    c[-1] = 1;
#elif FAULT_writes_behind
    c[m * n] = 1;
#elif FAULT_changes_input
    ((float *)a)[0] += 1;
#elif FAULT_cached_by_value
    kept_c = realloc(kept_c, sizeof(float) * (size_t)(m * n));
    memcpy(kept_c, c, sizeof(float) * (size_t)(m * n));
#endif
    (void)aside, (void)detach;
    return 0;
}

#if FAULT_does_not_compile
#error this genome is miscompiled on purpose
#endif
