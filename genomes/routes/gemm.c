/* C = A.B + R in float32, all row-major and dense; R may be NULL. Shapes are arguments, genes are
   macros. Cache blocks MC x KC of A and KC x NC of B around a register tile of MR rows and NV
   vectors of VEC floats. Returns 0, or an error number. Not reentrant: packed blocks are static. */
#include "lanes.h"

#define NR (NV * VEC)
#define PARTS (THREADS / K_SPLIT)
#define RESIDUAL_FIRST IS(EPILOGUE_first)   /* with the first block of K */
#define RESIDUAL_BEFORE IS(EPILOGUE_before) /* in a pass of its own, which all blocks add to */
#define RESIDUAL_LAST IS(EPILOGUE_last)     /* with the last block of K */
#define RESIDUAL_AFTER IS(EPILOGUE_after)   /* in a pass of its own at the end */
#define PACKED_FLOATS_A (PACK_A ? MC * KC : MR * KC) /* unpacked: only a ragged edge is copied */
#define PACKED_FLOATS_B (PACK_B ? NC * KC : NR * KC)

typedef struct {
    const float *a, *b, *r;
    float *c, *partial;
    long m, n, k;
} Job;

/* One thread's rectangle of C and slice of K. `r` and `into` are what this slice adds and writes. */
typedef struct {
    const float *a, *b, *r;
    float *into;
    long n, k, m0, m1, n0, n1, k0, k1;
    float *packed_a, *packed_b;
    long a_row, a_depth, b_col, b_depth; /* which blocks are packed now, or -1 */
} Region;

static float all_packed_a[THREADS][PACKED_FLOATS_A] __attribute__((aligned(64)));
static float all_packed_b[THREADS][PACKED_FLOATS_B] __attribute__((aligned(64)));

/* ---- the register tile ---- */

#define ACC(chain, i, j) JOIN(JOIN(acc, chain), JOIN(JOIN(_, i), JOIN(_, j)))
#define CLEAR(i, j, chain) lanes ACC(chain, i, j) = {0};
#define CLEAR_ROW(i, chain) COLS(CLEAR, NV, i, chain)
#define LOAD_B(i, j, depth) lanes b##j = *(const lanes *)(b + (depth) * ldb + j * VEC); HOLD(b##j)
#define MULTIPLY(i, j, chain) ACC(chain, i, j) += b##j * from_a;
#define MULTIPLY_ROW(i, chain) \
    { const float from_a = a[A_AT(i, depth)]; COLS(MULTIPLY, NV, i, chain) }
#define MERGE(i, j, chain) ACC(0, i, j) += ACC(chain, i, j);
#define MERGE_ROW(i, chain) COLS(MERGE, NV, i, chain)

#if PACK_A
#define A_AT(i, depth) ((depth) * MR + i)
#else
#define A_AT(i, depth) ((i) * lda + (depth))
#endif

#if PREFETCH
#define AHEAD(depth) \
    __builtin_prefetch(b + ((depth) + PREFETCH) * ldb); \
    if (PACK_A) __builtin_prefetch(a + A_AT(0, (depth) + PREFETCH));
#else
#define AHEAD(depth)
#endif

#define STEP(u) STEP_ON(u, CHAIN(K_CHAINS, u))
#define STEP_ON(u, chain) \
    { const long depth = p + u; AHEAD(depth) COLS(LOAD_B, NV, 0, depth) ROWS(MULTIPLY_ROW, MR, chain) }

#define FETCH_ROW(i, c) __builtin_prefetch((c) + (i) * ldc, 1);
#define ADD_TO(i, j, from) ACC(0, i, j) += *(const lanes *)((from) + (i) * ldc + j * VEC);
#define ADD_ROW(i, from) COLS(ADD_TO, NV, i, from)
#define STORE(i, j, to) *(lanes *)((to) + (i) * ldc + j * VEC) = ACC(0, i, j);
#define STORE_ROW(i, to) COLS(STORE, NV, i, to)

/* c[MR][NR] (row stride ldc) = sum over p of a.b, plus c itself when `add`, plus r when given. */
APART void tile(long depth_end, const float *restrict a, long lda, const float *restrict b,
                long ldb, float *restrict c, long ldc, int add, const float *restrict r) {
    ROWS(CLEAR_ROW, MR, 0)
#if K_CHAINS > 1
    ROWS(CLEAR_ROW, MR, 1)
#endif
#if PREFETCH_C
    ROWS(FETCH_ROW, MR, c)
#endif
    long p = 0;
    for (; p + UNROLL <= depth_end; p += UNROLL) { STEPS(STEP, UNROLL) }
    for (; p < depth_end; p++) { STEP_ON(0, 0) }
#if K_CHAINS > 1
    ROWS(MERGE_ROW, MR, 1)
#endif
    (void)lda;
    if (add) { ROWS(ADD_ROW, MR, c) }
    if (r) { ROWS(ADD_ROW, MR, r) }
    ROWS(STORE_ROW, MR, c)
}

