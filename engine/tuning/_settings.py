"""What the decorator is told: space, budget, store, and the environment variables that overrule."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelarc.genomes import Gene, InputError, as_seen, nearest, widened
from kernelarc.genomes.triton import OPTIONS

MODE_VARIABLE, STORE_VARIABLE = "KERNELARC_AUTOTUNE", "KERNELARC_AUTOTUNE_STORE"
SEARCH, READ, OFF = "search", "read", "off"
CONFIGURATIONS = "configs"
DEFAULT_BUDGET = 200
_MODES, _PLAIN = (SEARCH, READ, OFF), (bool, int, float, str)


def mode() -> str:
    """Return ``"search"``, ``"read"`` (stores are read, nothing is searched) or ``"off"``.

    An unknown word is ``"search"``: a program must not fail because of it.
    """
    found = os.environ.get(MODE_VARIABLE, SEARCH).lower()
    return found if found in _MODES else SEARCH


def default_store() -> str:
    """Return the store of kernels whose decorator names none: one for each user."""
    given = os.environ.get(STORE_VARIABLE)
    if given:
        return given
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return str(Path(cache) / "kernelarc" / "autotune.db")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What one decorator asks for. Checked on construction.

    Attributes:
        space: None widens the configurations; ``"configs"`` searches these alone; a mapping
            gives other alleles, or genes, by name and may name more genes.
        budget: Evaluations, or a text such as ``"30s"``: wall seconds of searching.
        store: Path or URL; None is the user's own.

    Raises:
        InputError: One of them is not what it may be.
    """

    space: Mapping[str, Gene | Sequence[Any]] | str | None = None
    budget: int | str | None = None
    store: str | os.PathLike[str] | None = None
    evaluations: int | None = field(init=False, default=None)
    seconds: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if isinstance(self.space, str) and self.space != CONFIGURATIONS:
            raise InputError(
                f"autotune: space is {self.space!r}; it is a mapping, None or {CONFIGURATIONS!r}"
            )
        if isinstance(self.budget, str):
            object.__setattr__(self, "seconds", _seconds(self.budget))
            return
        evaluations = DEFAULT_BUDGET if self.budget is None else self.budget
        if type(evaluations) is not int or evaluations < 1:
            raise InputError(
                f"autotune: budget is {self.budget!r}; it is a number of evaluations, or seconds "
                f"as text: '30s'"
            )
        object.__setattr__(self, "evaluations", evaluations)

    def place(self) -> str:
        """Return the store's path or URL."""
        store = default_store() if self.store is None else os.fspath(self.store)
        return store if "://" in store else str(Path(store).absolute())

    def demand_space(
        self, kernel: str, parameters: Sequence[str], seeds: Sequence[Mapping[str, Any]]
    ) -> None:
        """Refuse a space of alleles by gene that does not fit its kernel: before any call.

        Args:
            kernel: Its name.
            parameters: Its own.
            seeds: Its configurations, constants and options by name.

        Raises:
            InputError: A name is no parameter and no option, or a list lacks what a
                configuration says.
        """
        known = [*parameters, *OPTIONS]
        for name, domain in self.space.items() if isinstance(self.space, Mapping) else ():
            if name not in known:
                raise InputError(
                    f"autotune: space names {name!r}, which is no parameter of kernel {kernel!r} "
                    f"and no option of the compiler{nearest(name, known)}"
                )
            seen = [{name: seed[name]} for seed in seeds if isinstance(seed.get(name), _PLAIN)]
            widened(seen, {name: domain})

    def genes(self, seeds: Sequence[Mapping[str, Any]]) -> tuple[Gene, ...]:
        """Return the genes around a kernel's configurations.

        Raises:
            InputError: The space does not hold a configuration.
        """
        if isinstance(self.space, str):
            return as_seen(seeds)
        return widened(seeds, self.space)


def _seconds(text: str) -> float:
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = 0.0
    if not text.endswith("s") or not seconds > 0:
        raise InputError(f"autotune: budget is {text!r}; seconds are written '30s'")
    return seconds
