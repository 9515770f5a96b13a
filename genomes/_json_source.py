"""JSON with places: every value knows its file, its line and the path of fields that leads to it.

Problem files are written by hand and by programs; one line must be enough to mend them. The line
of a field is looked for only when something is refused.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from kernelarc.genomes._errors import InputError, nearest

Step: TypeAlias = "str | int"
T = TypeVar("T")
_BLANKS = " \t\n\r"


@dataclass(frozen=True, slots=True)
class Source:
    """Where JSON was read.

    Attributes:
        where: How messages call it: a path, or what stands for one.
        text: The JSON, or None where the value was never text.
        first_line: The line of the file on which the text begins.
    """

    where: str
    text: str | None = None
    first_line: int = 1

    def place(self, path: tuple[Step, ...]) -> str:
        """Return ``"file, line n"``; without a text, the file alone."""
        if self.text is None:
            return self.where
        line = self.first_line + self.text.count("\n", 0, _offset(self.text, path))
        return f"{self.where}, line {line}"


@dataclass(frozen=True, slots=True)
class Node:
    """A JSON value at a place.

    Attributes:
        value: As ``json.loads`` gives it.
        source: The file.
        path: The fields that lead to it.
    """

    value: Any
    source: Source
    path: tuple[Step, ...] = ()

    @property
    def field(self) -> str:
        """The path as people write it: ``axes.rows.type``, ``sources[0].path``."""
        text = ""
        for step in self.path:
            text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
        return text

    def refused(self, why: str) -> InputError:
        """Return the error: file, line, field, and why."""
        field = f"{self.field} " if self.path else ""
        return InputError(f"{self.source.place(self.path)}: {field}{why}")

    def wrong(self, allowed: str) -> InputError:
        """Return the error for a value that is not what is allowed."""
        shown = json.dumps(self.value)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        return self.refused(f"must be {allowed}, not {shown}")

    def members(self, allowed: str) -> dict[str, Node]:
        """Return an object's fields. ``allowed`` says what the object would hold."""
        if not isinstance(self.value, dict):
            raise self.wrong(f"a JSON object ({allowed})")
        for name in self.value:
            if not name:
                raise self.refused("has a field without a name; names must not be empty")
        return {name: self._at(name) for name in self.value}

    def items(self, allowed: str) -> list[Node]:
        """Return a list's items."""
        if not isinstance(self.value, list):
            raise self.wrong(f"a list of {allowed}")
        return [self._at(place) for place in range(len(self.value))]

    def get(self, name: str) -> Node | None:
        """Return a field of an object, or None where it is absent or null."""
        if self.value.get(name) is None:
            return None
        return self._at(name)

    def given(self, name: str) -> Node | None:
        """Return a field of an object, null too, or None where it is absent."""
        return self._at(name) if name in self.value else None

    def need(self, name: str, allowed: str) -> Node:
        """Return a field that must be there."""
        if name not in self.value:
            raise self.refused(f"lacks the field {name!r}: {allowed}")
        return self._at(name)

    def text(self, allowed: str = "a text that is not empty") -> str:
        """Return a text that is not empty."""
        if not isinstance(self.value, str) or not self.value.strip():
            raise self.wrong(allowed)
        return self.value

    def words(self) -> str:
        """Return a text that may be empty, as a description may."""
        if not isinstance(self.value, str):
            raise self.wrong("a text")
        return self.value

    def chosen(self, known: Iterable[str]) -> str:
        """Return a text out of those that are known."""
        names = tuple(known)
        if self.value not in names:
            hint = nearest(self.value, names) if isinstance(self.value, str) else ""
            raise self.wrong(f"one of {', '.join(names)}{hint if 'did you' in hint else ''}")
        return str(self.value)

    def switch(self) -> bool:
        """Return a boolean."""
        if not isinstance(self.value, bool):
            raise self.wrong("true or false")
        return self.value

    def number(self, allowed: str = "a number from 0 on") -> float:
        """Return a finite number that is not negative."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(allowed)
        if not 0 <= value < float("inf"):
            raise self.wrong(allowed)
        return float(value)

    def checked(self, read: Callable[[], T]) -> T:
        """Return what a function reads; an InputError of it gets this value's place."""
        try:
            return read()
        except InputError as error:
            raise self.refused(f"is refused: {error}") from None

    def _at(self, step: Step) -> Node:
        return Node(self.value[step], self.source, (*self.path, step))


def read_text(path: Path) -> str:
    """Return a file's text.

    Raises:
        InputError: It is missing, a folder, a pipe or the like, unreadable or not UTF-8.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"{path} is no regular file; one is needed there")
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; a file is needed there") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}: not UTF-8 text") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def parsed(text: str, where: str, first_line: int = 1) -> Node:
    """Parse JSON text that begins on a line of a file.

    NaN and infinities are read, as in the harness: whoever reads their field refuses them.

    Raises:
        InputError: It is no JSON.
    """
    if not text.strip():
        raise InputError(f"{where} is empty; JSON is needed")
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise InputError(
            f"{where}, line {line}: no JSON: {error.msg} (column {error.colno})"
        ) from None
    except ValueError:  # digits without end
        line = first_line + text.count("\n", 0, _endless_number(text))
        raise InputError(f"{where}, line {line}: a number has too many digits") from None
    except RecursionError:
        raise InputError(f"{where}, line {first_line}: nested too deeply") from None
    return Node(value, Source(where, text, first_line))


def _endless_number(text: str) -> int:
    found = re.search(rf"\d{{{sys.get_int_max_str_digits() + 1}}}", text)
    return found.start() if found else 0


# Looking for a place


def _offset(text: str, path: tuple[Step, ...]) -> int:
    """Return where the value of a path begins, or the last part of it that is there."""
    at = _blank(text, 0)
    for step in path:
        inner = _member(text, at, step) if text[at : at + 1] in ("{", "[") else None
        if inner is None:
            break
        at = inner
    return at


def _member(text: str, at: int, step: Step) -> int | None:
    """Return where a member of the object or list at ``at`` begins; of equal names the last."""
    found, decoder = None, json.JSONDecoder()
    keyed, place, at = text[at] == "{", 0, _blank(text, at + 1)
    while text[at] not in "}]":
        name: Step = place
        if keyed:
            name, at = decoder.raw_decode(text, at)
            at = _blank(text, text.index(":", at) + 1)
        found = at if name == step else found
        _, at = decoder.raw_decode(text, at)
        at, place = _blank(text, at), place + 1
        if text[at] == ",":
            at = _blank(text, at + 1)
    return found


def _blank(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    return at


def plain(content: object, where: str) -> Node:
    """Return a node for a value that was never text; its places name ``where`` alone."""
    return Node(content, Source(where))
