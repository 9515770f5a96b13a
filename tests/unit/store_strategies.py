"""Hypothesis strategies for every record that a store holds."""

from __future__ import annotations

import math

from hypothesis import strategies as st
from tests.unit.store_records import LARGE

from kernelarc.genomes import (
    Allele,
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
    Status,
    Verdict,
)
from kernelarc.storage import ContestRecord, Event, Round

_words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
_finite = st.floats(allow_nan=False, allow_infinity=False)
_positive = st.floats(min_value=5e-324, max_value=math.inf, exclude_max=True)
_prints = st.from_regex(r"\A[0-9a-f]{24}\Z")
_plain_alleles = st.one_of(st.booleans(), st.integers(-(2**80), 2**80), _finite, _words)
alleles: st.SearchStrategy[Allele] = st.recursive(
    _plain_alleles, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4
)
genomes = st.builds(
    Genome, st.sampled_from(["cpu", "triton"]), st.dictionaries(_words, alleles, max_size=5)
)
environments = st.builds(
    Environment,
    identity=st.dictionaries(_words, _words, max_size=3),
    observations=st.dictionaries(_words, _words, max_size=3),
)
measurements = st.builds(
    Measurement,
    samples=st.lists(st.floats(allow_nan=False), max_size=25).map(tuple),
    objective=st.floats(allow_nan=False),
    unit=st.sampled_from(["us", "ms", "GFLOP/s"]),
    censored=st.booleans(),
    cache=st.sampled_from(["cold", "warm", "recorded"]),
    launches=st.integers(1, 2**31),
)
estimates = st.builds(
    Estimate, value=_finite, low=_finite, high=_finite, n=st.integers(1, 1000), confidence=_finite
)
rounds = st.builds(
    Round,
    number=st.just(0),
    counts=st.dictionaries(_words, st.dictionaries(_words, st.integers(0, 2**40), max_size=3)),
)
_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), _finite, _words),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=3),
    max_leaves=6,
)
events = st.builds(
    Event, kind=_words, payload=st.dictionaries(_words, _json, max_size=3), unix_s=_finite
)
conclusions = st.builds(
    Conclusion,
    kind=st.sampled_from(ConclusionKind),
    operator=_prints,
    workload=_prints,
    route=_words,
    island=_words,
    why=_words,
    changes=st.lists(
        st.builds(GeneChange, gene=_words, before=st.none() | alleles, after=st.none() | alleles),
        max_size=2,
    ).map(tuple),
    genome=st.none() | genomes,
    region=st.dictionaries(_words, alleles, max_size=2),
    failure=st.none() | _words,
    speedup=st.none() | estimates,
    evidence=st.lists(st.integers(0, 2**40), max_size=3).map(tuple),
    retracts=st.none() | _prints,
    predicate=st.none() | _words,
)


@st.composite
def contests(draw: st.DrawFn) -> ContestRecord:
    """Draw a contest record; columns of failed contenders hold NaN."""
    names = draw(st.lists(_words, min_size=1, max_size=4, unique=True))
    failing = draw(st.sets(st.sampled_from(names)))
    row = st.tuples(*(st.just(math.nan) if name in failing else _positive for name in names))
    contest = Contest(
        names=tuple(names),
        samples=tuple(draw(st.lists(row, max_size=5))),
        failures=dict.fromkeys(sorted(failing), "crashed"),
        unit=draw(st.sampled_from(["us", "s"])),
    )
    return ContestRecord(
        purpose=draw(st.sampled_from(["confirm", "attribute", "audit", "verify"])),
        workload=draw(_prints),
        subject=draw(_prints),
        against=draw(_words),
        contest=contest,
        speedup=draw(st.none() | estimates),
        upheld=draw(st.booleans()),
    )


@st.composite
def judged(draw: st.DrawFn) -> Judged:
    """Draw an evaluation of candidate 0 on ``LARGE``, of any status."""
    asked = Candidate(
        number=0,
        round=draw(st.integers(0, 2**40)),
        workload=LARGE.fingerprint,
        island=draw(_words),
        mutation=draw(_words),
        genome=draw(genomes),
        parents=tuple(draw(st.lists(_prints, max_size=3))),
    )
    status = draw(st.sampled_from(Status))
    ok = status is Status.OK
    evaluation = Evaluation(
        candidate=asked,
        status=status,
        measurement=draw(measurements) if ok else None,
        failure=None if ok else draw(_words),
        message="" if ok else draw(_words),
        cost_s=draw(_finite),
        properties=draw(st.dictionaries(_words, alleles, max_size=3)),
    )
    return Judged(evaluation=evaluation, verdict=draw(st.sampled_from(Verdict)))
