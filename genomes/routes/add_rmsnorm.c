/* summed = x + residual; y = summed / sqrt(mean(summed^2) + epsilon) * weight, row by row, float32,
   row-major and dense. Shapes are arguments, genes are macros. Returns 0, or an error number. */
#include "lanes.h"

#define EPSILON 1e-6
#define STRIDE (VEC * UNROLL)
#define KEEP_FLOATS 16384 /* a row longer than this is read again from `summed` */

#if IS(ACCUMULATE_double)
typedef double sums __attribute__((vector_size(VEC * 8), aligned(8)));
typedef double sum;
#define WIDEN(v) __builtin_convertvector(v, sums)
#else
typedef lanes sums;
typedef float sum;
#define WIDEN(v) (v)
#endif

typedef struct {
    const float *x, *residual, *weight;
    float *y, *summed;
    long rows, hidden;
} Job;

#if IS(REREAD_buffer)
static float kept[THREADS][BLOCK_ROWS][KEEP_FLOATS] __attribute__((aligned(64)));
#endif

#define LOAD(from) (*(const lanes *)(from))
INLINE void put(float *to, lanes v, int stream) {
    if (stream) STREAM_STORE(to, v);
    else *(lanes *)to = v;
}

#if PREFETCH
#define AHEAD(from) __builtin_prefetch((from) + PREFETCH);
#else
#define AHEAD(from)
#endif

/* ---- first pass over a row: the sum, and the sum of its squares ---- */

#define TOTAL(chain) JOIN(total, chain)
#define CLEAR(chain) sums TOTAL(chain) = {0};
#define MERGE(chain) all += TOTAL(chain);
#define ADD_STEP(u) ADD_STEP_ON(u, TOTAL(CHAIN(CHAINS, u)))
#define ADD_STEP_ON(u, total) \
    { \
        const lanes s = LOAD(x + j + u * VEC) + LOAD(r + j + u * VEC); \
        const sums wide = WIDEN(s); \
        AHEAD(x + j + u * VEC) AHEAD(r + j + u * VEC) \
        put(to + j + u * VEC, s, stream); \
        if (IS(REREAD_buffer) && keep) *(lanes *)(keep + j + u * VEC) = s; \
        total += wide * wide; \
    }

INLINE sum add_row(const float *x, const float *r, float *to, float *keep, long hidden,
                   int stream) {
    STEPS(CLEAR, CHAINS)
    long j = 0;
    for (; j + STRIDE <= hidden; j += STRIDE) { STEPS(ADD_STEP, UNROLL) }
    for (; j + VEC <= hidden; j += VEC) { ADD_STEP(0) }
    sums all = {0};
    STEPS(MERGE, CHAINS)
    sum squares = 0;
    for (int lane = 0; lane < VEC; lane++) squares += all[lane];
    for (; j < hidden; j++) {
        const float s = x[j] + r[j];
        to[j] = s;
        if (IS(REREAD_buffer) && keep) keep[j] = s;
        squares += (sum)s * (sum)s;
    }
    return squares;
}

/* ---- second pass: scale ---- */

#if DIVIDE
#define SCALED(s, w, root) ((s) / (root) * (w))
#else
#define SCALED(s, w, root) ((s) * (root) * (w))
#endif
#if IS(REREAD_inputs)
#define AGAIN(type, at) (*(const type *)(x + (at)) + *(const type *)(r + (at)))
#else
#define AGAIN(type, at) (*(const type *)(from + (at)))
#endif
#define SCALE_STEP(u) \
    { \
        const lanes s = AGAIN(lanes, j + u * VEC); \
        AHEAD(from + j + u * VEC) \
        put(y + j + u * VEC, SCALED(s, LOAD(w + j + u * VEC), root), stream); \
    }

INLINE void scale_row(const float *x, const float *r, const float *from, const float *w, float *y,
                      float root, long hidden, int stream) {
    (void)x, (void)r, (void)from;
    long j = 0;
    for (; j + STRIDE <= hidden; j += STRIDE) { STEPS(SCALE_STEP, UNROLL) }
    for (; j + VEC <= hidden; j += VEC) { SCALE_STEP(0) }
    for (; j < hidden; j++) y[j] = SCALED(AGAIN(float, j), w[j], root);
}

/* ---- blocks of rows ---- */

/* What a row's elements are divided by, or multiplied with. */
static float root_of(sum squares, long hidden) {
#if IS(ACCUMULATE_double)
    const double root = sqrt(squares / (double)hidden + EPSILON);
    return (float)(DIVIDE ? root : 1.0 / root);
#else
    const float root = sqrtf(squares / (float)hidden + (float)EPSILON);
    return DIVIDE ? root : 1.0f / root;
#endif
}

INLINE void first_pass(const Job *job, long row, float *keep, float *root, int stream) {
    const long at = row * job->hidden;
    *root = root_of(
        add_row(job->x + at, job->residual + at, job->summed + at, keep, job->hidden, stream),
        job->hidden);
}

INLINE void second_pass(const Job *job, long row, const float *keep, float root, int stream) {
    const long at = row * job->hidden;
    const float *from = keep ? keep : job->summed + at;
    scale_row(job->x + at, job->residual + at, from, job->weight, job->y + at, root, job->hidden,
              stream);
}

/* FUSE: both passes row by row; otherwise the first over the whole block, then the second. */
INLINE void block(const Job *job, long first, long last, int part, int stream) {
    float roots[BLOCK_ROWS];
    for (long row = first; row < last; row++) {
        float *keep = NULL;
#if IS(REREAD_buffer)
        if (job->hidden <= KEEP_FLOATS) keep = kept[part][FUSE ? 0 : row - first];
#endif
        first_pass(job, row, keep, &roots[row - first], IS(STREAM_both) && stream);
        if (FUSE) second_pass(job, row, keep, roots[row - first], !IS(STREAM_none) && stream);
    }
    for (long row = first; !FUSE && row < last; row++) {
        float *keep = NULL;
#if IS(REREAD_buffer)
        if (job->hidden <= KEEP_FLOATS) keep = kept[part][row - first];
#endif
        second_pass(job, row, keep, roots[row - first], !IS(STREAM_none) && stream);
    }
    (void)part;
}

static void normalise(const void *opaque, int part) {
    const Job *job = opaque;
    const uintptr_t places =
        (uintptr_t)job->y | (uintptr_t)job->summed | (uintptr_t)job->hidden * sizeof(float);
    const int stream = !IS(STREAM_none) && places % sizeof(lanes) == 0;
    const long blocks = (job->rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
#if SPLIT_contiguous
    const long run = (blocks + THREADS - 1) / THREADS, step = 1;
    const long from = run * part, to = MIN(blocks, from + run);
#else
    const long step = THREADS, from = part, to = blocks;
#endif
    for (long b = from; b < to; b += step) {
        const long first = b * BLOCK_ROWS, last = MIN(job->rows, first + BLOCK_ROWS);
        if (stream) block(job, first, last, part, 1);
        else block(job, first, last, part, 0);
    }
    if (stream) STREAM_FENCE();
}

int add_rmsnorm(const float *x, const float *residual, const float *weight, float *y,
                float *summed, long rows, long hidden) {
    const Job job = {x, residual, weight, y, summed, rows, hidden};
    return in_parallel(normalise, &job, THREADS);
}
