"""Records for the store's tests, made by hand. Strategies for any: ``store_strategies``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernelarc.genomes import (
    Allele,
    Axis,
    Candidate,
    Conclusion,
    ConclusionKind,
    Contest,
    Environment,
    Estimate,
    Evaluation,
    GeneChange,
    Genome,
    Judged,
    Measurement,
    Operator,
    Problem,
    Status,
    TensorSpec,
    Tolerance,
    Verdict,
    Workload,
)
from kernelarc.storage import CampaignSpec, ContestRecord, Entry, Event, Round

OPERATOR = Operator(
    name="gemm",
    axes={
        "M": Axis(name="M", kind="var", description="rows"),
        "K": Axis(name="K", kind="const", value=64),
        "L": Axis(name="L", kind="expr", expression="2 * M"),
    },
    inputs=(
        TensorSpec(name="A", shape=("M", "K"), dtype="float32"),
        TensorSpec(name="alpha", shape=None, dtype="float32", optional=True),
    ),
    outputs=(TensorSpec(name="C", shape=("M",), dtype="float32"),),
    reference="def run(A, alpha):\n    return A.sum(1)\n",
    flops="2 * M * K",
    bytes_moved="4 * M",
    op_type="gemm",
    description="a product",
)
SMALL = Workload(
    operator=OPERATOR.fingerprint,
    axes={"M": 128},
    uuid="small",
    inputs={"A": {"type": "random", "low": -1.5}},
    tolerance=Tolerance(max_atol=1e-3, max_error_cap=0.5),
    options={"residual": True},
)
LARGE = Workload(operator=OPERATOR.fingerprint, axes={"M": 4096})
PROBLEM = Problem(operator=OPERATOR, workloads=(LARGE, SMALL))
# A program that writes five events of its name into campaign 1, whoever else writes there.
RACE = """
import sys
from kernelarc.genomes import InputError
from kernelarc.storage import Event, open_writer
done = 0
while done < 5:
    try:
        with open_writer(sys.argv[1]) as writer:
            writer.append(1, [Event(kind=sys.argv[2] + str(done))])
            done += 1
    except InputError as error:
        assert 'in use' in str(error), error
"""

HERE = Environment(identity={"cpu": "this one", "cc": "12.2"}, observations={"load": "0.1"})
ELSEWHERE = Environment(identity={"cpu": "another", "cc": "12.2"})
SPEC = CampaignSpec(
    target="gemm", device="cpu", seed=2**70, problem=PROBLEM, settings={"budget": 10, "islands": []}
)


def genome(n: int) -> Genome:
    """Make a genome that is different for every ``n``."""
    return Genome("cpu", {"block": n, "unroll": 2, "order": ("i", ("j", "k")), "fast": False})


def candidate(number: int, *, n: int | None = None, workload: Workload = LARGE) -> Candidate:
    """Make candidate ``number`` with genome ``n``, by default that of its number."""
    return Candidate(
        number=number,
        round=number // 4,
        workload=workload.fingerprint,
        island="memory" if number % 2 else "tensor_core",
        mutation="step",
        genome=genome(number if n is None else n),
        parents=tuple(genome(parent).fingerprint for parent in range(number % 3)),
    )


def measured(
    asked: Candidate,
    objective: float,
    verdict: Verdict = Verdict.REVERT,
    *,
    censored: bool = False,
) -> Judged:
    """Make an OK evaluation."""
    measurement = Measurement(
        samples=(objective * 0.9, objective, objective * 1.25),
        objective=objective,
        censored=censored,
    )
    evaluation = Evaluation(
        candidate=asked,
        status=Status.OK,
        measurement=measurement,
        cost_s=0.25,
        properties={"max_error": 1e-6, "repeatable": True, "shape": (1, 2)},
    )
    return Judged(evaluation=evaluation, verdict=verdict)


def failed(asked: Candidate, status: Status, failure: str = "compiler crashed") -> Judged:
    """Make an evaluation that is not OK."""
    evaluation = Evaluation(candidate=asked, status=status, failure=failure, message="line 1: no")
    verdict = Verdict.REJECT if status is Status.REJECTED else Verdict.FAIL
    return Judged(evaluation=evaluation, verdict=verdict)


def trial(
    n: int,
    purpose: str,
    *,
    upheld: bool,
    workload: Workload = LARGE,
    against: str = "baseline:numpy",
    ratio: float = 1.5,
) -> ContestRecord:
    """Make the record of a contest over genome ``n``'s claim."""
    subject = genome(n).fingerprint
    contest = Contest(names=(subject, against), samples=((1.0, 1.5), (1.1, 1.6)))
    return ContestRecord(
        purpose=purpose,
        workload=workload.fingerprint,
        subject=subject,
        against=against,
        contest=contest,
        speedup=Estimate(value=ratio, low=ratio - 0.1, high=ratio + 0.1, n=2),
        upheld=upheld,
    )


