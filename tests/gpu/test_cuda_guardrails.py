"""Every fault is planted in the launch and must be caught; the honest twin must pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from kernelarc.bench._numerics import (
    ERROR_ABOVE_CAP,
    MISMATCH,
    NOT_EXACT,
    NOT_FINITE,
    PRECISION_LOWERED,
    ZERO_OUTPUT,
)
from kernelarc.bench.cuda._arena import BAND_BYTES
from kernelarc.bench.cuda._contest import ContestRing
from kernelarc.bench.cuda._jobbench import JobBench
from kernelarc.bench.cuda._judge import (
    INPUT_CHANGED,
    NOT_REPEATABLE,
    OUT_OF_BOUNDS,
    TOO_FAST,
)
from kernelarc.bench.cuda._protocol import Outcome
from kernelarc.bench.cuda._session import _task
from kernelarc.genomes import LtRow, MatmulForm, Status, matmul_operator, matmul_problem
from kernelarc.genomes.routes._cublaslt import REDUCTIONS

Launch = Callable[..., None]
NUMERIC = {MISMATCH, ERROR_ABOVE_CAP, PRECISION_LOWERED, NOT_EXACT}


class Call(NamedTuple):
    """The arguments of a launch."""

    algorithm: Any
    addresses: tuple[int, int, int, int]
    workspace: tuple[int, int]
    stream: int
    alpha: float = 1.0


class Bench:
    """One job in this process, with a launch that can be replaced."""

    def __init__(self, *, residual: bool, deterministic: bool = False, k: int = 1000) -> None:
        from kernelarc.bench.cuda._workbench import Workbench

        problem = matmul_problem(
            matmul_operator(MatmulForm(residual=residual)),
            [{"M": 320, "N": 512, "K": k}],
            in_place=residual,
        )
        self.work = Workbench(0)
        task = _task(problem, problem.workloads[0])
        if deterministic:
            from dataclasses import replace

            task = replace(task, deterministic=True)
        self.work.open([task], 7)
        reply = self.work.domain(0)
        assert reply.baseline is not None
        self.row: LtRow = reply.baseline
        self.job: JobBench = self.work._bench(0)
        self.honest: Launch = self.job.matmul.launch
        self.runtime: Any = self.work._cp.cuda.runtime
        self.calls = 0

    def plant(self, fault: Callable[[Bench, Call], None]) -> None:
        def launch(*arguments: Any) -> None:
            self.calls += 1
            fault(self, Call(*arguments))

        self.job.matmul.launch = launch  # type: ignore[method-assign, assignment]
        self.calls = 0

    def evaluate(self) -> Outcome:
        return self.job.evaluate(1, self.row, None)

    def out_bytes(self) -> int:
        return self.job.arena.sets[0].out.nbytes


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "in place"])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(residual=request.param)


@pytest.fixture(autouse=True)
def restored(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "bench" in request.fixturenames:
        bench = request.getfixturevalue("bench")
        bench.job.matmul.launch = bench.honest
        bench.job.renew()


def test_honest_twin_passes(bench: Bench) -> None:
    outcome = bench.evaluate()
    assert (outcome.status, outcome.failure) == (Status.OK, None), outcome.message
    assert outcome.properties["repeatable"] is True
    assert len(outcome.samples) >= 4


def nothing(bench: Bench, call: Call) -> None:
    """Row 1: the output is never written."""


def zeros(bench: Bench, call: Call) -> None:
    """Row 2: zeros where an absolute tolerance would not mind."""
    bench.runtime.memsetAsync(call.addresses[3], 0, bench.out_bytes(), call.stream)


def one_nan(bench: Bench, call: Call) -> None:
    """Row 3: one element is not finite."""
    bench.honest(*call)
    bench.runtime.memsetAsync(call.addresses[3] + 4096, 0xFF, 2, call.stream)


def one_wrong(bench: Bench, call: Call) -> None:
    """Row 4: all but one element match."""
    bench.honest(*call)
    bench.runtime.memsetAsync(call.addresses[3] + 4096, 0x42, 2, call.stream)  # 48.5 in bfloat16


def off_by_a_row(bench: Bench, call: Call) -> None:
    """Row 5: an indexing error, here A read one element late."""
    a, b, c, d = call.addresses
    bench.honest(*call._replace(addresses=(a + 16, b, c, d)))


def beside(bench: Bench, call: Call) -> None:
    """Row 11: sixteen bytes behind the output."""
    bench.honest(*call)
    bench.runtime.memsetAsync(call.addresses[3] + bench.out_bytes(), 0, 16, call.stream)


def over_scratch(bench: Bench, call: Call) -> None:
    """Row 11: more scratch memory than granted."""
    bench.honest(*call)
    bench.runtime.memsetAsync(
        call.workspace[0] + call.workspace[1] + BAND_BYTES - 8, 0, 8, call.stream
    )


def into_input(bench: Bench, call: Call) -> None:
    """Row 12: the candidate writes to A after reading it."""
    bench.honest(*call)
    bench.runtime.memsetAsync(call.addresses[0], 0, 64, call.stream)


def elsewhere(bench: Bench, call: Call) -> None:
    """Rows 20 to 22: nothing runs while a graph is captured, so nothing is timed."""
    if not bench.runtime.streamIsCapturing(call.stream):
        bench.honest(*call)


FAULTS: list[tuple[Callable[[Bench, Call], None], set[str]]] = [
    (nothing, NUMERIC | {NOT_FINITE}),
    (zeros, NUMERIC | {ZERO_OUTPUT}),
    (one_nan, {NOT_FINITE}),
    (one_wrong, {ERROR_ABOVE_CAP}),
    (off_by_a_row, NUMERIC),
    (beside, {OUT_OF_BOUNDS}),
    (over_scratch, {OUT_OF_BOUNDS}),
    (into_input, {INPUT_CHANGED}),
    (elsewhere, {TOO_FAST}),
]


@pytest.mark.parametrize(("fault", "classes"), FAULTS, ids=[f.__name__ for f, _ in FAULTS])
def test_planted_fault_is_caught(
    bench: Bench, fault: Callable[[Bench, Call], None], classes: set[str]
) -> None:
    bench.plant(fault)
    outcome = bench.evaluate()
    assert outcome.status is Status.WRONG_RESULT, fault.__doc__
    assert outcome.failure in classes, outcome.message


def test_right_once_wrong_later_is_caught(bench: Bench) -> None:
    """Row 7: correct in the first ten launches only."""

    def tires(bench: Bench, call: Call) -> None:
        if bench.calls <= 10:
            bench.honest(*call)

    bench.plant(tires)
    assert bench.evaluate().status is Status.WRONG_RESULT


@pytest.mark.parametrize("parts", [12, 24])
def test_partial_sums_in_the_type_of_the_output_are_caught(parts: int) -> None:
    """Row 10: K is done in parts, each added to the output in bfloat16; zeros and ones stay exact.

    Of 12 parts only the precision that float32 sums have catches the sum; 24 lie near the
    tolerance's edge, and either may see them first.
    """
    from kernelarc.bench.cuda._library import Matmul, Side

    bench = Bench(residual=True, k=960)
    whole = bench.job.matmul
    depth = whole.job.k // parts

    class Part(Matmul):
        def _layout(self, kind: int, rows: int, columns: int, transposed: bool) -> int:
            k = self.job.k
            lead = columns if transposed else rows
            rows, columns = (depth if size == k else size for size in (rows, columns))
            stored = (columns, rows) if transposed else (rows, columns)
            return int(self.lt.matrix_layout_create(kind, stored[0], stored[1], lead))

    job = whole.job
    part = Part(whole.lt, whole.handle, job, Side())
    rows = part.heuristics(0)
    algorithm = next(found for row in rows if (found := part.algorithm(row)) is not None)
    step_a = 2 * depth * (job.m if job.transpose_a else 1)
    step_b = 2 * depth * (1 if job.transpose_b else job.n)

    def in_parts(bench: Bench, call: Call) -> None:
        a, b, c, d = call.addresses
        for i in range(parts):
            source = c if i == 0 else d
            part.launch(
                algorithm, (a + i * step_a, b + i * step_b, source, d), (call.workspace[0], 0),
                call.stream, call.alpha,
            )  # fmt: skip

    bench.plant(in_parts)
    outcome = bench.evaluate()
    expected = {PRECISION_LOWERED} | ({MISMATCH, ERROR_ABOVE_CAP} if parts == 24 else set())
    assert outcome.status is Status.WRONG_RESULT, "partial sums rounded to bfloat16"
    assert outcome.failure in expected, outcome.message


def test_reduction_schemes_are_taken_only_where_the_result_is_right() -> None:
    """Row 10: what keeps partial sums in another type passes where one rounding may err as much."""
    bench = Bench(residual=False)
    domain = bench.work.domain(0).domain
    schemes = {value: name for name, value in REDUCTIONS.items()}
    rng = np.random.default_rng(3)
    judged: dict[str, set[Status]] = {}
    for algo in domain.algos:
        for scheme in algo.reductions[1:]:
            tried = [
                (algo.algo, int(rng.choice(algo.tiles)), 4, scheme, 0, 0,
                 int(rng.choice(algo.stages)), 0, algo.clusters[0], bench.row[9], 0)
                for _ in range(40)
            ]  # fmt: skip
            status, _ = bench.work.check(0, np.array(tried, dtype=np.int64))
            for row in [row for row, code in zip(tried, status, strict=True) if code == 0][:2]:
                outcome = bench.job.evaluate(1, row, None)
                judged.setdefault(schemes[scheme], set()).add(outcome.status)
                if outcome.status is Status.OK:
                    error = outcome.properties["rms_error"]
                    assert isinstance(error, float) and error <= bench.job.ruler.allowed_rms
    assert Status.OK in judged["compute"], "partial sums in float32 are right"


def test_a_dropped_tail_of_k_is_caught_by_the_canary(bench: Bench) -> None:
    """Row 5: K is 1000, of which the last eight are lost: within a loose tolerance."""
    from kernelarc.bench.cuda._library import Matmul, Side

    class Tailless(Matmul):
        def _layout(self, kind: int, rows: int, columns: int, transposed: bool) -> int:
            k = self.job.k
            lead = columns if transposed else rows
            rows, columns = (size - 8 if size == k else size for size in (rows, columns))
            stored = (columns, rows) if transposed else (rows, columns)
            return int(self.lt.matrix_layout_create(kind, stored[0], stored[1], lead))

    old = bench.job.matmul
    short = Tailless(old.lt, old.handle, old.job, Side())

    def drops(bench: Bench, call: Call) -> None:
        shorter = short.algorithm(call.algorithm.row)
        assert shorter is not None
        short.launch(*call._replace(algorithm=shorter))

    bench.plant(drops)
    outcome = bench.evaluate()
    assert outcome.status is Status.WRONG_RESULT
    from dataclasses import replace

    ruler = bench.job.ruler
    loose = replace(ruler.tolerance, max_atol=1.0, max_rtol=1.0)
    bench.job.ruler = replace(ruler, tolerance=loose, allowed_rms=1.0)
    try:
        outcome = bench.evaluate()
    finally:
        bench.job.ruler = ruler
    assert (outcome.status, outcome.failure) == (Status.WRONG_RESULT, NOT_EXACT)


@pytest.mark.parametrize("deterministic", [False, True])
def test_differing_runs_are_a_property_or_a_failure(deterministic: bool) -> None:
    """Row 8: the last bit of one element depends on how often it ran."""
    bench = Bench(residual=False, deterministic=deterministic)
    cupy = bench.work._cp
    flip = cupy.RawKernel(
        'extern "C" __global__ void flip(unsigned short* x, int by) { x[0] ^= by; }', "flip"
    )

    def wavers(bench: Bench, call: Call) -> None:
        bench.honest(*call)
        with bench.work._ready().stream:
            flip((1,), (1,), (np.uint64(call.addresses[3]), np.int32(bench.calls % 3 == 1)))

    bench.plant(wavers)
    outcome = bench.evaluate()  # compares the first launch with the third; the second is exact
    if deterministic:
        assert (outcome.status, outcome.failure) == (Status.WRONG_RESULT, NOT_REPEATABLE)
    else:
        assert outcome.status is Status.OK, outcome.message
        assert outcome.properties["repeatable"] is False


def test_a_contest_names_only_the_faulty_contender(bench: Bench) -> None:
    rows = [row for _, row in bench.work.domain(0).seeds][:3]
    reply = ContestRing(bench.job).run(rows, 8, "cold", 1)
    assert not reply.failures

    def fails_one(bench: Bench, call: Call) -> None:
        if call.algorithm.row != rows[1]:
            bench.honest(*call)

    bench.plant(fails_one)
    reply = ContestRing(bench.job).run(rows, 8, "cold", 1)
    assert set(reply.failures) == {1}


def test_what_is_clearly_slower_is_censored(bench: Bench) -> None:
    honest = bench.evaluate()
    censored = bench.job.evaluate(2, bench.row, min(honest.samples) / 4)
    assert censored.status is Status.OK and censored.censored
    assert not bench.job.evaluate(3, bench.row, max(honest.samples)).censored
