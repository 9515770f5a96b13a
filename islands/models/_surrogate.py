"""Proposals by a Gaussian process over the readable log: where improvement is expected most."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelarc.genomes import Genome, Judged, Space
from kernelarc.islands._island import View
from kernelarc.islands._population import fitness_of
from kernelarc.islands._settings import IslandSettings
from kernelarc.islands._turn import Turn
from kernelarc.islands.models._features import Features
from kernelarc.islands.models._gaussian import Array, Posterior, Scales, fit_scales
from kernelarc.islands.models._window import route_of, telling, window

_KEPT = 16
_DIGITS = 9
_FAILED_QUANTILE = 0.75
_GROWTH = 1.25
_LARGEST_STEP = 48
_LEAST = 3
_POOL_STREAM = 0x9E3779B9
_STARTS = 8
_DRAFTS = 8
_CLIMBS = 4
_POOL_LIFE = 8  # evaluations until the pool's samples are drawn anew
_CENTRES = 3  # best genomes around which the pool holds every step
_FEW = 40  # alleles of a gene up to which all of them are steps
# What an improvement has to exceed to count, in spreads of the targets: without it, genomes that
# differ from the best in genes that hardly matter are tried one after the other. It shrinks with
# the evaluations once there are that many, so that late small gains count.
_WORTH_WHILE, _EARLY = 0.1, 50


_Key: TypeAlias = "tuple[int | tuple[str, float | None], ...]"


@dataclass(frozen=True, slots=True)
class Beliefs:
    """What the process believes after the log of one moment.

    Attributes:
        posterior: Over standardised targets.
        best: What a target has to fall below to count: a little less than the best so far.
        pool: Legal genomes to choose among, none evaluated: samples, and steps around the best.
        worth: Expected improvement of each.
    """

    posterior: Posterior
    best: float
    pool: Sequence[Genome]
    worth: Array


class Surrogate:
    """The process of one route, shared by all islands. All it keeps is a cache.

    Length scales are fitted at counts that grow by a quarter, to the log as it was at that count:
    so they are a function of the log alone, whenever the surrogate was made.
    """

    def __init__(self, space: Space, settings: IslandSettings) -> None:
        self.features = Features(space)
        self._space = space
        self._settings = settings
        self._scales: dict[_Key, Scales] = {}
        self._beliefs: dict[_Key, Beliefs] = {}
        self._samples: dict[int, list[Genome]] = {}
        self._steps: dict[str, list[Genome]] = {}

    def beliefs(self, view: View) -> Beliefs | None:
        """Return what the log says, or None while it says too little."""
        log = window(view, self._space.route, self._settings.model_window)
        log = [judged for judged in log if telling(judged)]
        passed = [judged for judged in log if fitness_of(judged) is not None]
        if len(log) < self._settings.model_startup or len(passed) < _LEAST:
            return None
        key = _key(log, view.count())
        if key not in self._beliefs:
            _trim(self._beliefs)
            self._beliefs[key] = self._believe(view, log)
        return self._beliefs[key]

    def _believe(self, view: View, log: Sequence[Judged]) -> Beliefs:
        y = targets(log)
        rows = self.features.rows(j.evaluation.candidate.genome for j in log)
        posterior = Posterior(rows, y, self.features.groups, self._fitted(view, log))
        passed = [place for place, judged in enumerate(log) if fitness_of(judged) is not None]
        least = _WORTH_WHILE * min(1.0, _EARLY / view.count())
        best = float(y[passed].min()) - least
        pool = [genome for genome in self._pool(view) if not view.evaluated(genome.fingerprint)]
        if not pool:
            return Beliefs(posterior, best, [], np.empty(0))
        worth = expected_improvement(*posterior.at(self.features.rows(pool)), best)
        return Beliefs(posterior, best, pool, worth)

    def _pool(self, view: View) -> list[Genome]:
        """Return samples from a stream of the model's own and steps around the best.

        The same for every island. Samples are drawn anew every few evaluations.
        """
        draw = view.count() // _POOL_LIFE
        if draw not in self._samples:
            rng = np.random.default_rng([_POOL_STREAM, draw])
            drawn = [self._space.sample(rng) for _ in range(self._settings.model_pool)]
            _trim(self._samples)
            self._samples[draw] = drawn
        found = list(self._samples[draw])
        for judged in view.best(_CENTRES):
            if route_of(judged) == self._space.route:
                found += self._around(judged.evaluation.candidate.genome)
        return list({genome.fingerprint: genome for genome in found}.values())

    def _around(self, centre: Genome) -> list[Genome]:
        """Return the legal genomes one gene away, whatever its new allele; remembered."""
        if centre.fingerprint not in self._steps:
            alleles = centre.alleles()
            drafts = [
                {**alleles, gene.name: allele}
                for gene in self._space.genes
                if gene.name in alleles and 1 < gene.cardinality <= _FEW
                for allele in gene.values()
                if allele != alleles[gene.name]
            ]
            far = [self._space.genome(d) for d in drafts if self._space.violation(d) is None]
            _trim(self._steps)
            self._steps[centre.fingerprint] = [*self._space.neighbours(centre), *far]
        return self._steps[centre.fingerprint]

    def _fitted(self, view: View, log: Sequence[Judged]) -> Scales:
        behind = view.count() - _milestone(view.count(), self._settings.model_startup)
        limit = self._settings.model_fit
        before = view.recent(behind + limit)[: min(limit, view.count() - behind)]
        before = [j for j in before if telling(j) and route_of(j) == self._space.route]
        if sum(fitness_of(judged) is not None for judged in before) < _LEAST:
            before = list(log)[-limit:]
        key = _key(before)
        if key not in self._scales:
            _trim(self._scales)
            rows = self.features.rows(j.evaluation.candidate.genome for j in before)
            self._scales[key] = fit_scales(rows, targets(before), self.features.groups)
        return self._scales[key]


class SurrogateProposer:
    """One island's use of the surrogate: it adds drafts of its own and climbs from the best.

    Attributes:
        name: As in Proposer.
    """

    def __init__(self, name: str, surrogate: Surrogate, space: Space) -> None:
        self.name = name
        self._surrogate = surrogate
        self._space = space

    def propose(
        self, turn: Turn, parent: Genome | None, draft: Callable[[], Genome | None]
    ) -> Genome | None:
        """Return the admitted genome of the greatest expected improvement found."""
        beliefs = self._surrogate.beliefs(turn.view)
        if beliefs is None:
            return None
        order = np.argsort(-beliefs.worth, kind="stable")[:_STARTS]
        starts = [beliefs.pool[place] for place in order]
        starts += [genome for _ in range(_DRAFTS) if (genome := draft()) is not None]
        found = self._ranked(turn, beliefs, starts)
        for _ in range(_CLIMBS if found else 0):
            around = self._ranked(turn, beliefs, self._space.neighbours(found[0][1]))
            if not around or around[0][:1] >= found[0][:1]:
                break
            found = around + found
        return next((genome for _, genome in found if turn.admits(genome)), None)

    def _ranked(
        self, turn: Turn, beliefs: Beliefs, genomes: Sequence[Genome]
    ) -> list[tuple[float, Genome]]:
        """Return (-worth, genome) of the fresh ones, best first, ties by fingerprint."""
        fresh = {g.fingerprint: g for g in genomes if turn.fresh(g)}
        if not fresh:
            return []
        mean, spread = beliefs.posterior.at(self._surrogate.features.rows(fresh.values()))
        worth = expected_improvement(mean, spread, beliefs.best)
        ranked = zip((-float(w) for w in worth), fresh.values(), strict=True)
        return sorted(ranked, key=lambda pair: (pair[0], pair[1].fingerprint))


def targets(log: Sequence[Judged]) -> NDArray[np.float64]:
    """Return standardised log objectives; what failed counts as a poor one, shape (log,)."""
    found = [fitness_of(judged) for judged in log]
    known = np.array([-fitness for fitness in found if fitness is not None])
    poor = float(np.quantile(known, _FAILED_QUANTILE))
    y = np.array([poor if fitness is None else -fitness for fitness in found])
    spread = float(y.std())
    standard: NDArray[np.float64] = (y - y.mean()) / (spread if spread > 1e-12 else 1.0)
    return standard


def expected_improvement(mean: Array, spread: Array, best: float) -> Array:
    """Return how far below ``best`` the target is expected to fall, rounded (ties stay ties)."""
    z = (best - mean) / spread
    below = 0.5 * (1.0 + np.vectorize(math.erf, otypes=[float])(z / 2.0**0.5))
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    worth: Array = np.round(spread * (z * below + density), _DIGITS)
    return worth


def _key(log: Sequence[Judged], count: int = 0) -> _Key:
    """Name everything that a fit depends on."""
    return (count, *((j.evaluation.candidate.genome.fingerprint, fitness_of(j)) for j in log))


def _trim(cache: dict[Any, Any]) -> None:
    while len(cache) >= _KEPT:
        del cache[next(iter(cache))]


def _milestone(count: int, first: int) -> int:
    """Return the largest fitting count that is not above ``count``."""
    milestone = first
    while (step := min(max(int(milestone * (_GROWTH - 1)), 4), _LARGEST_STEP)) + milestone <= count:
        milestone += step
    return min(milestone, count)
