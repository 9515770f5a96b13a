"""A campaign without a find says what that points to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kernelarc.engine._suspicions import suspicions
from kernelarc.genomes import (
    Allele,
    Candidate,
    Environment,
    Evaluation,
    Genome,
    Judged,
    Measurement,
    Problem,
    Status,
    Verdict,
    Workload,
    builtin_operators,
)
from kernelarc.storage import CampaignSpec, Entry, Round, open_writer

GEMM = builtin_operators()["gemm"]
WORKLOAD = Workload(operator=GEMM.fingerprint, axes={"M": 8, "N": 8, "K": 8})


FAILURES = {Status.LAUNCH_ERROR: "launch refused", Status.COMPILE_ERROR: "does not compile"}


def said(tmp_path: Path, outcomes: Sequence[tuple[Status, str | None]]) -> tuple[str, ...]:
    """Return the remarks on a campaign whose genomes had these outcomes and binaries."""
    entries: list[Entry] = [Round(number=0, counts={})]
    for number, (status, binary) in enumerate(outcomes):
        candidate = Candidate(
            number=number, round=0, workload=WORKLOAD.fingerprint, island="memory",
            mutation="step", genome=Genome("demo", {"block": number}),
        )  # fmt: skip
        ok = status is Status.OK
        seen: dict[str, Allele] = {} if binary is None else {"binary": binary}
        evaluation = Evaluation(
            candidate=candidate,
            status=status,
            measurement=Measurement(samples=(1.0,), objective=1.0) if ok else None,
            failure=None if ok else FAILURES.get(status, "wrong"),
            message="" if ok else "off by 3",
            properties=seen,
        )
        entries += [candidate, Judged(evaluation=evaluation, verdict=Verdict.ACCEPT)]
    spec = CampaignSpec(
        target="t", device="cuda:0", seed=0, settings={},
        problem=Problem(operator=GEMM, workloads=(WORKLOAD,)),
    )  # fmt: skip
    with open_writer(tmp_path / "s.db", create=True) as writer:
        campaign = writer.begin(spec, Environment(identity={"device": "d"}))
        writer.append(campaign, entries)
        return suspicions(writer, campaign)


OK, WRONG, LATE = Status.OK, Status.WRONG_RESULT, Status.TIMEOUT
REFUSED, BROKEN = Status.LAUNCH_ERROR, Status.COMPILE_ERROR


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        ([(WRONG, "a"), (LATE, "b"), (WRONG, "c")], ["the reference may be wrong (off by 3)"]),
        ([(WRONG, "a"), (OK, "b")], []),
        ([(WRONG, "a"), (LATE, "b")], ["2 of 2 failed with: wrong (off by 3)"]),
        ([(LATE, "a"), (BROKEN, "b"), (BROKEN, "c")], ["2 of 3 failed with: does not compile"]),
        ([(OK, "a"), (OK, "a"), (OK, "a")], ["all 3 genomes compile to one and the same code"]),
        ([(OK, "a"), (OK, "b")], []),
        ([(OK, "a"), (OK, "a"), (LATE, None)], []),
        ([(OK, None), (OK, None)], []),
        ([(BROKEN, None), (REFUSED, "a"), (REFUSED, "b")], ["the driver refuses each of the 2"]),
        ([(REFUSED, "a"), (OK, "b")], []),
    ],
)
def test_suspicions(
    tmp_path: Path, outcomes: list[tuple[Status, str | None]], words: list[str]
) -> None:
    found = said(tmp_path, outcomes)
    assert len(found) == len(words)
    for remark, expected in zip(found, words, strict=True):
        assert expected in remark
