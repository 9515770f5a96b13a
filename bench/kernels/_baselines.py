"""The baselines of a session's workloads: those on offer, those wanted, and the fastest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelarc.bench._baseline_choice import Tell, demand_offered
from kernelarc.bench.cuda._protocol import ContestReply
from kernelarc.bench.kernels._messages import (
    FIRST_HEURISTIC,
    OWN_CONFIGURATION,
    TORCH_EAGER,
    BaselineContender,
    TriedBaseline,
)
from kernelarc.bench.kernels._rivals import Rivals, chosen
from kernelarc.bench.kernels._torch_calls import is_compiled
from kernelarc.genomes import EAGER_BASELINE, BaselineAttempt

_ALONE = ((OWN_CONFIGURATION,), (FIRST_HEURISTIC,))


class Baselines:
    """What may be a baseline, by a workload's place.

    Args:
        labels: Of the workloads.
        offered: By place, the names on offer.
        ask: Tries one of a place within so many seconds.
        race: Times some of a place side by side; None where that fails as a whole.
    """

    def __init__(
        self,
        labels: Sequence[str],
        offered: Callable[[int], tuple[str, ...]],
        ask: Callable[[int, str, float], TriedBaseline],
        race: Callable[[int, Sequence[BaselineContender], int], ContestReply | None],
    ) -> None:
        self._labels, self._offered, self._ask, self._race = labels, offered, ask, race
        self._choice: tuple[str, ...] | None = None
        self._rivals: dict[int, Rivals] = {}
        self.tell: Tell = _nothing

    def limit(self, choice: Sequence[str] | None) -> None:
        """Let only some be a baseline; see ``Session.limit_baselines``."""
        if choice is not None:
            places = range(len(self._labels))
            demand_offered(choice, {self._labels[i]: self._offered(i) for i in places})
        self._choice = None if choice is None else tuple(choice)

    def left_out(self, place: int) -> tuple[str, ...]:
        """Return what is on offer and not wanted."""
        if self._choice is None:
            return ()
        offered = self._offered(place)
        wanted = self._wanted(offered)
        return tuple(name for name in offered if name not in wanted)

    def _wanted(self, offered: tuple[str, ...]) -> tuple[str, ...]:
        """Return what is wanted of what is on offer; where there is no eager mode, all of it."""
        if self._choice is None:
            return offered
        if self._choice == (EAGER_BASELINE,):
            return (TORCH_EAGER,) if TORCH_EAGER in offered else offered
        return tuple(name for name in offered if name in self._choice)

    def names(self, place: int) -> tuple[str, ...]:
        """Return what may be the baseline: one thing at most once the fastest is known."""
        if place in self._rivals:
            fastest = self._rivals[place].fastest
            return () if fastest is None else (fastest,)
        return self._wanted(self._offered(place))

    def fastest(self, place: int) -> str | None:
        """Return the fastest, found once a session.

        One that fails is none; where all of them do, there is none.
        """
        names = self.names(place)
        if place not in self._rivals:
            left_out = self.left_out(place)
            if names not in _ALONE or left_out:
                self._rivals[place] = chosen(
                    names,
                    lambda name, seconds: self._ask(place, name, seconds),
                    lambda some, rounds: self._race(place, some, rounds),
                    left_out=left_out,
                    tell=lambda number, limit_s, ended: self._told(
                        place, names, number, limit_s, ended
                    ),
                )
        return next(iter(self.names(place)), None)

    def _told(
        self,
        place: int,
        names: Sequence[str],
        number: int,
        limit_s: float,
        ended: tuple[TriedBaseline, float] | None,
    ) -> None:
        one, seconds = ended or (TriedBaseline(), None)
        self.tell(
            BaselineAttempt(
                workload=self._labels[place],
                name=names[number],
                number=number + 1,
                of=len(names),
                compiles=is_compiled(names[number]),
                limit_s=limit_s,
                seconds=seconds,
                latency_us=one.latency_us,
                cause=one.cause,
                wrong=one.wrong,
            )
        )

    def tried(self, place: int) -> Mapping[str, Mapping[str, Any]]:
        """Return what came of each; empty until they were tried."""
        found = self._rivals.get(place)
        return {} if found is None else found.to_json()


def _nothing(attempt: BaselineAttempt) -> None:
    """Tell nobody."""
