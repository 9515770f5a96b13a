"""What a gain is put down to: changes reverted one by one, or many of them in blocks."""

from __future__ import annotations

import math
from collections.abc import Callable

from kernelarc.engine._attribution import AttributionQueue, Job, needed_changes, plan_job
from kernelarc.genomes import (
    Candidate,
    Choice,
    Estimate,
    Evaluation,
    Gene,
    Genome,
    IntegerRange,
    Judged,
    Measurement,
    Space,
    Status,
    Strategy,
    Verdict,
    When,
)

TILE, MEMORY = ("a", "b", "c"), ("d", "e", "f")
SURE = Estimate(value=2.0, low=1.9, high=2.1, n=10)


def space() -> Space:
    owners = dict.fromkeys(TILE, Strategy.TENSOR_CORE) | dict.fromkeys(MEMORY, Strategy.MEMORY)
    genes = [IntegerRange(name=n, low=0, high=3, strategy=owner) for n, owner in owners.items()]
    return Space("r", genes)


def number(genome: Genome, gene: str) -> int:
    allele = genome[gene]
    assert isinstance(allele, int)
    return allele


def judged(place: int, genome: Genome, objective: float) -> Judged:
    candidate = Candidate(
        number=place, round=place, workload="w", island="memory", mutation="m", genome=genome
    )
    measurement = Measurement(samples=(objective,), objective=objective)
    evaluation = Evaluation(candidate=candidate, status=Status.OK, measurement=measurement)
    return Judged(evaluation=evaluation, verdict=Verdict.KEEP)


def learned(
    time_of: Callable[[Genome], float], changed: str
) -> tuple[Job, tuple[str, ...], list[tuple[str, ...]]]:
    """Return the job of a child with these genes changed, what was needed and what was tried."""
    kinds = space()
    old = kinds.genome(dict.fromkeys(TILE + MEMORY, 0))
    new = kinds.genome({name: int(name in changed) for name in TILE + MEMORY})
    child, parent = judged(1, new, time_of(new)), judged(0, old, time_of(old))
    job = plan_job(child, [(parent, SURE)], kinds)
    assert job is not None
    objectives: dict[str, float] = {}
    tried: list[tuple[str, ...]] = []
    while wanted := {
        genes: genome
        for genes, genome in job.trials(objectives).items()
        if genome.fingerprint not in objectives
    }:
        tried += wanted
        objectives |= {genome.fingerprint: time_of(genome) for genome in wanted.values()}
    kept = {g: objectives[x.fingerprint] <= time_of(new) for g, x in job.trials(objectives).items()}
    return job, tuple(change.gene for change in needed_changes(job, kept)), tried


def test_few_changes_are_reverted_one_by_one() -> None:
    _, needed, tried = learned(lambda genome: 2.0 - number(genome, "b"), "abd")
    assert needed == ("b",)
    assert tried == [("a",), ("b",), ("d",)]


def test_many_changes_are_reverted_in_blocks_and_singly_where_the_gain_went_with_one() -> None:
    _, needed, tried = learned(lambda genome: 2.0 - number(genome, "e"), "abcdef")
    assert needed == ("e",)
    assert tried == [TILE, MEMORY, ("d",), ("e",), ("f",)]


def test_genes_that_replace_one_another_stay_together() -> None:
    def either(genome: Genome) -> float:
        return 1.0 if genome["d"] or genome["e"] else 2.0

    _, needed, _ = learned(either, "abcdef")
    assert needed == MEMORY


def test_the_nearer_of_two_predecessors_is_what_a_gain_is_compared_with() -> None:
    kinds = space()
    child = judged(2, kinds.genome(dict.fromkeys(TILE + MEMORY, 1)), 1.0)
    far = judged(0, kinds.genome(dict.fromkeys(TILE + MEMORY, 0)), 3.0)
    near = judged(1, kinds.genome({**dict.fromkeys(TILE + MEMORY, 1), "f": 0}), 2.0)
    job = plan_job(child, [(far, SURE), (near, SURE)], kinds)
    assert job is not None
    assert job.parent is near
    assert [change.gene for change in job.changes] == ["f"]
    unsure = Estimate(value=1.1, low=0.9, high=1.3, n=3)
    assert plan_job(child, [(near, unsure)], kinds) is None


def test_what_is_quickly_learned_comes_first_and_the_newest_of_it() -> None:
    kinds = space()
    old = judged(0, kinds.genome(dict.fromkeys(TILE + MEMORY, 0)), 3.0)
    queue = AttributionQueue()
    for place, changed in enumerate(["abcdef", "a", "abcde", "bc"], start=1):
        genome = kinds.genome({name: int(name in changed) for name in TILE + MEMORY})
        job = plan_job(judged(place, genome, 1.0), [(old, SURE)], kinds)
        assert job is not None
        queue.push(job)
    order = [job.child.evaluation.candidate.number for job in queue.by_worth()]
    assert order == [4, 2, 3, 1]


def test_an_early_end_teaches_only_what_was_tried() -> None:
    job, _, _ = learned(lambda genome: math.inf if not genome["e"] else 1.0, "abcdef")
    whole = [block.reverted for block in job.blocks]
    assert not job.teaches(lambda genome: False)
    assert not job.teaches(lambda genome: genome == whole[0])
    assert job.teaches(lambda genome: genome in whole)


def branches() -> Space:
    """A product by a kernel with five genes or by the library with one, and a gene beside it."""
    makers = ("kernel", "library")
    owners = (Strategy.TENSOR_CORE, Strategy.TENSOR_CORE, Strategy.MEMORY, Strategy.MEMORY)
    genes: list[Gene] = [
        Choice(name="by", options=makers, strategy=Strategy.LIBRARY),
        *(
            IntegerRange(name=f"k{i}", low=0, high=3, when=When("by", makers[:1]), strategy=owner)
            for i, owner in enumerate(owners)
        ),
        IntegerRange(name="heuristic", low=0, high=7, when=When("by", makers[1:]),
                     strategy=Strategy.LIBRARY),
        IntegerRange(name="warps", low=0, high=3, strategy=Strategy.MEMORY),
    ]  # fmt: skip
    return Space("r", genes)


def test_what_a_change_switches_on_and_off_is_reverted_with_it() -> None:
    """Alone neither can be: a library's genome has no tile, a kernel's none of its choices."""
    kinds = branches()
    old = kinds.genome({"by": "kernel", **{f"k{i}": 1 for i in range(4)}, "warps": 0})
    new = kinds.genome({"by": "library", "heuristic": 0, "warps": 2})
    job = plan_job(judged(1, new, 1.0), [(judged(0, old, 2.0), SURE)], kinds)
    assert job is not None
    flip = ("by", "k0", "k1", "k2", "k3", "heuristic")
    trials = job.trials({})
    assert set(trials) == {flip, ("warps",)}
    assert trials[flip] == kinds.genome({**old.alleles(), "warps": 2})
    assert trials["warps",] == kinds.genome({**new.alleles(), "warps": 0})
    kept = {flip: False, ("warps",): True}
    objectives = {trials[flip].fingerprint: 2.0, trials["warps",].fingerprint: 1.0}
    assert set(job.trials(objectives)) == set(trials), "none of it can be reverted alone"
    assert tuple(change.gene for change in needed_changes(job, kept)) == flip
    spared = needed_changes(job, {flip: True, ("warps",): False})
    assert [change.gene for change in spared] == ["warps"]
