"""Putting files in place: whole or not at all, and never over a database that is in use."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from kernelarc.genomes import InputError

FileWriter: TypeAlias = Callable[[Path], None]
"""Writes one whole file at the path it is given, which does not exist yet."""

_SQLITE_MAGIC = b"SQLite format 3\0"


def place(files: Mapping[Path, FileWriter]) -> None:
    """Write all files aside, then move them to their places.

    Existing regular files are replaced, except a database that is no Optuna study.

    Raises:
        InputError: A place cannot be written; nothing was put in place.
    """
    for path in files:
        _refuse(path)
    folders: list[Path] = []
    at = next(iter(files), Path())
    try:
        ready = []
        for at, write in files.items():
            folders.append(Path(tempfile.mkdtemp(dir=at.parent, prefix=".kernelarc-export-")))
            aside = folders[-1] / at.name
            write(aside)
            ready.append((aside, at))
        for aside, at in ready:
            aside.replace(at)
    except OSError as error:
        raise InputError(f"{at}: cannot be written: {error.strerror or error}") from error
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def _refuse(path: Path) -> None:
    if not path.name or path.is_dir():
        raise InputError(f"{path}: is a folder; name the file to write")
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is no regular file, so it is not replaced")
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}")
    if path.is_file() and _is_foreign_database(path):
        raise InputError(f"{path}: is a database and no exported study, so it is not replaced")


def _is_foreign_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            if file.read(len(_SQLITE_MAGIC)) != _SQLITE_MAGIC:
                return False
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'studies'")
            return found.fetchone() is None
        finally:
            connection.close()
    except (OSError, sqlite3.Error):
        return True
