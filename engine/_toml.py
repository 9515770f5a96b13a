"""Reading a campaign's TOML file: syntax errors with line and column, in one line."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from kernelarc.genomes import InputError

_PLACE = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")


def read_toml(path: Path) -> dict[str, Any]:
    """Return the file's top table.

    Raises:
        InputError: The file is missing, unreadable, no text or no TOML; the message names line
            and column.
    """
    text = _read_text(path)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: {_where_and_what(str(error), text)}") from None


def _read_text(path: Path) -> str:
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"{path}: is no regular file")
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def _where_and_what(message: str, text: str) -> str:
    found = _PLACE.search(message)
    what = _PLACE.sub("", message)
    if found is not None and found.group(1) is not None:
        return f"line {found.group(1)}, column {found.group(2)}: {what}"
    lines = text.split("\n")
    return f"line {len(lines)}, column {len(lines[-1]) + 1}: {what}"