/* A tile that hangs over the edge of C: computed aside, then the part that exists is copied. */
APART void edge_tile(long depth_end, const float *a, long lda, const float *b, long ldb, float *c,
                     long ldc, int add, const float *r, long rows, long cols) {
    float aside[MR * NR] __attribute__((aligned(64)));
    tile(depth_end, a, lda, b, ldb, aside, NR, 0, NULL);
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < cols; j++) {
            float sum = aside[i * NR + j];
            if (add) sum += c[i * ldc + j];
            if (r) sum += r[i * ldc + j];
            c[i * ldc + j] = sum;
        }
}

/* ---- packing: missing rows and columns become zeros ---- */

#define PACK(i, p) to[(p) * MR + (i)] = a[(i) * lda + (p)];

/* PACK_A: [depth][MR]; otherwise rows of KC floats, used for the ragged last rows only. */
APART void pack_rows(const float *restrict a, long lda, long rows, long depth,
                     float *restrict to) {
#if PACK_A
    if (rows == MR) {
        for (long p = 0; p < depth; p++) { ROWS(PACK, MR, p) }
        return;
    }
    for (long p = 0; p < depth; p++)
        for (long i = 0; i < MR; i++) to[p * MR + i] = i < rows ? a[i * lda + p] : 0.0f;
#else
    memset(to, 0, sizeof(float) * MR * KC);
    for (long i = 0; i < rows; i++) memcpy(to + i * KC, a + i * lda, sizeof(float) * (size_t)depth);
#endif
}

APART void pack_cols(const float *b, long ldb, long cols, long depth, float *to) {
    if (cols == NR) {
        for (long p = 0; p < depth; p++)
            for (long j = 0; j < NR; j += VEC)
                *(lanes *)(to + p * NR + j) = *(const lanes *)(b + p * ldb + j);
        return;
    }
    for (long p = 0; p < depth; p++)
        for (long j = 0; j < NR; j++) to[p * NR + j] = j < cols ? b[p * ldb + j] : 0.0f;
}

static void prepare_a(Region *g, long i0, long p0, long rows, long depth) {
    if (g->a_row == i0 && g->a_depth == p0) return;
    g->a_row = i0, g->a_depth = p0;
    const float *from = g->a + i0 * g->k + p0;
    long first = PACK_A ? 0 : rows / MR * MR;
    for (long i = first; i < rows; i += MR)
        pack_rows(from + i * g->k, g->k, MIN(MR, rows - i), depth,
                  g->packed_a + (PACK_A ? i * depth : 0));
}

static void prepare_b(Region *g, long j0, long p0, long cols, long depth) {
    if (g->b_col == j0 && g->b_depth == p0) return;
    g->b_col = j0, g->b_depth = p0;
    const float *from = g->b + p0 * g->n + j0;
    long first = PACK_B ? 0 : cols / NR * NR;
    for (long j = first; j < cols; j += NR)
        pack_cols(from + j, g->n, MIN(NR, cols - j), depth, g->packed_b + (PACK_B ? j * depth : 0));
}

/* ---- cache blocks ---- */

#define LOOP_m for (long i0 = g->m0; i0 < g->m1; i0 += MC)
#define LOOP_n for (long j0 = g->n0; j0 < g->n1; j0 += NC)
#define LOOP_k for (long p0 = g->k0; p0 < g->k1; p0 += KC)
#define TILE_LOOP_m for (long i = 0; i < rows; i += MR)
#define TILE_LOOP_n for (long j = 0; j < cols; j += NR)

