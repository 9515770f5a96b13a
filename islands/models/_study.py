"""Proposals by Optuna's multivariate TPE from a study rebuilt out of told evaluations."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from kernelarc.genomes import Allele, Gene, Genome, Judged, Space, same_allele
from kernelarc.islands._branches import arm, branch_genes
from kernelarc.islands._population import fitness_of
from kernelarc.islands._settings import IslandSettings
from kernelarc.islands._turn import Turn
from kernelarc.islands.models._axes import Axis
from kernelarc.islands.models._window import telling, window

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.samplers import TPESampler
    from optuna.storages import InMemoryStorage
    from optuna.trial import FrozenTrial

_Outcome: TypeAlias = "tuple[str, float | None]"

_STUDIES = 8
_SUGGESTIONS = 3


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna's announcements out of the program's output, then restore its verbosity."""
    import optuna  # noqa: PLC0415

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


class _Shared(dict[str, Any]):
    """What finished trials hold and nobody changes: storages copy every trial they are given."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _Shared:
        return self


def _outcome(judged: Judged) -> _Outcome:
    """Name what a trial stands for: a genome measured again is another trial."""
    return judged.evaluation.candidate.genome.fingerprint, fitness_of(judged)


class StudyProposer:
    """An Optuna study per route, and per algorithm where genes depend on one.

    The study holds finished trials only: the sampler is asked for parameters without opening a
    trial, so nothing is ever left running. Failures stand in it as pruned trials.

    Attributes:
        name: As in Proposer.
    """

    def __init__(
        self, name: str, space: Space, genes: Sequence[Gene], settings: IslandSettings
    ) -> None:
        self.name = name
        self._space = space
        self._settings = settings
        self._covered = {gene.name for gene in genes}
        self._free = [gene for gene in space.genes if gene.cardinality > 1]
        self._branches = list(branch_genes(space))
        self._axes: dict[str, Axis] = {}
        self._trials: dict[_Outcome, FrozenTrial] = {}
        self._studies: dict[tuple[object, ...], tuple[list[_Outcome], InMemoryStorage]] = {}

    def propose(
        self, turn: Turn, parent: Genome | None, draft: Callable[[], Genome | None]
    ) -> Genome | None:
        """Return what the study suggests, repaired, or None where it knows too little."""
        log = window(turn.view, self._space.route, self._settings.study_window)
        log = [judged for judged in log if telling(judged)]
        if len(log) < self._settings.study_startup:
            return None
        with _quiet():
            for _ in range(_SUGGESTIONS):
                alleles = self._suggest(turn, log, parent)
                genome = self._space.repair(alleles, turn.rng)
                if genome is not None and turn.admits(genome):
                    return genome
        return None

    def study(self, log: Sequence[Judged], branch: Mapping[str, Allele] | None = None) -> Study:
        """Return the study of these evaluations, extended from the last one where that is equal.

        Args:
            log: Evaluations of this route, oldest first.
            branch: Alleles that all of them share (an algorithm's study), for keeping it apart.
        """
        import optuna  # noqa: PLC0415

        key = tuple(sorted((branch or {}).items()))
        wanted = [_outcome(judged) for judged in log]
        known, storage = self._studies.pop(key, ([], None))
        if storage is None or wanted[: len(known)] != known:
            known, storage = [], optuna.storages.InMemoryStorage()
            optuna.create_study(study_name=self.name, storage=storage, direction="minimize")
        # A Study object remembers the trials that a sampler first saw through it: one that is
        # extended is opened anew, or the sampler would go on without the new trials.
        optuna.load_study(study_name=self.name, storage=storage).add_trials(
            [self._trial(judged) for judged in log[len(known) :]]
        )
        self._studies[key] = (wanted, storage)
        while len(self._studies) > _STUDIES:
            del self._studies[next(iter(self._studies))]
        return optuna.load_study(study_name=self.name, storage=storage)

    def _axis(self, gene: Gene) -> Axis:
        if gene.name not in self._axes:
            self._axes[gene.name] = Axis(gene)
        return self._axes[gene.name]

    def _trial(self, judged: Judged) -> FrozenTrial:
        outcome = _outcome(judged)
        found = self._trials.get(outcome)
        if found is None:
            if len(self._trials) > 4 * self._settings.study_window:
                self._trials.clear()
            found = self._trials[outcome] = self._new_trial(judged)
        return found

    def _new_trial(self, judged: Judged) -> FrozenTrial:
        from optuna.trial import TrialState, create_trial  # noqa: PLC0415

        genome, fitness = judged.evaluation.candidate.genome, fitness_of(judged)
        axes = [self._axis(gene) for gene in self._free if gene.name in genome]
        parameters: dict[str, Any] = {}
        distributions: dict[str, BaseDistribution] = {}
        for axis in axes:
            parameters.update(axis.parameters(genome[axis.gene.name]))
            distributions.update(axis.distributions)
        trial = create_trial(
            state=TrialState.PRUNED if fitness is None else TrialState.COMPLETE,
            value=None if fitness is None else -fitness,
            params=parameters,
            distributions=distributions,
        )
        trial.params, trial.distributions = _Shared(trial.params), _Shared(trial.distributions)
        return trial

    def _suggest(
        self, turn: Turn, log: Sequence[Judged], parent: Genome | None
    ) -> dict[str, Allele]:
        """Choose the branch first, then the rest from the branch's own trials, if enough.

        Where the study decides all genes, a bandit chooses the branch: a sampler's model of one
        gene among a dozen does not weigh how little is known of an allele.
        """
        sampler = self._sampler(turn)
        alleles: dict[str, Allele] = {} if parent is None else parent.alleles()
        branches = [gene for gene in self._branches if self._covers(gene, alleles)]
        if branches:
            arms = {gene.name: arm(gene, log, turn.rng) for gene in branches}
            drawn = [gene for gene in branches if arms[gene.name] is None]
            alleles.update({name: a for name, a in arms.items() if a is not None})
            if drawn:
                alleles.update(self._draw(sampler, self.study(log), drawn))
            inside = [judged for judged in log if self._inside(judged, alleles)]
            if len(inside) >= self._settings.study_startup:
                log = inside
        chosen = {gene.name: alleles[gene.name] for gene in branches if gene.name in alleles}
        rest = [g for g in self._free if g not in branches and self._covers(g, alleles)]
        alleles.update(self._draw(sampler, self.study(log, chosen), rest))
        return self._complete(turn, alleles)

    def _sampler(self, turn: Turn) -> TPESampler:
        from optuna.samplers import TPESampler  # noqa: PLC0415

        return TPESampler(
            seed=int(turn.rng.integers(2**31)),
            multivariate=True,
            constant_liar=False,
            n_startup_trials=self._settings.study_startup,
        )

    def _covers(self, gene: Gene, alleles: Mapping[str, Allele]) -> bool:
        """Whether the study decides this gene: one it is for, or one that no parent gives."""
        if gene.when is not None and not gene.when.holds(alleles):
            return False
        return gene.name in self._covered or gene.name not in alleles

    def _inside(self, judged: Judged, alleles: Mapping[str, Allele]) -> bool:
        genome = judged.evaluation.candidate.genome
        names = [gene.name for gene in self._branches]
        return all(
            (name in genome) == (name in alleles)
            and (name not in genome or same_allele(genome[name], alleles[name]))
            for name in names
        )

    def _draw(self, sampler: TPESampler, study: Study, genes: Sequence[Gene]) -> dict[str, Allele]:
        """Draw genes together where every trial has them, one by one where not."""
        from optuna.trial import TrialState, create_trial  # noqa: PLC0415

        opening = create_trial(state=TrialState.RUNNING)
        trials = study.get_trials(deepcopy=False)
        axes = [self._axis(gene) for gene in genes]
        whole: dict[str, BaseDistribution] = {}
        apart: dict[str, BaseDistribution] = {}
        for axis in axes:
            everywhere = axis.gene.when is None or all(
                trial.params.keys() >= axis.distributions.keys() for trial in trials
            )
            (whole if everywhere else apart).update(axis.distributions)
        drawn = sampler.sample_relative(study, opening, whole)
        for name, distribution in apart.items():
            drawn[name] = sampler.sample_independent(study, opening, name, distribution)
        return {axis.gene.name: axis.allele(drawn) for axis in axes}

    def _complete(self, turn: Turn, alleles: Mapping[str, Allele]) -> dict[str, Allele]:
        """Give every active gene an allele, in the space's order, and leave out the inactive."""
        whole: dict[str, Allele] = {}
        for gene in self._space.genes:
            if gene.when is None or gene.when.holds(whole):
                found = alleles.get(gene.name)
                whole[gene.name] = gene.sample(turn.rng) if found is None else found
        return whole
