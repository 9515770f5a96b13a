"""Writes made-up GPU spaces on which no search was tuned: run by hand.

    python -m kernelarc.bench.experiments.held_out_spaces FOLDER [--seed S]

Three kernels, each on two devices, as recordings in our own format: genes of several strategies,
some of which exist only while another gene holds a certain allele, constraints on products and on
divisibility, regions where too large a product of genes does not run, cliffs, effects of single
genes, of pairs and of threes, and a small share of each genome that nothing explains. On the
second device most of every effect is the first one's: the optima are related, not equal. The first
kernel has genes of all eight strategies, the others of fewer.

Whoever tunes a search must not look at results on the spaces that a seed gives.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelarc.bench import measurement_of, write_recording
from kernelarc.genomes import (
    Boolean,
    Candidate,
    Choice,
    Environment,
    Evaluation,
    ExpressionConstraint,
    Gene,
    Genome,
    IntegerRange,
    Operator,
    PowerOfTwo,
    Space,
    Status,
    Strategy,
    When,
    Workload,
)

ROUTE = "made"
_KERNEL_STRATEGIES = (8, 6, 5)
_LEGAL = (4_000, 40_000)
_TRIES = 1_000
# What of a device's effects is the kernel's; the rest is its own.
_SHARED = 0.85
# 10.0 wakes the island of Blackwell's genes.
_CAPABILITY = "10.0"
_OWN_PART, _FAILS = 0.04, 0.02


@dataclass(frozen=True, slots=True)
class Effect:
    """What some genes together add to the logarithm of the time, where all of them are active.

    Attributes:
        genes: Their names.
        table: By the places of their alleles, one axis a gene; infinite where nothing runs.
    """

    genes: tuple[str, ...]
    table: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MadeKernel:
    """A made-up kernel: its space, and its effects on each device."""

    name: str
    space: Space
    effects: Mapping[str, tuple[Effect, ...]]

    def time_us(self, genome: Genome, device: str) -> float | None:
        """Return a genome's time on a device, None where it fails."""
        own = blake2b(f"{device} {genome.fingerprint}".encode(), digest_size=8).digest()
        chance = int.from_bytes(own, "big") / 2**64
        log = _OWN_PART * chance
        for effect in self.effects[device]:
            if all(name in genome for name in effect.genes):
                place = tuple(self.space.gene(n).index(genome[n]) for n in effect.genes)
                log += float(effect.table[place])
        return None if chance < _FAILS or math.isinf(log) else 150.0 * math.exp(log)


def make_kernel(
    rng: np.random.Generator, name: str, strategies: int, legal: tuple[int, int] = _LEGAL
) -> MadeKernel:
    """Draw a kernel with genes of so many strategies and legal genomes between two numbers."""
    for _ in range(_TRIES):
        owners = list(Strategy)
        if strategies < len(owners):
            # Every kernel has tiles and a memory hierarchy.
            least = [Strategy.TENSOR_CORE, Strategy.MEMORY]
            others = [s for s in owners if s not in least and s is not Strategy.BLACKWELL]
            drawn = rng.choice(len(others), size=strategies - len(least), replace=False)
            owners = least + [others[int(i)] for i in drawn]
        genes = _genes(rng, owners)
        space = Space(ROUTE, genes, _constraints(rng, genes))
        if legal[0] <= space.size().legal <= legal[1]:
            return MadeKernel(name, space, _effects_by_device(rng, genes))
    raise RuntimeError(f"no kernel of {strategies} strategies has from {legal[0]} to {legal[1]}")


