"""Register caps and pipeline depths of candidates, set by a contextual bandit.

How many registers a thread may have, and how much shared memory a pipeline takes, decide together
how many blocks a multiprocessor holds: what is right depends on the tile, the threads and what the
compiler reported, and an island that mutates one gene at a time seldom moves both. The bandit keeps
what an island proposes of all other genes and draws these.

It is a Bayesian linear model of the log-latency, linear in the other genes, and in each choice with
its context (Thompson sampling with linear payoffs: Agrawal and Goyal 2013). It is fitted anew from
the log whenever it is asked, so that a resumed campaign draws alike; earlier campaigns of the store
enter as further rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelarc.engine._view import LogView
from kernelarc.genomes import (
    Allele,
    Evaluation,
    Genome,
    Operator,
    Proposal,
    Space,
    Workload,
    bytes_of,
    flops_of,
)
from kernelarc.islands import View

CAPS, DEPTHS = ("maxnreg", "max_registers"), ("num_stages", "stages", "carveout")
_MOST_ARMS = 96
_LEAST_ROWS, _MOST_ROWS = 12, 400
_KEPT_PART = 0.2  # of an island's proposals stay as they are: credit and surprise go on
_RIDGE, _LEAST_SPREAD = 1.0, 0.02
_PENALTY = 0.7  # in log-latency, beyond the worst that was seen
_TILE_WORDS = ("block", "tile")
# Failures that say that a choice asked for too much.
_GREEDY = frozenset({"out of shared memory", "too many registers", "compiler timed out"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One evaluation to learn from.

    Attributes:
        genome: Its genome.
        cost: Log-latency less the median of its campaign and workload; None where it failed
            because it asked for too much.
        intensity: Base-2 logarithm of the workload's FLOPs per byte.
        seen: What the compiler reported of its parent: what was known when it was proposed.
        weight: 1 for this campaign, less for another's.
    """

    genome: Genome
    cost: float | None
    intensity: float
    seen: Mapping[str, Allele]
    weight: float = 1.0


def intensity_of(operator: Operator, workload: Workload) -> float:
    """Return the base-2 logarithm of FLOPs per byte, 0 where either is unknown."""
    flops, nbytes = flops_of(operator, workload), bytes_of(operator, workload)
    return math.log2(max(flops / nbytes, 2.0**-10)) if flops and nbytes else 0.0


def lessons_from(
    evaluations: Sequence[Evaluation], intensity: float, *, weight: float = 1.0
) -> list[Lesson]:
    """Return what the evaluations of one campaign and workload teach."""
    costs = [math.log(e.measurement.objective) for e in evaluations if e.measurement is not None]
    middle = float(np.median(costs)) if costs else 0.0
    reported = {e.candidate.genome.fingerprint: e.properties for e in evaluations}
    found = []
    for e in evaluations:
        if e.measurement is None and e.failure not in _GREEDY:
            continue
        cost = None if e.measurement is None else math.log(e.measurement.objective) - middle
        found.append(
            Lesson(
                genome=e.candidate.genome,
                cost=cost,
                intensity=intensity,
                seen=reported.get(e.candidate.parents[0], {}) if e.candidate.parents else {},
                weight=weight,
            )
        )
    return found


