"""Functions of the caller's program as tables: called here for every combination that matters.

A grid function and the rules of ``triton.heuristics`` are code of the calling program. Of all that
they are given, they look at a few genes; so they are called once for each combination of those,
and the answers travel instead of the code.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelarc.engine.tuning._travel import CannotTravelError
from kernelarc.genomes import Allele, Gene

MOST_ROWS = 50_000
_PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tabled:
    """A function of a few genes.

    Attributes:
        genes: The genes it looks at, in the order of the rows.
        rows: Its answers by alleles. A combination for which it raises is absent.
    """

    genes: tuple[str, ...]
    rows: Mapping[tuple[Allele, ...], Any]


class _Watched(dict[str, Any]):
    """Arguments that remember which of them were looked at."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.seen: set[str] = set()
        self.all = False

    def __getitem__(self, name: str) -> Any:
        self.seen.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.seen.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.seen.add(str(name))
        return super().__contains__(name)

    def _everything(self) -> None:
        self.all = True

    def __iter__(self) -> Any:
        self._everything()
        return super().__iter__()

    def keys(self) -> Any:
        self._everything()
        return super().keys()

    def items(self) -> Any:
        self._everything()
        return super().items()

    def values(self) -> Any:
        self._everything()
        return super().values()


def tabled(
    what: str,
    function: Callable[[Mapping[str, Any]], Any],
    named: Mapping[str, Any],
    genes: Sequence[Gene],
    first: Mapping[str, Allele],
) -> Tabled:
    """Call a function for every combination of the genes that it looks at.

    Args:
        what: For messages: ``"the grid"``.
        function: Takes all arguments by name.
        named: What the call gave.
        genes: All genes.
        first: A genome that works: the genes it makes the function look at come first.

    Raises:
        CannotTravelError: It looks at too much, raises everywhere, or answers what is no value.
    """
    known = {gene.name: gene for gene in genes}
    wanted: set[str] = set()
    while True:
        chosen = [gene for gene in genes if gene.name in wanted]
        count = math.prod(gene.cardinality for gene in chosen)
        if count > MOST_ROWS:
            raise CannotTravelError(f"{what} depends on {count:,} combinations of genes")
        rows, seen = _rows(what, function, {**named, **first}, chosen)
        more = (seen & set(known)) - wanted
        if not more:
            break
        wanted |= more
    if not rows:
        raise CannotTravelError(f"{what} raises for every combination of genes")
    return Tabled(genes=tuple(gene.name for gene in chosen), rows=rows)


def _rows(
    what: str,
    function: Callable[[Mapping[str, Any]], Any],
    values: Mapping[str, Any],
    chosen: Sequence[Gene],
) -> tuple[dict[tuple[Allele, ...], Any], set[str]]:
    rows: dict[tuple[Allele, ...], Any] = {}
    seen: set[str] = set()
    for alleles in itertools.product(*(gene.values() for gene in chosen)):
        point = dict(zip((gene.name for gene in chosen), alleles, strict=True))
        watched = _Watched({**values, **point})
        try:
            rows[alleles] = plain_answer(what, function(watched))
        except CannotTravelError:
            raise
        except Exception:  # a combination that the program itself refuses
            continue
        finally:
            seen |= set(values) if watched.all else watched.seen
    return rows, seen


def plain_answer(what: str, answer: Any) -> Any:
    """Return an answer as plain values.

    Raises:
        CannotTravelError: It holds something else.
    """
    answer = getattr(answer, "value", answer)
    if isinstance(answer, tuple | list):
        return tuple(plain_answer(what, part) for part in answer)
    if isinstance(answer, _PLAIN):
        return answer
    whole = getattr(answer, "__index__", None)
    if whole is None:
        raise CannotTravelError(f"{what} gives a {type(answer).__name__}")
    return whole()