def _genes(rng: np.random.Generator, owners: Sequence[Strategy]) -> list[Gene]:
    """Draw one to three genes of every strategy, parents before what they switch on."""
    shift, most = int(rng.integers(2)), int(rng.integers(3, 6))
    made: Mapping[Strategy, list[Gene]] = {
        Strategy.TENSOR_CORE: [
            PowerOfTwo(name="block", low=16 << shift, high=128 << shift),
            PowerOfTwo(name="rows", low=1, high=4 << shift),
            IntegerRange(name="tile", low=1, high=most),
        ],
        Strategy.MEMORY: [
            PowerOfTwo(name="vector", low=1, high=4),
            Boolean(name="staged"),
            IntegerRange(name="stages", low=2, high=4, when=When("staged", (True,))),
        ],
        Strategy.REDUCTION: [Choice(name="parts", options=(1, 2, 3, 4))],
        Strategy.SCHEDULING: [
            Choice(name="order", options=("row", "column", "grouped")),
            PowerOfTwo(name="group", low=2, high=4, when=When("order", ("grouped",))),
        ],
        Strategy.FUSION: [Boolean(name="fused")],
        Strategy.PRECISION: [Choice(name="sums", options=("float32", "float16"))],
        Strategy.LIBRARY: [Choice(name="variant", options=("a", "b", "c"))],
        Strategy.BLACKWELL: [Boolean(name="paired")],
    }
    found: list[Gene] = []
    for owner in owners:
        for gene in made[owner]:
            if gene.name in ("tile", "group") and len(owners) == len(Strategy):
                continue  # with all eight the space would be too large to list
            object.__setattr__(gene, "strategy", owner)
            found.append(gene)
    return found


def _sizes(genes: Sequence[Gene]) -> list[Gene]:
    """Return the genes whose alleles are sizes of something and always there."""
    kinds = PowerOfTwo | IntegerRange
    return [gene for gene in genes if isinstance(gene, kinds) and gene.when is None]


def _constraints(rng: np.random.Generator, genes: Sequence[Gene]) -> list[ExpressionConstraint]:
    names = [gene.name for gene in genes]
    one, other = _drawn(rng, _sizes(genes), 2)
    most = int(np.quantile(_products((one, other)), 0.8))
    texts = [f"{one.name} * {other.name} <= {most}", "block % (vector * rows) == 0"]
    return [ExpressionConstraint(text, names) for text in texts]


def _drawn(rng: np.random.Generator, genes: Sequence[Gene], count: int) -> tuple[Gene, ...]:
    places = sorted(int(i) for i in rng.choice(len(genes), size=count, replace=False))
    return tuple(genes[place] for place in places)


def _products(genes: Sequence[Gene]) -> NDArray[np.float64]:
    """Return the products of the genes' alleles, one axis a gene."""
    axes = np.meshgrid(*[np.array(gene.values(), dtype=float) for gene in genes], indexing="ij")
    found: NDArray[np.float64] = np.prod(axes, axis=0)
    return found


def _effects_by_device(
    rng: np.random.Generator, genes: Sequence[Gene]
) -> dict[str, tuple[Effect, ...]]:
    """Draw the kernel's effects and limits, then what each device makes of them."""
    common = _smooth(rng, genes, None)
    cliff, failing = _drawn(rng, _sizes(genes), 3), _drawn(rng, _sizes(genes), 2)
    steep = float(rng.uniform(0.1, 0.5))
    found = {}
    for number, device in enumerate(("one", "two")):
        effects = common if number == 0 else _smooth(rng, genes, common)
        # The second device has room for somewhat more or less.
        quantiles = rng.uniform((0.55, 0.82), (0.75, 0.92))
        limited = [
            _beyond(cliff, quantiles[0], steep),
            _beyond(failing, quantiles[1], math.inf),
        ]
        found[device] = (*effects, *limited)
    return found


def _beyond(genes: Sequence[Gene], quantile: float, cost: float) -> Effect:
    products = _products(genes)
    table = np.where(products > np.quantile(products, quantile), cost, 0.0)
    return Effect(tuple(gene.name for gene in genes), table)


def _smooth(
    rng: np.random.Generator, genes: Sequence[Gene], like: Sequence[Effect] | None
) -> tuple[Effect, ...]:
    """Draw effects of ones, twos and threes; mostly as ``like`` has them, where it is given."""
    if like is not None:
        return tuple(_related(rng, effect, genes) for effect in like)
    singles = [Effect((gene.name,), _bowl(rng, gene)) for gene in genes]
    wide = [gene for gene in genes if gene.cardinality >= 3]
    pairs = [_together(rng, _drawn(rng, wide, 2), 0.12) for _ in range(4)]
    mixed = [_together(rng, _drawn(rng, genes, 2), 0.1) for _ in range(3)]
    threes = [_together(rng, _drawn(rng, wide, 3), 0.12) for _ in range(2)]
    threes += [_together(rng, _drawn(rng, genes, 3), 0.1) for _ in range(2)]
    ridge = _ridge(rng, _drawn(rng, _sizes(genes), 2))
    return (*singles, *pairs, *mixed, *threes, ridge)


