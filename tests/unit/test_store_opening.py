"""Whatever stands where a store should: one clear line, exit code 2, and nothing is written."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.unit.store_records import HERE, SPEC, asked_and_told

from kernelarc.genomes import InputError
from kernelarc.storage import StoreReader, open_reader, open_writer
from kernelarc.storage._schema import SCHEMA_VERSION

OPENERS: list[Callable[[Path], StoreReader]] = [
    open_reader,
    open_writer,
    lambda path: open_writer(path, create=True),
]
opener = pytest.mark.parametrize("call", OPENERS, ids=["read", "write", "create"])


def _made(path: Path) -> Path:
    with open_writer(path, create=True) as writer:
        writer.append(writer.begin(SPEC, HERE), asked_and_told(3))
    return path


def _missing(path: Path) -> None:
    assert not path.exists()


def _folder(path: Path) -> None:
    path.mkdir()


def _empty(path: Path) -> None:
    path.touch()


def _short_text(path: Path) -> None:
    path.write_text("no\n")


def _long_text(path: Path) -> None:
    path.write_text("this is a letter to nobody in particular\n" * 500)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _foreign(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE moz_places (id INTEGER PRIMARY KEY)")
        other.commit()


def _foreign_wal(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("CREATE TABLE campaign (id INTEGER PRIMARY KEY)")
        other.commit()


def _newer(path: Path) -> None:
    _made(path)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 6}")


def _beheaded(path: Path) -> None:
    _made(path)
    with path.open("r+b") as file:
        file.write(b"\0" * 16)


BAD: dict[Callable[[Path], None], str] = {
    _missing: "there is no such file",
    _folder: "it is a directory",
    _empty: "it is an empty file",
    _short_text: "it is no SQLite database",
    _long_text: "it is no SQLite database",
    _pipe: "it is no regular file",
    _foreign: "it is another program's SQLite database",
    _foreign_wal: "it is another program's SQLite database",
    _newer: r"written by a newer kernelarc \(schema 7, this one knows up to 1\): upgrade",
    _beheaded: "it is no SQLite database",
}


@opener
@pytest.mark.parametrize("make", BAD, ids=lambda make: make.__name__.strip("_"))
def test_what_is_no_store_is_refused_and_left_alone(
    tmp_path: Path, make: Callable[[Path], None], call: Callable[[Path], StoreReader]
) -> None:
    path = tmp_path / "kernelarc.db"
    make(path)
    if make is _missing and call is OPENERS[2]:
        call(path).close()
        assert path.is_file()
        return
    before = _contents(tmp_path)
    with pytest.raises(InputError, match=BAD[make]) as caught:
        call(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.exit_code == 2
    assert _contents(tmp_path) == before


def _contents(folder: Path) -> dict[str, bytes | None]:
    return {path.name: path.read_bytes() if path.is_file() else None for path in folder.iterdir()}


def test_a_store_in_a_missing_folder_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the folder .*nowhere does not exist"):
        open_writer(tmp_path / "nowhere" / "kernelarc.db", create=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["mysql://host/db", "http://x/y"])
def test_other_urls_are_refused(where: str) -> None:
    with pytest.raises(InputError, match=r"a store is a SQLite file .*or a PostgreSQL database"):
        open_reader(where)


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(InputError, match="the path is empty"):
        open_reader("")


def test_a_sqlite_url_is_a_path(tmp_path: Path) -> None:
    path = _made(tmp_path / "kernelarc.db")
    with open_reader(f"sqlite:///{path}") as reader:
        assert reader.campaign().spec == SPEC


def test_odd_characters_in_a_path_are_part_of_its_name(tmp_path: Path) -> None:
    path = tmp_path / "what? #1 100% über.db"
    _made(path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    with open_reader(path) as reader:
        assert len(list(reader.evaluations(1))) == 3


def test_a_link_is_followed_to_one_store(tmp_path: Path) -> None:
    path = _made(tmp_path / "kernelarc.db")
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with open_writer(link), pytest.raises(InputError, match="in use by a running campaign"):
        open_writer(path)


def test_a_store_at_rest_is_one_file_and_reading_adds_none(tmp_path: Path) -> None:
    path = _made(tmp_path / "kernelarc.db")
    before = _contents(tmp_path)
    assert list(before) == [path.name]
    with open_reader(path) as reader:
        assert len(list(reader.log(1))) == 6
        assert list(_contents(tmp_path)) == [path.name]
    assert _contents(tmp_path) == before


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    path = _made(tmp_path / "kernelarc.db")
    reader = open_reader(path)
    with (
        contextlib.closing(reader),
        pytest.raises(InputError, match="readonly"),
        reader._backend.reading() as connection,  # type: ignore[attr-defined]
    ):
        connection.exec_driver_sql("CREATE TABLE x (y)")


def test_another_programs_lock_is_said(tmp_path: Path) -> None:
    path = _made(tmp_path / "kernelarc.db")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InputError, match="locked by another program"):
            open_reader(path, wait_s=0.05)
        with pytest.raises(InputError, match="locked by another program"):
            open_writer(path, wait_s=0.05)
        other.execute("ROLLBACK")
    with open_writer(path, wait_s=0.05) as writer:
        assert writer.campaign().id == 1


def test_a_damaged_page_is_said(tmp_path: Path) -> None:
    path = tmp_path / "kernelarc.db"
    with open_writer(path, create=True) as writer:
        writer.append(writer.begin(SPEC, HERE), asked_and_told(300))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size - 8 * 4096)
        file.write(b"\xa5" * 8 * 4096)
    with open_reader(path) as reader, pytest.raises(InputError, match=r"damaged .*\.recover"):
        list(reader.log(1))


def test_whatever_byte_is_wrong_no_more_than_one_line_is_said(tmp_path: Path) -> None:
    """Flipped bytes anywhere: read as they are where they make sense, or said to be damage."""
    path, broken = _made(tmp_path / "whole.db"), tmp_path / "broken.db"
    whole = path.read_bytes()
    rng = np.random.default_rng(7)
    said = 0
    for _ in range(60):
        content = bytearray(whole)
        first = int(rng.choice([100, len(whole) // 3]))  # with or without the schema
        for place in rng.integers(first, len(whole), int(rng.choice([20, 300]))):
            content[place] ^= int(rng.integers(1, 256))
        broken.write_bytes(content)
        try:
            with open_reader(broken) as reader:
                list(reader.log(1))
                list(reader.evaluations(1))
                (reader.campaigns(), reader.bests(1), reader.counts(1), reader.shares(1))
        except InputError as error:
            assert "\n" not in str(error)
            assert f"store {broken}: damaged" in str(error)
            said += 1
    assert said > 20


@pytest.mark.parametrize(
    ("table", "column", "words"),
    [
        ("genome", "canonical", "the genome [0-9a-f]+ cannot be read"),
        ("evaluation", "properties", "an evaluation's properties cannot be read"),
    ],
)
@pytest.mark.parametrize("damaged", ["{", "[]", '{"block": [null]}'])
def test_alleles_that_are_damaged_are_said_when_they_are_looked_at(
    tmp_path: Path, table: str, column: str, words: str, damaged: str
) -> None:
    """They are parsed late, long after the row was read without a complaint."""
    path = _made(tmp_path / "kernelarc.db")
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute(f"DROP TRIGGER {table}_no_update")
        other.execute(f"UPDATE {table} SET {column} = ?", [damaged])
        other.commit()
    with open_reader(path) as reader:
        stored = next(iter(reader.evaluations(1))).evaluation
        with pytest.raises(InputError, match=f"store: damaged, {words}") as caught:
            if table == "genome":
                stored.candidate.genome.alleles()
            else:
                dict(stored.properties)
    assert "\n" not in str(caught.value)


def test_a_truncated_store_is_said(tmp_path: Path) -> None:
    path = _made(tmp_path / "kernelarc.db")
    os.truncate(path, path.stat().st_size - 4096)
    for call in OPENERS:
        with pytest.raises(InputError, match=r"damaged .*\.recover"):
            call(path)
