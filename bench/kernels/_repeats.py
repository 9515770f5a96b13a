"""What the device alone can tell to be equal: launches that come to what was judged before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kernelarc.bench.cuda._protocol import Outcome
from kernelarc.genomes import Status


class Repeats:
    """Knows the launches that a worker has judged, by workload and content."""

    def __init__(self) -> None:
        self._judged: set[tuple[int, str]] = set()

    def outcome(
        self, workload: int, content: str, number: int, judge: Callable[[], Outcome], *, anew: bool
    ) -> Outcome:
        """Judge a candidate, or say that its launches were judged before.

        Args:
            workload: Its place.
            content: What its launches come to; empty: nothing is known to be equal.
            number: The candidate's.
            judge: Checks and times it.
            anew: Whether it is judged in any case.
        """
        if not content:
            return judge()
        if (workload, content) in self._judged and not anew:
            return Outcome(number=number, status=Status.OK, content=content, repeats=True)
        found = judge()
        if found.status in {Status.OK, Status.WRONG_RESULT}:
            self._judged.add((workload, content))
        return replace(found, content=content)
