"""On which shapes a gain was seen: a predicate over axes, once two workloads agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernelarc.engine._arena import Arena
from kernelarc.engine._pool import ConclusionPool
from kernelarc.genomes import Conclusion, ConclusionKind


def shape_predicate(shapes: Sequence[Mapping[str, int]]) -> str:
    """Return what several workloads' axes have in common, as an expression over them.

    Args:
        shapes: Axes of at least one workload, all with the same names.
    """
    parts = []
    for name in shapes[0]:
        extents = [shape[name] for shape in shapes]
        low, high = min(extents), max(extents)
        parts.append(f"{name} == {low}" if low == high else f"{low} <= {name} <= {high}")
    return " and ".join(parts)


def with_predicate(
    win: Conclusion, pool: ConclusionPool, arenas: Mapping[str, Arena]
) -> Conclusion:
    """Return a win that names the shapes between which it was seen, if another one confirms it."""
    lesson = _lesson(win)
    agreeing = {
        other.workload
        for other in pool.active(ConclusionKind.WIN)
        if other.workload != win.workload and other.workload in arenas and _lesson(other) == lesson
    }
    if not agreeing:
        return win
    shapes = [arenas[key].workload.axes for key in arenas if key in {*agreeing, win.workload}]
    if any(shape.keys() != shapes[0].keys() for shape in shapes):
        return win
    return replace(win, predicate=shape_predicate(shapes))


def _lesson(win: Conclusion) -> tuple[str, frozenset[tuple[str, str]]]:
    """Return what is to be done: the genes and what they become, whatever they were before."""
    return win.route, frozenset((change.gene, repr(change.after)) for change in win.changes)
