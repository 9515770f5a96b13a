"""What is looked at after a candidate ran: bounds, inputs, outputs, in this order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from kernelarc.bench._numerics import Comparison
from kernelarc.bench.cpu._refusal import INPUT_CHANGED, NOT_WRITTEN, OUT_OF_BOUNDS, Refusal
from kernelarc.bench.cpu._stage import BufferSet
from kernelarc.genomes import Status

Comparisons: TypeAlias = "Callable[[], Mapping[str, Comparison]]"


class Checkable(Protocol):
    """Buffers that a candidate ran on, with the answer at hand."""

    buffers: BufferSet

    def changed_inputs(self) -> tuple[str, ...]:
        """Return the names of inputs that are not as they were."""

    def compare(self) -> Mapping[str, Comparison]:
        """Compare every output."""


def check_surroundings(run: Checkable, where: str) -> None:
    """Refuse writes outside of the outputs.

    Raises:
        Refusal: A guard band or an input was changed.
    """
    if (damage := run.buffers.damage()) is not None:
        raise Refusal(Status.WRONG_RESULT, OUT_OF_BOUNDS, f"{damage} ({where})", suspect=True)
    if changed := run.changed_inputs():
        message = f"changed its input {', '.join(changed)} ({where})"
        raise Refusal(Status.WRONG_RESULT, INPUT_CHANGED, message)


def check_run(run: Checkable, where: str, comparisons: Comparisons | None = None) -> float:
    """Check one finished run; return the largest error relative to the reference's size.

    Args:
        run: What was run on.
        where: In which stage, for the message.
        comparisons: How outputs are compared, if otherwise than whole.

    Raises:
        Refusal: It wrote where it must not, left an output unwritten, or is wrong.
    """
    check_surroundings(run, where)
    if (text := run.buffers.unwritten()) is not None:
        raise Refusal(Status.WRONG_RESULT, NOT_WRITTEN, f"{text} ({where})")
    worst = 0.0
    for comparison in (comparisons or run.compare)().values():
        if not comparison.ok:
            failure = comparison.failure or "wrong"
            message = f"{comparison.message} ({where})"
            raise Refusal(Status.WRONG_RESULT, failure, message)
        worst = max(worst, comparison.rms_error)
    return worst
