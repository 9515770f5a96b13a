"""Models that propose: Optuna studies and a Gaussian process over evaluations that may be read."""

from kernelarc.islands.models._proposer import Proposer
from kernelarc.islands.models._ranker import Ranker
from kernelarc.islands.models._study import StudyProposer
from kernelarc.islands.models._surrogate import Surrogate, SurrogateProposer
from kernelarc.islands.models._threads import one_thread
from kernelarc.islands.models._window import window

__all__ = [
    "Proposer",
    "Ranker",
    "StudyProposer",
    "Surrogate",
    "SurrogateProposer",
    "one_thread",
    "window",
]
