"""From a path to text: every way in which a file can be no file, with one line for each."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from kernelarc.genomes import InputError

_GZIP_MAGIC = b"\x1f\x8b"


def read_text(path: Path) -> str:
    """Return the text of a plain or gzip-compressed file; which it is, its content says.

    A last character that was cut in the middle (a killed writer) is dropped.

    Raises:
        InputError: No such file, a folder, unreadable, empty, a broken gzip stream, not text.
    """
    raw = _read_bytes(path)
    if raw.startswith(_GZIP_MAGIC):
        raw = _decompress(path, raw)
    if not raw.strip(b" \t\r\n\0"):
        raise InputError(f"{path}: is empty; a recorded space in JSON is expected")
    return _decode(path, raw)


def _read_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise InputError(f"{path}: is a folder; a recorded space is a .json or .json.gz file")
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if not path.is_file():
        raise InputError(f"{path}: is no regular file")
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def _decompress(path: Path, raw: bytes) -> bytes:
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: broken gzip stream: {error}") from error


def _decode(path: Path, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            return raw[: error.start].decode("utf-8-sig")
        raise InputError(
            f"{path}: is not JSON: byte {error.start} is no UTF-8 text ({error.reason})"
        ) from error
