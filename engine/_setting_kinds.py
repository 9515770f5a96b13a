"""What the value of a setting may be. Each reader checks one value and returns its typed form.

A reader is idempotent: its result may be read again. Every refusal is one line that names the
key, the value and what would be right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from kernelarc.genomes import ALL_BASELINES, EAGER_BASELINE, InputError, nearest

Reader: TypeAlias = Callable[[str, Any], Any]

LARGEST_AXIS = 2**31 - 1
UNBOUNDED = "unbounded"


def _refuse(key: str, value: object, wanted: str) -> InputError:
    return InputError(f"{key} must be {wanted}, not {value!r}")


def text(key: str, value: Any) -> str:
    """Read a text that is not empty and that a path could be."""
    if not isinstance(value, str) or not value:
        raise _refuse(key, value, "a text that is not empty")
    if "\0" in value:
        raise _refuse(key, value, "a text without null characters")
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise _refuse(key, value, "UTF-8 text (a file name of other bytes cannot be remembered)")
    return value


def switch(key: str, value: Any) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise _refuse(key, value, "true or false")
    return value


def whole(low: int, high: int) -> Reader:
    """Make a reader of whole numbers from ``low`` to ``high``."""

    def read(key: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise _refuse(key, value, f"a whole number from {low} to {high}")
        return value

    return read


def number(low: float, high: float, *, above: bool = False) -> Reader:
    """Make a reader of finite numbers from ``low`` (excluded when ``above``) to ``high``."""

    def read(key: str, value: Any) -> float:
        usable = isinstance(value, int | float) and not isinstance(value, bool)
        if not usable or not math.isfinite(value) or not low <= value <= high:
            raise _refuse(key, value, f"a number from {low:g} to {high:g}")
        if above and value == low:
            raise _refuse(key, value, f"a number above {low:g}")
        return float(value)

    return read


def optional(reader: Reader) -> Reader:
    """Make a reader that lets None stand for "not given"."""

    def read(key: str, value: Any) -> Any:
        return None if value is None else reader(key, value)

    return read


def unbounded_or(reader: Reader) -> Reader:
    """Make a reader that takes the word ``unbounded``, kept as None, besides what it is given."""

    def read(key: str, value: Any) -> Any:
        if isinstance(value, str) and value != UNBOUNDED:
            raise _refuse(key, value, f"a whole number or {UNBOUNDED!r}")
        return None if value is None or value == UNBOUNDED else reader(key, value)

    return read


def one_of(known: tuple[str, ...], what: str) -> Reader:
    """Make a reader of one known name; an unknown one is answered with the nearest."""

    def read(key: str, value: Any) -> str:
        if value not in known:
            raise InputError(f"{key}: unknown {what} {value!r}{nearest(str(value), known)}")
        return str(value)

    return read


def names(reader: Reader, *, least: int) -> Reader:
    """Make a reader of a list without repetitions; a text is split at its commas."""

    def read(key: str, value: Any) -> tuple[Any, ...]:
        listed = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
        if not isinstance(listed, list | tuple) or len(listed) < least:
            raise _refuse(key, value, f"a list of at least {least}")
        found = tuple(reader(key, item) for item in listed)
        if len(set(found)) < len(found):
            raise _refuse(key, value, "a list without repetitions")
        return found

    return read


def baselines(key: str, value: Any) -> tuple[str, ...] | None:
    """Read names of baselines; ``all``, kept as None, and ``eager`` stand alone."""
    if value is None:
        return None
    found = names(text, least=1)(key, value)
    for word in (ALL_BASELINES, EAGER_BASELINE):
        if word in found and len(found) > 1:
            raise InputError(f"{key}: {word!r} stands alone, not beside other names")
    return None if found == (ALL_BASELINES,) else found


def table(reader: Reader) -> Reader:
    """Make a reader of a table: a name and a value that ``reader`` takes, any number of times."""

    def read(key: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _refuse(key, value, "a table of name = value")
        return {str(name): reader(f"{key} {name}", item) for name, item in value.items()}

    return read


def tables(reader: Reader) -> Reader:
    """Make a reader of a list of tables: none empty, no two the same; an empty list is allowed."""
    one = table(reader)

    def read(key: str, value: Any) -> tuple[dict[str, Any], ...]:
        listed = [value] if isinstance(value, Mapping) else value
        if not isinstance(listed, list | tuple):
            raise _refuse(key, value, "a table of name = value, or a list of them")
        found: list[dict[str, Any]] = []
        for place, item in enumerate(listed, start=1):
            entry = one(f"{key} {place}", item)
            if not entry:
                raise InputError(f"{key} {place} is empty: it must set an axis")
            if entry in found:
                raise InputError(f"{key} {place} repeats {key} {found.index(entry) + 1}")
            found.append(entry)
        return tuple(found)

    return read


def path(key: str, value: Any) -> Path:
    """Read a file's path."""
    return Path(text(key, str(value) if isinstance(value, Path) else value))


def paths(key: str, value: Any) -> tuple[Path, ...]:
    """Read one path or a list of them; none is allowed."""
    listed = [value] if isinstance(value, str | Path) else value
    if not isinstance(listed, list | tuple):
        raise _refuse(key, value, "a path or a list of paths")
    return tuple(path(key, item) for item in listed)


def allele(key: str, value: Any) -> str:
    """Read an allele as text; it is parsed against its gene once the space is known."""
    if isinstance(value, list | tuple):
        return ",".join(allele(key, item) for item in value)
    if not isinstance(value, bool | int | float | str) or value == "":
        raise _refuse(key, value, "an allele: a text, a number, true or false")
    return str(value)


def option(key: str, value: Any) -> bool | int | str:
    """Read the value of an operator's option."""
    if not isinstance(value, bool | int | str):
        raise _refuse(key, value, "a text, a whole number, true or false")
    return value
