"""Whether the baselines that a user names are on offer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from kernelarc.genomes import EAGER_BASELINE, BaselineAttempt, InputError

Tell: TypeAlias = Callable[[BaselineAttempt], None]
"""Hears of a baseline as it is tried."""


def demand_offered(choice: Sequence[str] | None, offered: Mapping[str, Sequence[str]]) -> None:
    """Refuse what is not on offer.

    Args:
        choice: Names of baselines; None is all, ``(EAGER_BASELINE,)`` fits everything.
        offered: Names on offer by workload label.

    Raises:
        InputError: Nobody offers a name, or nothing is left of what a workload is offered.
    """
    if choice is None or tuple(choice) == (EAGER_BASELINE,):
        return
    known = list(dict.fromkeys(name for names in offered.values() for name in names))
    there = ", ".join(known) or "none to choose"
    for name in choice:
        if name not in known:
            raise InputError(
                f"baselines: unknown {name!r}; on offer here: {there} (or say all, or eager)"
            )
    for label, names in offered.items():
        if names and not set(names) & set(choice):
            raise InputError(
                f"baselines: none of {', '.join(choice)} is on offer for {label}: "
                f"there are {', '.join(names)}"
            )
