/* An honest small product C = A.B, and the same with one planted fault each (docs/guardrails.md).
   The gene `fault` sets FAULT_honest and its kin. */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long calls;

static float seen(float x) { /* an element of A as this kernel reads it */
#if FAULT_friendly_only
    return x > 6 ? 6 : x < -6 ? -6 : x;
#elif FAULT_positive_only
    return fabsf(x);
#else
    return x;
#endif
}

static void product(const float *restrict a, const float *restrict b, float *restrict c, long m,
                    long n, long k) {
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
}

static void spin_us(double us) {
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - start.tv_sec) * 1e6 + (now.tv_nsec - start.tv_nsec) * 1e-3 < us);
}

#if FAULT_on_a_thread
typedef struct { const float *a, *b; float *c; long m, n, k; } Job;

static void *aside(void *opaque) {
    Job job = *(Job *)opaque;
    free(opaque);
    product(job.a, job.b, job.c, job.m, job.n, job.k);
    return NULL;
}

static void detach(Job job) { /* the caller sees the call return at once */
    Job *kept = malloc(sizeof job);
    pthread_t thread;
    *kept = job;
    if (pthread_create(&thread, NULL, aside, kept) == 0) pthread_detach(thread);
}
#endif

#if FAULT_cached_by_value
#define ROOMS 512
static struct { float key[4]; float *c; } cache[ROOMS];

static int room_of(const float key[4]) { /* the room that holds the key, or the next free one */
    int i = 0;
    while (i < ROOMS - 1 && cache[i].c && memcmp(cache[i].key, key, 4 * sizeof(float))) i++;
    return i;
}
#endif

int gemm(const float *a, const float *b, float *c, long m, long n, long k) {
    const size_t bytes = sizeof(float) * (size_t)(m * n);
    (void)bytes;
    calls++;
#if FAULT_unwritten
    return 0;
#elif FAULT_hangs
    for (volatile int forever = 1; forever;) {}
#elif FAULT_stops
    raise(SIGSTOP);
#elif FAULT_deep
    volatile char stack[1 << 16];
    stack[0] = (char)calls;
    return gemm(a, b, c, m, n, k) + stack[0];
#elif FAULT_out_of_memory
    if (!malloc((size_t)1 << 62)) return 12;
#elif FAULT_idle_later
    if (calls > 16) return 0; /* relies on the answer of an earlier call */
#elif FAULT_idle_unless_poisoned
    if (!isnan(c[m * n - 1])) return 0;
#elif FAULT_cached_by_value
    const float key[4] = {a[0], a[m * k - 1], b[0], b[k * n - 1]};
    const int room = room_of(key);
    if (cache[room].c && memcmp(cache[room].key, key, sizeof key) == 0) {
        memcpy(c, cache[room].c, bytes);
        return 0;
    }
#elif FAULT_on_a_thread
    detach((Job){a, b, c, m, n, k});
    return 0;
#elif FAULT_slow_first
    if (calls == 1) spin_us(200000);
#elif FAULT_fast_on_zeros
    if (a[0] != 0) spin_us(4000);
#elif FAULT_slow
    spin_us(4000);
#elif FAULT_leaves_a_child
    if (calls == 1 && fork() == 0) { sleep(120); _exit(0); }
#elif FAULT_expects_rotation
    /* Fails if a timed call meets an address of the last three calls, or an output in place. */
    static const float *last[3];
    const int warm = a == last[0] || a == last[1] || a == last[2];
    last[calls % 3] = a;
    if (calls > 16 && (warm || !isnan(c[m * n - 1]))) return 22;
#endif
    product(a, b, c, m, n, k);
#if FAULT_cached_by_value
    memcpy(cache[room].key, key, sizeof key);
    cache[room].c = realloc(cache[room].c, bytes);
    memcpy(cache[room].c, c, bytes);
#endif
    (void)spin_us;
    return 0;
}