class ResourceBandit:
    """Draws the cap and depth genes of one route's candidates.

    Args:
        space: The route's.
        intensity: Of the workload, as ``intensity_of``.
        earlier: Lessons of earlier campaigns.
    """

    def __init__(self, space: Space, intensity: float, earlier: Sequence[Lesson] = ()) -> None:
        self._space, self._intensity = space, intensity
        named = {gene.name.lower(): gene for gene in space.genes if gene.cardinality > 1}
        self.genes = tuple(named[name] for name in (*CAPS, *DEPTHS) if name in named)
        self._others = tuple(g for g in space.genes if g not in self.genes)
        self._earlier = [lesson for lesson in earlier if self._fits(lesson.genome)]
        domains = [gene.values() for gene in self.genes]
        self._arms = list(itertools.product(*domains)) if self._is_small(domains) else []
        self._choices = sum(gene.cardinality for gene in self.genes)
        self._columns = [
            np.array([gene.place(arm[i]) for arm in self._arms], dtype=np.intp)
            for i, gene in enumerate(self.genes)
        ]
        self._fit: tuple[int, _Model | None] = (-1, None)

    @staticmethod
    def _is_small(domains: Sequence[Sequence[Allele]]) -> bool:
        return bool(domains) and math.prod(len(domain) for domain in domains) <= _MOST_ARMS

    @property
    def idle(self) -> bool:
        """Whether there is nothing here for it to set."""
        return not self._arms

    def _fits(self, genome: Genome) -> bool:
        return genome.route == self._space.route and self._space.contains(genome)

    def settle(
        self, proposals: Sequence[Proposal], log: LogView, view: View, rng: np.random.Generator
    ) -> list[Proposal]:
        """Return the proposals with these genes drawn; too little known leaves them alone.

        Args:
            proposals: An island's, of any route.
            log: What was evaluated on this workload.
            view: What must not be proposed again.
            rng: The round's own stream.
        """
        model = None if self.idle else self._model(log)
        if model is None:
            return list(proposals)
        taken = _Taken(view, {proposal.genome.fingerprint for proposal in proposals})
        settled = []
        for proposal in proposals:
            found = proposal
            if proposal.genome.route == self._space.route and rng.random() >= _KEPT_PART:
                found = self._drawn(proposal, model.draw(rng), log, taken)
            taken.keys.add(found.genome.fingerprint)
            settled.append(found)
        return settled

    def _drawn(
        self, proposal: Proposal, theta: NDArray[np.float64], log: LogView, taken: _Taken
    ) -> Proposal:
        """Return a proposal with the arms that a draw of the model likes best."""
        parent = log.find(proposal.parents[0]) if proposal.parents else None
        seen = {} if parent is None else parent.evaluation.properties
        costs = self._arm_costs(proposal.genome, seen, theta)
        own = proposal.genome.fingerprint
        for place in np.argsort(costs, kind="stable"):
            genome = self._with(proposal.genome, self._arms[int(place)])
            if genome is not None and (genome.fingerprint == own or taken.fresh(genome)):
                return replace(proposal, genome=genome)
        return proposal

    def _arm_costs(
        self, genome: Genome, seen: Mapping[str, Allele], theta: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return what each arm adds to the predicted cost, shape (arms,)."""
        context = np.array((1.0, *context_of(genome, self._intensity, seen)))
        choices = theta[theta.size - self._choices * context.size :].reshape(-1, context.size)
        worth, costs = choices @ context, np.zeros(len(self._arms))
        start = 0
        for gene, column in zip(self.genes, self._columns, strict=True):
            if gene.name in genome:
                costs += worth[start + column]
            start += gene.cardinality
        return costs

    def _with(self, genome: Genome, arm: Sequence[Allele]) -> Genome | None:
        changes = {g.name: a for g, a in zip(self.genes, arm, strict=True) if g.name in genome}
        alleles = genome.replace(changes)
        if self._space.violation(alleles) is not None:
            return None
        return self._space.genome(alleles)

    # The model

    def _model(self, log: LogView) -> _Model | None:
        """Return the model of the log as it stands, fitted once."""
        if self._fit[0] != log.count():
            self._fit = log.count(), self._fitted(log)
        return self._fit[1]

    def _fitted(self, log: LogView) -> _Model | None:
        judged = {j.evaluation.candidate.number: j for j in (*log.recent(512), *log.best(512))}
        mine = [judged[n].evaluation for n in sorted(judged)]
        mine = [e for e in mine if e.candidate.genome.route == self._space.route][-_MOST_ROWS:]
        lessons = [*lessons_from(mine, self._intensity), *self._earlier]
        known = [lesson.cost for lesson in lessons if lesson.cost is not None]
        if len(known) < _LEAST_ROWS:
            return None
        worst = max(known) + _PENALTY
        rows = np.array([self._row(le.genome, le.intensity, le.seen) for le in lessons])
        costs = np.array([worst if le.cost is None else le.cost for le in lessons])
        return _Model(rows, costs, np.array([lesson.weight for lesson in lessons]))

    def _row(
        self, genome: Genome, intensity: float, seen: Mapping[str, Allele]
    ) -> NDArray[np.float64]:
        """Return the features: other genes and their squares, then each choice with its context."""
        base = [1.0]
        for gene in self._others:
            code = gene.encode(genome[gene.name]) if gene.name in genome else (0.5,) * gene.width
            base += [*code, *(value * value for value in code)]
        context = (1.0, *context_of(genome, intensity, seen))
        choices: list[float] = []
        for gene in self.genes:
            place = gene.index(genome[gene.name]) if gene.name in genome else -1
            for arm in range(gene.cardinality):
                choices += [value if arm == place else 0.0 for value in context]
        return np.array([*base, *choices])


def context_of(
    genome: Genome, intensity: float, seen: Mapping[str, Allele]
) -> tuple[float, float, float, float, float]:
    """Return what decides which cap and depth are right, each about 0 to 1.

    Elements of the tile for each thread, threads, FLOPs per byte, and what the compiler reported
    of the genome's relative: registers (its own or its parent's) with spills, and shared memory.
    """
    tile = math.prod(
        int(value)
        for name, value in genome.items()
        if name.lower().startswith(_TILE_WORDS) and name[-1:].lower() != "k" and type(value) is int
    )
    warps = genome.get("num_warps", 4)
    threads = 32 * (warps if type(warps) is int else 4)
    registers = _number(seen, "registers", 128.0) + _number(seen, "spill_bytes", 0.0) / 4
    shared = _number(seen, "shared_bytes", 0.0) / (228 << 10)
    return (
        math.log2(max(tile / threads, 1.0)) / 8,
        math.log2(threads) / 10,
        intensity / 12,
        min(registers / 255, 2.0),
        min(shared, 1.0),
    )


def _number(seen: Mapping[str, Any], name: str, default: float) -> float:
    value = seen.get(name, default)
    return float(value) if isinstance(value, int | float) else default


@dataclass(slots=True)
class _Taken:
    """What must not be proposed again: the log's, and this round's."""

    view: View
    keys: set[str]

    def fresh(self, genome: Genome) -> bool:
        """Tell whether a genome may be proposed."""
        key = genome.fingerprint
        return key not in self.keys and not self.view.evaluated(key)


class _Model:
    """Ridge regression with its posterior.

    Args:
        rows: Features, shape (n, d).
        costs: What is to be small, shape (n,).
        weights: Of the rows, shape (n,).
    """

    def __init__(
        self,
        rows: NDArray[np.float64],
        costs: NDArray[np.float64],
        weights: NDArray[np.float64],
    ) -> None:
        weighted = rows * weights[:, None]
        precision = weighted.T @ rows + _RIDGE * np.eye(rows.shape[1])
        self._root = np.linalg.cholesky(precision)
        self._mean = np.linalg.solve(precision, weighted.T @ costs)
        left = costs - rows @ self._mean
        freedom = max(float(weights.sum()) - rows.shape[1] / 2, 1.0)
        self._spread = max(math.sqrt(float(weights @ (left * left)) / freedom), _LEAST_SPREAD)

    def draw(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw coefficients from the posterior."""
        noise = rng.standard_normal(self._mean.size)
        drawn: NDArray[np.float64] = self._mean + self._spread * np.linalg.solve(
            self._root.T, noise
        )
        return drawn