APART void block(Region *g, long i0, long j0, long p0) {
    const long rows = MIN(MC, g->m1 - i0), cols = MIN(NC, g->n1 - j0), depth = MIN(KC, g->k1 - p0);
    const int add = RESIDUAL_BEFORE || p0 > g->k0;
    const int residual_now = RESIDUAL_FIRST ? p0 == g->k0 : RESIDUAL_LAST && p0 + KC >= g->k1;
    const float *r = residual_now && g->r ? g->r + i0 * g->n + j0 : NULL;
    prepare_a(g, i0, p0, rows, depth);
    prepare_b(g, j0, p0, cols, depth);
    JOIN(TILE_LOOP_, TILE_ORDER_1) JOIN(TILE_LOOP_, TILE_ORDER_2) {
        const int whole_rows = i + MR <= rows, whole_cols = j + NR <= cols;
        const float *a = PACK_A ? g->packed_a + i * depth
                                : (whole_rows ? g->a + (i0 + i) * g->k + p0 : g->packed_a);
        const float *b = PACK_B ? g->packed_b + j * depth
                                : (whole_cols ? g->b + p0 * g->n + j0 + j : g->packed_b);
        const long lda = whole_rows ? g->k : KC, ldb = PACK_B || !whole_cols ? NR : g->n;
        float *c = g->into + (i0 + i) * g->n + j0 + j;
        const float *add_r = r ? r + i * g->n + j : NULL;
        if (whole_rows && whole_cols)
            tile(depth, a, lda, b, ldb, c, g->n, add, add_r);
        else
            edge_tile(depth, a, lda, b, ldb, c, g->n, add, add_r, MIN(MR, rows - i),
                      MIN(NR, cols - j));
    }
}

/* Splits `size` into `parts` runs of whole tiles; the last ones may be shorter or empty. */
static void cut(long size, long tile_size, int parts, int part, long *from, long *to) {
    const long run = ROUND_UP((size + parts - 1) / parts, tile_size);
    *from = MIN(size, run * part), *to = MIN(size, run * (part + 1));
}

/* The separate passes over this part's rectangle of `into`. */
static void copy_or_clear(const Region *g) {
    for (long i = g->m0; i < g->m1; i++) {
        float *c = g->into + i * g->n + g->n0;
        const size_t bytes = sizeof(float) * (size_t)(g->n1 - g->n0);
        if (g->r) memcpy(c, g->r + i * g->n + g->n0, bytes);
        else memset(c, 0, bytes);
    }
}

static void add_over(float *restrict c, const float *restrict from, const Region *g) {
    for (long i = g->m0; i < g->m1; i++)
        for (long j = g->n0; j < g->n1; j++) c[i * g->n + j] += from[i * g->n + j];
}

static Region region_of(const Job *job, int part) {
    Region g = {.a = job->a, .b = job->b, .n = job->n, .k = job->k, .m1 = job->m, .n1 = job->n};
    const int slice = part / PARTS;
    cut(job->k, 1, K_SPLIT, slice, &g.k0, &g.k1);
#if SPLIT_m
    cut(job->m, MR, PARTS, part % PARTS, &g.m0, &g.m1);
#else
    cut(job->n, NR, PARTS, part % PARTS, &g.n0, &g.n1);
#endif
    g.r = slice ? NULL : job->r;
    g.into = slice ? job->partial + (slice - 1) * job->m * job->n : job->c;
    g.packed_a = all_packed_a[part], g.packed_b = all_packed_b[part];
    g.a_row = g.a_depth = g.b_col = g.b_depth = -1;
    return g;
}

static void multiply(const void *opaque, int part) {
    Region region = region_of(opaque, part), *g = &region;
    if (RESIDUAL_BEFORE || g->k0 == g->k1) copy_or_clear(g);
    JOIN(LOOP_, LOOP_ORDER_1) JOIN(LOOP_, LOOP_ORDER_2) JOIN(LOOP_, LOOP_ORDER_3)
        block(g, i0, j0, p0);
    if (RESIDUAL_AFTER && g->r) add_over(g->into, g->r, g);
}

#if K_SPLIT > 1
/* Second pass: every thread adds the slices' partial sums over its own rows. */
static void merge(const void *opaque, int part) {
    const Job *job = opaque;
    Region g = {.n = job->n, .n1 = job->n};
    cut(job->m, 1, THREADS, part, &g.m0, &g.m1);
    for (long slice = 1; slice < K_SPLIT; slice++)
        add_over(job->c, job->partial + (slice - 1) * job->m * job->n, &g);
}
#endif

int gemm(const float *a, const float *b, const float *r, float *c, long m, long n, long k) {
    Job job = {a, b, r, c, NULL, m, n, k};
#if K_SPLIT > 1
    job.partial = malloc(sizeof(float) * (size_t)(K_SPLIT - 1) * (size_t)m * (size_t)n);
    if (!job.partial) return 12;
    int failed = in_parallel(multiply, &job, THREADS);
    if (!failed) failed = in_parallel(merge, &job, THREADS);
    free(job.partial);
    return failed;
#else
    return in_parallel(multiply, &job, THREADS);
#endif
}
