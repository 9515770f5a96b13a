"""Ranking of many legal drafts at once by a Gaussian process: the best guess, and unlike others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelarc.genomes import Genome, Judged, Space
from kernelarc.islands._island import View
from kernelarc.islands._population import fitness_of
from kernelarc.islands.models._features import Features
from kernelarc.islands.models._gaussian import Array, Posterior, Scales, fit_scales
from kernelarc.islands.models._surrogate import expected_improvement
from kernelarc.islands.models._threads import one_thread
from kernelarc.islands.models._window import route_of, telling, window

_STARTUP, _WINDOW, _FITTED = 12, 192, 96
_GROWTH = 1.5  # the counts at which length scales are fitted anew grow by this
_KEPT = 8
_FAR = 0.7  # log times above the best beyond which everything is equally bad
_LIKE = 0.97  # correlation above which two drafts are one and the same for the model


_Key: TypeAlias = "tuple[int, int]"


@dataclass(frozen=True, slots=True)
class _Belief:
    """What is left to learn once the hint has said its part: residuals of log times.

    Attributes:
        slope: How much of the hint's logarithm shows in log times; 0 without a hint.
        scale: Of a standardised residual, in log time.
        best: The lowest log time over the best, so about 0.
    """

    posterior: Posterior
    slope: float
    shift: float
    scale: float
    best: float


class Ranker:
    """One route's process, shared by all islands. All it keeps is a cache of what views say."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._features = Features(space)
        self._scales: dict[_Key, Scales] = {}
        self._beliefs: dict[_Key, _Belief] = {}

    def pick(self, view: View, genomes: Sequence[Genome], n: int) -> list[int] | None:
        """Return the places of the ``n`` worth most, the best first, no two of them alike.

        Returns:
            None while too little is known. Fewer than ``n`` where all others are like them.
        """
        with one_thread():
            belief = self._believe(view)
            if belief is None or not genomes:
                return None
            rows = self._features.rows(genomes)
            mean, spread = belief.posterior.at(rows)
            mean = mean * belief.scale + belief.shift + belief.slope * self._hints(genomes)
            worth = expected_improvement(mean, spread * belief.scale, belief.best)
            order = np.lexsort((mean, -worth))[: 8 * n]
            return self._unlike(order, belief.posterior.likeness(rows[order]), n)

    @staticmethod
    def _unlike(order: NDArray[np.int64], likeness: Array, n: int) -> list[int]:
        chosen: list[int] = []
        for place in range(len(order)):
            if len(chosen) < n and not any(likeness[place, other] > _LIKE for other in chosen):
                chosen.append(place)
        return [int(order[place]) for place in chosen]

    def _believe(self, view: View) -> _Belief | None:
        key = _key(view.recent(1), view.count())
        if key in self._beliefs:
            return self._beliefs[key]
        log = [j for j in window(view, self._space.route, _WINDOW) if telling(j)]
        times = [fitness for judged in log if (fitness := fitness_of(judged)) is not None]
        if len(times) < _STARTUP:
            return None
        rows = self._features.rows(judged.evaluation.candidate.genome for judged in log)
        y, slope = self._residuals(log)
        scale = max(float(y.std()), 1e-6)
        standard = (y - y.mean()) / scale
        posterior = Posterior(rows, standard, self._features.groups, self._fitted(view, log))
        _trim(self._beliefs)
        self._beliefs[key] = _Belief(posterior, slope, float(y.mean()), scale, 0.0)
        return self._beliefs[key]

    def _hints(self, genomes: Sequence[Genome]) -> Array:
        """Return the logarithms of the hints, shape (genomes,); zeros without a hint."""
        hint = self._space.hint
        if hint is None:
            return np.zeros(len(genomes))
        logs: Array = np.log(np.array([hint(genome.alleles()) for genome in genomes]))
        return logs

    def _residuals(self, log: Sequence[Judged]) -> tuple[Array, float]:
        """Return what the hint leaves of log times, shape (log,), and how much it explains."""
        y = _targets(log)
        hints = self._hints([judged.evaluation.candidate.genome for judged in log])
        good = y < _FAR
        spread = hints[good] - hints[good].mean() if good.any() else np.zeros(0)
        power = float(spread @ spread)
        if power < 1e-9:
            return y, 0.0
        slope = min(max(float(spread @ y[good]) / power, 0.0), 1.0)
        return y - slope * hints, slope

    def _fitted(self, view: View, log: Sequence[Judged]) -> Scales:
        """Return length scales fitted to the log as it was at the last of some growing counts."""
        count = view.count()
        milestone = _STARTUP
        while milestone * _GROWTH <= count:
            milestone = int(milestone * _GROWTH)
        behind = count - milestone
        before = [j for j in view.recent(behind + _FITTED)[:_FITTED] if telling(j)]
        before = [j for j in before if route_of(j) == self._space.route]
        if sum(fitness_of(judged) is not None for judged in before) < _STARTUP:
            before = list(log)[-_FITTED:]
        key = _key(before[-1:], len(before))
        if key not in self._scales:
            _trim(self._scales)
            rows = self._features.rows(judged.evaluation.candidate.genome for judged in before)
            y = self._residuals(before)[0]
            standard = (y - y.mean()) / max(float(y.std()), 1e-6)
            self._scales[key] = fit_scales(rows, standard, self._features.groups)
        return self._scales[key]


def _key(last: Sequence[Judged], count: int) -> _Key:
    return count, last[-1].evaluation.candidate.number if last else -1


def _trim(cache: dict[_Key, Scales] | dict[_Key, _Belief]) -> None:
    while len(cache) >= _KEPT:
        del cache[next(iter(cache))]


def _targets(log: Sequence[Judged]) -> Array:
    """Return log times over the best, shape (log,); what is far off or failed is equally bad."""
    found = [fitness_of(judged) for judged in log]
    best = max(fitness for fitness in found if fitness is not None)
    far = [_FAR if fitness is None else min(best - fitness, _FAR) for fitness in found]
    return np.array(far)
