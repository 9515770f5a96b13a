"""Walk a JSON object member by member, its rows one by one, and survive a torn end.

A recording is one JSON object with a few small members and one large one, which holds the rows.
Decoding row by row keeps memory flat, shows rows whose key stands twice, and makes a file whose
writer was killed as readable as a closed one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any

from kernelarc.genomes import InputError

_BLANK = re.compile(r"[ \t\r\n\0]*")
_SEPARATOR = re.compile(r"[ \t\r\n\0]*,?[ \t\r\n\0]*")
_PLAIN_KEY = re.compile(r'"([^"\\\x00-\x1f]*)"[ \t\r\n]*:[ \t\r\n]*')
_STUMP = re.compile(r"[-+\w.\\\s\0]*\Z")
_decode_at = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class Member:
    """A small member of the top-level object."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Opened:
    """The member that holds the rows begins. Its rows follow."""

    name: str


@dataclass(frozen=True, slots=True)
class Row:
    """One whole row; ``key`` is None where rows stand in a list."""

    key: str | None
    value: Any


class Walker:
    """Yields what a recording's text holds, in file order.

    Attributes:
        unclosed: After the walk, whether closing braces were missing.
        torn: After the walk, whether a last row was cut and dropped.
    """

    def __init__(self, path: Path, text: str, rows_in: frozenset[str]) -> None:
        self._path = path
        self._text = text
        self._rows_in = rows_in
        self._at = 0
        self.unclosed = False
        self.torn = False

    def walk(self) -> Iterator[Member | Opened | Row]:
        """Yield members and rows.

        Raises:
            InputError: The text is not JSON, or is JSON of another kind than an object.
        """
        self._open()
        rows_seen = False
        while not self._finished(rows_seen):
            name = self._name()
            opening = self._peek()
            if name in self._rows_in and opening in ("{", "["):
                rows_seen = True
                yield Opened(name)
                yield from self._rows(opening)
            else:
                yield Member(name, self._value())

    def _finished(self, rows_seen: bool) -> bool:
        if self.unclosed:
            return True
        try:
            closed = self._closes("}")
        except json.JSONDecodeError as error:
            if not rows_seen:
                raise self._not_json(error) from error
            self.unclosed = True
            return True
        rest = self._text[self._at :].strip(" \t\r\n\0,") if closed else ""
        if rest:
            raise InputError(f"{self._path}: is not JSON: {len(rest)} characters after its end")
        return closed

    def _open(self) -> None:
        if self._peek() == "{":
            self._at += 1
            return
        try:
            found = json.loads(self._text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise InputError(f"{self._path}: is not JSON: {error}") from error
        kind = "list" if isinstance(found, list) else "single value"
        raise InputError(f"{self._path}: is JSON, but a {kind} and no recorded space")

    def _rows(self, opening: str) -> Iterator[Row]:
        self._at += 1
        closing = "}" if opening == "{" else "]"
        while True:
            start = self._at
            try:
                if self._closes(closing):
                    return
                start = self._at
                key = self._row_key() if opening == "{" else None
                value, self._at = _decode_at(self._text, self._at)
            except (json.JSONDecodeError, RecursionError, IndexError) as error:
                self._tear(start, error)
                return
            yield Row(key, value)

    def _row_key(self) -> str:
        plain = _PLAIN_KEY.match(self._text, self._at)
        if plain is not None:
            self._at = plain.end()
            return plain[1]
        if self._text[self._at] != '"':
            raise json.JSONDecodeError("Expecting a row's key", self._text, self._at)
        key, self._at = scanstring(self._text, self._at + 1, True)
        if self._peek() != ":":
            raise json.JSONDecodeError("Expecting ':' delimiter", self._text, self._at)
        self._at += 1
        self._peek()
        return str(key)

    def _tear(self, start: int, error: Exception) -> None:
        """Tell a row that the text's end cut from one that is damaged in the middle."""
        if isinstance(error, RecursionError):
            raise InputError(f"{self._path}: is not JSON: a row is nested too deeply") from error
        if isinstance(error, json.JSONDecodeError) and not _is_cut(self._text, error):
            raise InputError(f"{self._path}: is not JSON: {error}") from error
        self.unclosed = True
        self.torn = bool(self._text[start:].strip(" \t\r\n\0,"))

    def _name(self) -> str:
        try:
            return self._row_key()
        except (json.JSONDecodeError, IndexError) as error:
            raise self._not_json(error) from error

    def _value(self) -> Any:
        try:
            value, self._at = _decode_at(self._text, self._at)
        except (json.JSONDecodeError, RecursionError) as error:
            raise self._not_json(error) from error
        return value

    def _not_json(self, error: Exception) -> InputError:
        if self._at >= len(self._text) or isinstance(error, IndexError):
            return InputError(f"{self._path}: is not JSON: it ends before its rows begin")
        return InputError(f"{self._path}: is not JSON: {error}")

    def _peek(self) -> str:
        """Skip blanks and return the next character, or "" at the end."""
        blank = _BLANK.match(self._text, self._at)
        assert blank is not None
        self._at = blank.end()
        return self._text[self._at : self._at + 1]

    def _closes(self, closing: str) -> bool:
        """Skip a separating comma; step over ``closing`` if it comes next.

        Raises:
            json.JSONDecodeError: The text ends instead.
        """
        separator = _SEPARATOR.match(self._text, self._at)
        assert separator is not None
        self._at = separator.end()
        found = self._text[self._at : self._at + 1]
        if not found:
            raise json.JSONDecodeError("Expecting ',' delimiter", self._text, self._at)
        if found == closing:
            self._at += 1
        return found == closing


def _is_cut(text: str, error: json.JSONDecodeError) -> bool:
    """Tell whether decoding failed because the text ends, and not because it is damaged."""
    return error.msg.startswith("Unterminated string") or bool(_STUMP.match(text, error.pos))
