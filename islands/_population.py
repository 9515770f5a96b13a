"""Individuals and the bounded populations they live in, on DEAP's hall of fame and selection."""

from __future__ import annotations

import math
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
        fitness: DEAP's fitness: the score, then what parts equals.
        bound: True when the measurement was censored: the fitness is then an upper bound.
    """

    __slots__ = ("bound", "fitness", "genome", "score")

    def __init__(self, genome: Genome, fitness: float, *, bound: bool = False) -> None:
        self.genome = genome
        self.bound = bound
        self.score = round(fitness, _DIGITS)
        tie = -int(genome.fingerprint[:8], 16) / 2**32
        self.fitness = Fitness((self.score, tie))

    def copy(self) -> Individual:
        """Return an individual of its own."""
        other = Individual.__new__(Individual)
        other.genome, other.score, other.bound = self.genome, self.score, self.bound
        other.fitness = Fitness(self.fitness.wvalues)
        return other

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


def _same(left: Individual, right: Individual) -> bool:
    return left.genome.fingerprint == right.genome.fingerprint


class Population:
    """A colony that breeds now, and a hall of those that outlive its restarts.

    A censored individual enters only while the colony has nothing better than bounds: its fitness
    says how good it is *at most*.
    """

    def __init__(self, elites: int, hall: int) -> None:
        self._colony = tools.HallOfFame(elites, similar=_same)
        self._hall = tools.HallOfFame(hall, similar=_same)
        self._scores: dict[str, float] | None = None  # by fingerprint; None: to be listed anew

    def add(self, individual: Individual) -> bool:
        """Take one in, by copy. Returns whether it is the colony's new best."""
        colony = self.colony
        # Either all of a colony are bounds or none is, so the first speaks for them.
        if colony and colony[0].bound != individual.bound:
            if individual.bound:
                return False
            self.scatter()
        better = not colony or individual.score > colony[0].score
        self._enter(self._colony, individual)
        if not individual.bound:
            self._enter(self._hall, individual)
        return better

    def _enter(self, fame: tools.HallOfFame, individual: Individual) -> None:
        """Let one in that is good enough: most are not, and DEAP need not be asked."""
        if len(fame.items) < fame.maxsize or individual.fitness > fame.items[-1].fitness:
            fame.update([individual])
            self._scores = None

    def scatter(self) -> None:
        """Start a new colony; the hall stays."""
        self._colony.clear()
        self._scores = None

    @property
    def colony(self) -> Sequence[Individual]:
        """The breeding individuals, best first. Not to be changed."""
        members: list[Individual] = self._colony.items
        return members

    @property
    def hall(self) -> Sequence[Individual]:
        """The best ever, best first. Not to be changed."""
        members: list[Individual] = self._hall.items
        return members

    def genomes(self) -> list[Genome]:
        """Return hall and colony without repeats, best first."""
        both = {i.genome.fingerprint: i for i in (*self._hall, *self._colony)}
        ranked = sorted(both.values(), key=lambda i: i.fitness, reverse=True)
        return [individual.genome for individual in ranked]

    def score_of(self, fingerprint: str) -> float | None:
        """Return a living individual's score, or None when it is not among them."""
        if self._scores is None:
            known = (*self.hall, *self.colony)  # of two measurements the colony's counts
            self._scores = {individual.genome.fingerprint: individual.score for individual in known}
        return self._scores.get(fingerprint)

    def parent(self, size: int) -> Individual:
        """Choose by tournament among the colony; a fenced block must be open."""
        chosen: Individual = tools.selTournament(self._colony.items, 1, tournsize=size)[0]
        return chosen
