"""Individuals and the bounded populations they live in, on DEAP's fitness and selection."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from deap import base, tools

from kernelarc.genomes import Genome, Judged, Status

_DIGITS = 9  # fitness is rounded, so that a last digit decides nothing


class Fitness(base.Fitness):  # type: ignore[misc]
    """(-log objective, tie) by DEAP's order: higher is better, ties go by fingerprint."""

    weights = (1.0, 1.0)

    def __init__(self, values: tuple[float, ...] = ()) -> None:
        self.wvalues = values  # weighted by 1 each: DEAP's own way there takes ten times as long


class Individual:
    """A genome with its fitness. Copies share nothing that can change: the genome is frozen.

    Attributes:
        genome: The genome.
        score: -log(objective), rounded.
        bound: True when the measurement was censored: the fitness is then an upper bound.
    """

    __slots__ = ("_fitness", "bound", "genome", "score")

    def __init__(self, genome: Genome, fitness: float, *, bound: bool = False) -> None:
        self.genome = genome
        self.bound = bound
        self.score = round(fitness, _DIGITS)
        self._fitness: Fitness | None = None

    @property
    def fitness(self) -> Fitness:
        """DEAP's fitness: the score, then what parts equals. Most individuals are never asked."""
        if self._fitness is None:
            self._fitness = Fitness((self.score, -self.place[1] / 2**32))
        return self._fitness

    @property
    def place(self) -> tuple[float, int]:
        """What orders individuals, the best first; ties go by fingerprint."""
        return -self.score, int(self.genome.fingerprint[:8], 16)

    def copy(self) -> Individual:
        """Return an individual of its own."""
        return Individual(self.genome, self.score, bound=self.bound)

    def __deepcopy__(self, memo: dict[int, Any]) -> Individual:
        return self.copy()


def fitness_of(judged: Judged) -> float | None:
    """Return -log(objective), or None for what has no positive finite objective."""
    evaluation = judged.evaluation
    if evaluation.status is not Status.OK or evaluation.measurement is None:
        return None
    objective = evaluation.measurement.objective
    if not (math.isfinite(objective) and objective > 0.0):
        return None
    return -math.log(objective)


def individual_of(judged: Judged) -> Individual | None:
    """Return the individual an evaluation speaks of, or None when it failed."""
    fitness, measurement = fitness_of(judged), judged.evaluation.measurement
    if fitness is None or measurement is None:
        return None
    return Individual(judged.evaluation.candidate.genome, fitness, bound=measurement.censored)


class _Ranking:
    """The best of those that were offered, best first, each genome once.

    What DEAP's hall of fame does, which compares fitnesses in Python and looks at every member
    for each individual that is good enough: most of the time of reading a long log.

    Attributes:
        members: Copies of those that were let in.
        scores: By fingerprint.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._places: list[tuple[float, int]] = []
        self.members: list[Individual] = []
        self.scores: dict[str, float] = {}

    def offer(self, individual: Individual) -> None:
        """Let one in, by copy, that is among the best and not there yet."""
        full = len(self.members) >= self._size
        if full and -individual.score > self._places[-1][0]:
            return  # most end here
        place, fingerprint = individual.place, individual.genome.fingerprint
        if (full and place >= self._places[-1]) or fingerprint in self.scores:
            return
        if full:
            del self.scores[self.members.pop().genome.fingerprint], self._places[-1]
        where = bisect_left(self._places, place)
        self._places.insert(where, place)
        self.members.insert(where, individual.copy())
        self.scores[fingerprint] = individual.score

    def clear(self) -> None:
        """Forget all."""
        self._places.clear()
        self.members.clear()
        self.scores.clear()


class Population:
    """A colony that breeds now, and a hall of those that outlive its restarts.

    A censored individual enters only while the colony has nothing better than bounds: its fitness
    says how good it is *at most*.
    """

    def __init__(self, elites: int, hall: int) -> None:
        self._colony, self._hall = _Ranking(elites), _Ranking(hall)

    def add(self, individual: Individual) -> bool:
        """Take one in, by copy. Returns whether it is the colony's new best."""
        colony = self._colony.members
        # Either all of a colony are bounds or none is, so the first speaks for them.
        if colony and colony[0].bound != individual.bound:
            if individual.bound:
                return False
            self._colony.clear()
        better = not colony or individual.score > colony[0].score
        self._colony.offer(individual)
        if not individual.bound:
            self._hall.offer(individual)
        return better

    def scatter(self) -> None:
        """Start a new colony; the hall stays."""
        self._colony.clear()

    @property
    def colony(self) -> Sequence[Individual]:
        """The breeding individuals, best first. Not to be changed."""
        return self._colony.members

    @property
    def hall(self) -> Sequence[Individual]:
        """The best ever, best first. Not to be changed."""
        return self._hall.members

    def genomes(self) -> list[Genome]:
        """Return hall and colony without repeats, best first."""
        both = {i.genome.fingerprint: i for i in (*self.hall, *self.colony)}
        ranked = sorted(both.values(), key=lambda i: i.fitness, reverse=True)
        return [individual.genome for individual in ranked]

    def score_of(self, fingerprint: str) -> float | None:
        """Return a living individual's score, or None when it is not among them."""
        found = self._colony.scores.get(fingerprint)
        return self._hall.scores.get(fingerprint) if found is None else found

    def parent(self, size: int) -> Individual:
        """Choose by tournament among the colony; a fenced block must be open.

        DEAP's tournament with its draws, decided by place: the colony stands in order of fitness.
        Its own comparisons took a tenth of the time of making cheap drafts.
        """
        members = self._colony.members
        best: int = min(tools.selRandom(range(len(members)), size))
        return members[best]