def win(n: int) -> Conclusion:
    """Make a win about genome ``n``."""
    return Conclusion(
        kind=ConclusionKind.WIN,
        operator=OPERATOR.fingerprint,
        workload=LARGE.fingerprint,
        route="cpu",
        island="memory",
        why="wider vectors",
        changes=(GeneChange(gene="block", before=None, after=n),),
        genome=genome(n),
        speedup=Estimate(value=1.2, low=1.1, high=1.3, n=8),
        evidence=(0, n),
    )


def asked_and_told(n: int, *, start: int = 0) -> list[Entry]:
    """Make ``n`` candidates, then their evaluations."""
    asked = [candidate(number) for number in range(start, start + n)]
    return [*asked, *(measured(c, 100.0 + c.number) for c in asked)]


def telling_entries() -> list[Entry]:
    """Make one entry of every kind, in an order that a campaign could write."""
    first, second = candidate(0), candidate(1, workload=SMALL)
    return [
        Event(kind="started", payload={"by": ["test"], "nested": {"n": None}}, unix_s=1.5),
        Round(number=0, counts={"memory": {"asked": 4, "rejected": 1, "duplicate": 1}}),
        first,
        second,
        measured(first, 10.0, Verdict.KEEP),
        failed(second, Status.TIMEOUT),
        trial(0, "confirm", upheld=True),
        win(0),
        Event(kind="finished"),
    ]


def many(n: int, *, samples: int, rng: np.random.Generator) -> list[Entry]:
    """Make ``n`` candidates and evaluations as wide as real ones: the size budget's measure."""
    names = [
        *("block_m", "block_n", "block_k", "micro_m", "micro_n", "vector_width", "pack_a"),
        *("pack_b", "unroll", "prefetch_distance", "threads"),
    ]
    asked: list[Candidate] = []
    told: list[Judged] = []
    for number in range(n):
        chosen: dict[str, Allele] = {name: int(2 ** rng.integers(0, 10)) for name in names}
        made = Genome("cpu", {**chosen, "loop_order": ("i", "k", "j"), "flags": "-O3 -march=x"})
        handed = Candidate(
            number=number,
            round=number // 64,
            workload=LARGE.fingerprint,
            island="tensor_core",
            mutation="area_move",
            genome=made,
            parents=tuple(c.genome.fingerprint for c in asked[-2:]),
        )
        times = tuple(float(t) for t in rng.normal(1000.0, 10.0, samples))
        evaluation = Evaluation(
            candidate=handed,
            status=Status.OK,
            measurement=Measurement(samples=times, objective=float(np.median(times))),
            cost_s=float(rng.random()),
            properties={
                "max_error": float(rng.random()),
                "repeatable": True,
                "binary": made.fingerprint * 2,
            },
        )
        asked.append(handed)
        told.append(Judged(evaluation=evaluation, verdict=Verdict.REVERT))
    return [*asked, *told]


def same(left: object, right: object) -> bool:
    """Compare two entries; NaN samples, which stand for what could not be timed, are equal."""
    if isinstance(left, ContestRecord) and isinstance(right, ContestRecord):
        # Two NaN are never equal, but they are written alike; so is every float's last bit.
        alike = repr(left.contest.samples) == repr(right.contest.samples)
        return alike and _bare(left) == _bare(right)
    return left == right


def _bare(record: ContestRecord) -> tuple[object, ...]:
    contest = record.contest
    head = (record.purpose, record.workload, record.subject, record.against, record.upheld)
    return (*head, record.speedup, contest.names, dict(contest.failures), contest.unit)


def identical(left: Sequence[Entry], right: Sequence[Entry]) -> bool:
    """Compare two logs entry by entry."""
    return len(left) == len(right) and all(map(same, left, right))
