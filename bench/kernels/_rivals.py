"""Which of a user's own ways is the fastest: each is tried alone, the near ones side by side.

What fails, is wrong or takes too long is no baseline, and is never left out without a word.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kernelarc.bench.cuda._protocol import ContestReply
from kernelarc.bench.kernels._messages import TORCH_EAGER, BaselineContender, TriedBaseline
from kernelarc.bench.kernels._torch_calls import is_compiled

COMPILE_S, TRY_S = 90.0, 60.0
_COMPILING_S = 180.0  # all of a workload's together
_NEAR, _HOST_US = 10.0, 3000.0  # launched alone, a graph's many kernels wait for the host
_MOST_ROUNDS, _LEAST_ROUNDS, _CHOICE_US = 15, 3, 2e6
Tell: TypeAlias = "Callable[[int, float, tuple[TriedBaseline, float] | None], None]"
"""Takes which of the names it is, the seconds it may take and, once it has ended, what came of it
and the seconds it took."""
_NO_TIME = "not tried: the time for compiling this workload's baselines was used up"


@dataclass(slots=True)
class Rivals:
    """What is known of one workload's baselines.

    Attributes:
        fastest: Its name, None where there is none.
        told: By name, microseconds of one call, or the cause why it is no baseline.
        eager_off: How the reference's own eager mode misses the workload's tolerance, one line;
            empty where it does not.
        seconds: What trying each took, compiling included; of what was not tried nothing.
        left_out: What is on offer and was not wanted.
    """

    fastest: str | None = None
    told: dict[str, float | str] = field(default_factory=dict)
    eager_off: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return ``{"us": …}`` or ``{"failed": …}`` by name, with the ``seconds`` that a try took.

        What was not wanted is ``{"left_out": True}``; eager mode may also be ``off``.
        """
        told: dict[str, dict[str, Any]] = {
            name: {"failed": found} if isinstance(found, str) else {"us": round(found, 3)}
            for name, found in self.told.items()
        }
        for name, seconds in self.seconds.items():
            told[name]["seconds"] = round(seconds, 3)
        told |= {name: {"left_out": True} for name in self.left_out}
        if self.eager_off:
            told[TORCH_EAGER]["off"] = self.eager_off
        return told


def chosen(
    names: Sequence[str],
    ask: Callable[[str, float], TriedBaseline],
    contest: Callable[[Sequence[BaselineContender], int], ContestReply | None],
    *,
    left_out: Sequence[str] = (),
    tell: Tell | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Rivals:
    """Find the fastest of several baselines.

    Args:
        names: Of all that are on offer and wanted.
        ask: Tries one alone within so many seconds.
        contest: Times some side by side in so many rounds; None where that fails as a whole.
        left_out: Those on offer that are not wanted.
        tell: Hears of each as it is tried.
        clock: Seconds.
    """
    rivals = Rivals(left_out=tuple(left_out))
    tried = dict(_each(names, ask, tell or _nobody, clock, rivals.seconds))
    # The reference itself is what results are said to be; where its own rounding takes it beyond
    # the tolerance, others are not held to it, whether or not it may be a baseline.
    if TORCH_EAGER in tried:
        rivals.eager_off = tried[TORCH_EAGER].wrong
    elif TORCH_EAGER in left_out and any(one.wrong for one in tried.values()):
        rivals.eager_off = ask(TORCH_EAGER, TRY_S).wrong
    for name, one in tried.items():
        excused = name == TORCH_EAGER or rivals.eager_off
        wrong = "" if excused else one.wrong
        found = one.cause or (wrong and f"wrong: {wrong}") or one.latency_us
        rivals.told[name] = "no time was taken" if found is None else found
    times = {name: us for name, us in rivals.told.items() if not isinstance(us, str)}
    best = min(times.values(), default=0.0)
    near = [name for name, us in times.items() if us <= max(_NEAR * best, best + _HOST_US)]
    if len(near) < 2:
        rivals.fastest = next(iter(near), None)
        return rivals
    rounds = int(_CHOICE_US / sum(times[name] for name in near))
    rounds = max(_LEAST_ROUNDS, min(rounds, _MOST_ROUNDS))
    answer = contest([BaselineContender(name) for name in near], rounds)
    if answer is None:
        rivals.fastest = min(near, key=lambda name: times[name])
        return rivals
    medians = medians_of(near, answer)
    rivals.told |= medians
    rivals.told |= {near[column]: failure for column, failure in answer.failures.items()}
    rivals.fastest = min(medians, key=lambda name: medians[name], default=None)
    return rivals


def _each(
    names: Sequence[str],
    ask: Callable[[str, float], TriedBaseline],
    tell: Tell,
    clock: Callable[[], float],
    seconds: dict[str, float],
) -> Sequence[tuple[str, TriedBaseline]]:
    """Try every one; compilers get a time of their own, which they share."""
    found, left_s = [], _COMPILING_S
    for number, name in enumerate(names):
        compiles = is_compiled(name)
        if compiles and left_s <= 0:
            found.append((name, TriedBaseline(cause=_NO_TIME)))
            continue
        limit_s = min(COMPILE_S, left_s) if compiles else TRY_S
        tell(number, limit_s, None)
        begun = clock()
        one = ask(name, limit_s)
        seconds[name] = clock() - begun
        found.append((name, one))
        left_s -= seconds[name] if compiles else 0.0
        tell(number, limit_s, (one, seconds[name]))
    return found


def _nobody(number: int, limit_s: float, ended: tuple[TriedBaseline, float] | None) -> None:
    """Tell nobody."""


def medians_of(names: Sequence[str], answer: ContestReply) -> Mapping[str, float]:
    """Return the median microseconds of those that did not fail."""
    found = {}
    for column, name in enumerate(names):
        if column not in answer.failures:
            samples = sorted(row[column] for row in answer.samples)
            found[name] = (samples[(len(samples) - 1) // 2] + samples[len(samples) // 2]) / 2
    return found
