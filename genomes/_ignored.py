"""What a file says and nobody reads: told in one line a kind, however many lines hold it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

from kernelarc.genomes._json_source import Node


@dataclass(slots=True)
class Ignored:
    """Gathers what is ignored while a file is read, and warns once it was."""

    _first: dict[str, Node] = field(default_factory=dict)
    _lines: dict[str, set[str]] = field(default_factory=dict)

    def add(self, node: Node, why: str) -> None:
        """Note a field; ``why`` names it and says what is made of it."""
        self._first.setdefault(why, node)
        self._lines.setdefault(why, set()).add(node.source.place(node.path))

    def tell(self) -> None:
        """Warn of each kind: where it stands first, and on how many other lines.

        Warns:
            UserWarning: Something was noted.
        """
        for why, node in self._first.items():
            others = len(self._lines[why]) - 1
            more = "" if not others else f" (so on {others} more line{'s' * (others > 1)})"
            warnings.warn(f"{node.source.place(node.path)}: {why}{more}", stacklevel=3)
