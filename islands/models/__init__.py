"""Models that propose: Optuna studies over evaluations that may be read."""

from kernelarc.islands.models._proposer import Proposer
from kernelarc.islands.models._study import StudyProposer
from kernelarc.islands.models._window import window

__all__ = ["Proposer", "StudyProposer", "window"]
