"""A plain matrix product, for comparison: the i-k-j loop nest that a careful student writes."""

from __future__ import annotations

from kernelarc.genomes import Choice, Space
from kernelarc.genomes.routes import Route

_SOURCE = """\
int naive_gemm(const float *restrict a, const float *restrict b, const float *restrict r,
               float *restrict c, long m, long n, long k) {
    for (long i = 0; i < m; i++) {
        for (long j = 0; j < n; j++) c[i * n + j] = r ? r[i * n + j] : 0.0f;
        for (long p = 0; p < k; p++)
            for (long j = 0; j < n; j++) c[i * n + j] += a[i * k + p] * b[p * n + j];
    }
    return 0;
}
"""


def naive_gemm_route() -> Route:
    """Return the route ``naive`` of gemm: one genome, ``-O3 -march=native``, one thread."""
    return Route(
        name="naive",
        operator="gemm",
        space=Space("naive", (Choice(name="optimise", options=("O3",)),)),
        source=_SOURCE,
        symbol="naive_gemm",
        arguments=("a", "b", "residual", "c", "M", "N", "K"),
        flags={"optimise": {"O3": ("-O3",)}},
        base_flags=("-std=gnu11", "-march=native"),
    )