def _related(rng: np.random.Generator, effect: Effect, genes: Sequence[Gene]) -> Effect:
    """Return another device's form of an effect: as spread as it, and correlated with it."""
    by_name = {gene.name: gene for gene in genes}
    other = _together(rng, [by_name[name] for name in effect.genes], 1.0).table
    scale = float(effect.table.std()) / max(float(other.std()), 1e-9)
    table = _SHARED * effect.table + math.sqrt(1 - _SHARED**2) * scale * other
    return Effect(effect.genes, table)


def _bowl(rng: np.random.Generator, gene: Gene) -> NDArray[np.float64]:
    """Return one preferred place with uneven sides, for unordered genes in no order."""
    places, best = np.arange(gene.cardinality), int(rng.integers(gene.cardinality))
    near, far = rng.uniform(0.02, 0.3, size=2)
    steep = np.where(places < best, near, far)
    away = steep * np.abs(places - best) / max(gene.cardinality - 1, 1)
    bowl: NDArray[np.float64] = away + 0.03 * rng.random(gene.cardinality)
    return bowl if gene.ordered else rng.permutation(bowl)


def _together(rng: np.random.Generator, genes: Sequence[Gene], scale: float) -> Effect:
    """Return an interaction without form: each combination of alleles has its own number."""
    table = scale * rng.normal(size=tuple(gene.cardinality for gene in genes))
    return Effect(tuple(gene.name for gene in genes), table)


def _ridge(rng: np.random.Generator, genes: Sequence[Gene]) -> Effect:
    """Return a preference for one product of sizes, as for threads in a block."""
    logs = np.log2(_products(genes))
    wanted = rng.uniform(*np.quantile(logs, (0.3, 0.7)))
    return Effect(tuple(gene.name for gene in genes), 0.012 * (logs - wanted) ** 2)


def write_space(path: Path, kernel: MadeKernel, device: str) -> tuple[int, int]:
    """Write a kernel's recording on a device; return how many genomes are legal and how many fail.

    Raises:
        InputError: The place cannot be written.
    """
    operator = Operator(
        name=kernel.name,
        axes={},
        inputs=(),
        outputs=(),
        op_type="recorded",
        description="A made-up kernel: it has neither source nor reference.",
    )
    workload = Workload(operator=operator.fingerprint, axes={})
    evaluations = list(_evaluations(kernel, device, workload))
    write_recording(
        path,
        operator=operator,
        workload=workload,
        spaces={ROUTE: kernel.space},
        environment=Environment(
            identity={"device": f"made up: {device}", "compute_capability": _CAPABILITY}
        ),
        evaluations=evaluations,
        complete=True,
    )
    return len(evaluations), sum(e.status is not Status.OK for e in evaluations)


def _evaluations(kernel: MadeKernel, device: str, workload: Workload) -> Iterator[Evaluation]:
    for number, genome in enumerate(kernel.space.enumerate()):
        time_us = kernel.time_us(genome, device)
        failed: dict[str, Any] = {"status": Status.LAUNCH_ERROR, "failure": "does not run"}
        timed: dict[str, Any] = {"status": Status.OK}
        if time_us is not None:
            timed["measurement"] = measurement_of((round(time_us, 6),), cache="recorded")
        candidate = Candidate(
            number=number,
            round=0,
            workload=workload.fingerprint,
            island="engine",
            mutation="listed",
            genome=genome,
        )
        yield Evaluation(candidate=candidate, **(failed if time_us is None else timed))


def main() -> None:
    """Parse the command line and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(asked.seed)
    for number, strategies in enumerate(_KERNEL_STRATEGIES):
        kernel = make_kernel(rng, f"made_{asked.seed}_{number}", strategies)
        for device in kernel.effects:
            path = asked.folder / f"{kernel.name}-{device}.json.gz"
            legal, failed = write_space(path, kernel, device)
            print(f"{path.name}: {legal} legal, {failed} fail, {strategies} strategies")


if __name__ == "__main__":
    main()
