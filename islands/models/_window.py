"""The bounded part of the log that a model is fitted to: the newest and the best."""

from __future__ import annotations

from kernelarc.genomes import Judged, Status
from kernelarc.islands._island import View
from kernelarc.islands._population import fitness_of

_STRIDE = 32
_FAILED = {Status.COMPILE_ERROR, Status.LAUNCH_ERROR, Status.WRONG_RESULT, Status.TIMEOUT}


def window(view: View, route: str, limit: int) -> list[Judged]:
    """Return at most ``limit`` evaluations of a route: the newest in order, before them the best.

    The newest part begins at a multiple of a stride, so that from one ask to the next it mostly
    grows at its end, and what was built from it can be extended.
    """
    count = view.count()
    if count <= limit:
        return [judged for judged in view.recent(count) if route_of(judged) == route]
    least = max(3 * limit // 4 - _STRIDE, 1)
    newest = least + (count - least) % _STRIDE
    recent = view.recent(newest)
    seen = {judged.evaluation.candidate.genome.fingerprint for judged in recent}
    best = [
        judged
        for judged in view.best(limit - newest)
        if judged.evaluation.candidate.genome.fingerprint not in seen
    ]
    best.sort(key=lambda judged: judged.evaluation.candidate.number)
    return [judged for judged in (*best, *recent) if route_of(judged) == route]


def route_of(judged: Judged) -> str:
    """Return the route of what was evaluated."""
    return judged.evaluation.candidate.genome.route


def telling(judged: Judged) -> bool:
    """Tell whether an evaluation says anything of its genome: a number, or a failure of its own."""
    status = judged.evaluation.status
    return fitness_of(judged) is not None if status is Status.OK else status in _FAILED
