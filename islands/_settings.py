"""All tuning constants of the islands in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class IslandSettings:
    """What can be switched or tuned about the islands. The defaults are the product's.

    Attributes:
        models: Whether models and Optuna propose; off, only mutation operators do.
        studies: Whether Optuna's studies are among them.
        surrogate: Whether the Gaussian process is.
        every_operator: Whether an island has the operators of all strategies as its own: for one
            that searches alone.
        ownership: Share of the operators' prior weight that goes to the strategy's own ones. It
            is where the bias starts; credit lets it decay where it does not pay.
        model_share: Prior share of proposals that come from the Gaussian process.
        study_share: Prior share that comes from Optuna's studies, on islands that have any.
        elites: Individuals that a colony keeps.
        hall: Individuals that outlive restarts.
        start: Evaluations that must be known before an island breeds.
        spread: Legal samples among which a space-filling start picks the farthest.
        tournament: How many individuals contend to become a parent.
        attempts: Drafts an island makes before it falls back to samples.
        trapped_share: Share of trapped proposals that are tried anyway.
        floor: Least probability of any operator, before normalising.
        memory: Told outcomes over which an operator's credit fades to a third.
        study_window: Trials that an Optuna study is rebuilt from, at most.
        study_startup: Trials below which a study stays silent.
        model_window: Evaluations that the Gaussian process is given, at most.
        model_fit: Evaluations that its length scales are fitted to, at most.
        model_startup: Evaluations below which it stays silent.
        model_pool: Legal samples that it ranks.
        exhaustive: Raw size up to which an island walks the space in order once samples repeat.
    """

    models: bool = True
    studies: bool = True
    surrogate: bool = True
    every_operator: bool = False
    ownership: float = 0.5
    model_share: float = 0.96
    study_share: float = 0.02
    elites: int = 8
    hall: int = 8
    start: int = 12
    spread: int = 24
    tournament: int = 6
    attempts: int = 16
    trapped_share: float = 0.05
    floor: float = 0.005
    memory: int = 40
    study_window: int = 220
    study_startup: int = 10
    model_window: int = 220
    model_fit: int = 128
    model_startup: int = 12
    model_pool: int = 300
    exhaustive: int = 2_000_000
