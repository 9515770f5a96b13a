"""Search a C kernel of one's own: an operator, a route whose genes are macros, a campaign."""

import kernelarc

SOURCE = """
#include <stdint.h>

/* y[r] = sum of row r, in LANES partial sums. */
int row_sums(const float *x, float *y, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; ++r) {
        const float *row = x + r * columns;
        float lanes[LANES] = {0}, sum = 0;
        int64_t c = 0;
        for (; c + LANES <= columns; c += LANES)
            for (int l = 0; l < LANES; ++l)
                lanes[l] += row[c + l];
        for (int l = 0; l < LANES; ++l)
            sum += lanes[l];
        for (; c < columns; ++c)
            sum += row[c];
        y[r] = sum;
    }
    return 0;
}
"""

OPERATOR = kernelarc.Operator(
    name="row_sums",
    axes={name: kernelarc.Axis(name=name, kind="var") for name in ("rows", "columns")},
    inputs=(kernelarc.TensorSpec(name="x", shape=("rows", "columns"), dtype="float32"),),
    outputs=(kernelarc.TensorSpec(name="y", shape=("rows",), dtype="float32"),),
    reference="def run(x):\n    return x.sum(axis=1)\n",
    flops="rows * columns",
    bytes_moved="4 * (rows * columns + rows)",
)
"""The job itself; candidates are checked against its reference in float64."""

ROUTE = kernelarc.Route(
    name="partial_sums",
    operator="row_sums",
    source=SOURCE,
    symbol="row_sums",
    arguments=("x", "y", "rows", "columns"),
    # The gene `lanes` becomes the macro LANES; the other two become compiler flags.
    space=kernelarc.Space(
        "partial_sums",
        (
            kernelarc.PowerOfTwo(name="lanes", low=1, high=64),
            kernelarc.Choice(name="level", options=("O1", "O2", "O3")),
            kernelarc.Boolean(name="native"),
        ),
    ),
    flags={
        "level": {"O1": ("-O1",), "O2": ("-O2",), "O3": ("-O3",)},
        "native": {False: (), True: ("-march=native",)},
    },
)


def main() -> None:
    """Search a few of its 42 genomes on a small workload."""
    workload = kernelarc.Workload(
        operator=OPERATOR.fingerprint,
        axes={"rows": 256, "columns": 1000},
        inputs={"x": {"type": "random"}},
        tolerance=kernelarc.Tolerance(max_atol=1e-3, max_rtol=1e-4, required_matched_ratio=1.0),
    )
    result = kernelarc.run(
        kernelarc.CampaignSettings(target="row_sums", budget=6, store="own.db", audit_rounds=10),
        device=kernelarc.CpuDevice(routes=[ROUTE]),
        problem=kernelarc.Problem(operator=OPERATOR, workloads=(workload,)),
    )
    assert result.best is not None
    print(f"{dict(result.best.genome)}: {result.best.latency_us:.1f} us")
    print(f"over {result.best.against}: {result.best.speedup}")


if __name__ == "__main__":
    main()
