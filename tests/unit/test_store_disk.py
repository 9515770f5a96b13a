"""Full disks, read-only media, and what a crash left on them."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.store_records import HERE, SPEC, asked_and_told

from kernelarc.genomes import InputError, StoppedError
from kernelarc.storage import StoreWriter, open_reader, open_writer

ROOT = Path(__file__).resolve().parent.parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


def _can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    probe = [*NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


mounts = pytest.mark.skipif(
    not _can_mount(), reason="needs unprivileged user namespaces to mount a small file system"
)


def _append_until_it_stops(writer: StoreWriter) -> tuple[int, StoppedError]:
    for group in range(1000):
        try:
            writer.append(1, asked_and_told(16, start=16 * group))
        except StoppedError as error:
            return group, error
    raise AssertionError("the disk never became full")


def _check_stopped(path: Path, writer: StoreWriter, groups: int, error: StoppedError) -> None:
    assert groups > 1
    assert f"store {path}: the disk is full: free some space" in str(error)
    assert f"go on with `kernelarc resume {path}`" in str(error)
    assert error.exit_code == 3
    assert len(list(writer.log(1))) == 32 * groups
    with open_reader(path) as reader:
        assert len(list(reader.log(1))) == 32 * groups


def test_a_full_store_stops_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "kernelarc.db"
    with open_writer(path, create=True) as writer:
        writer.begin(SPEC, HERE)
        writer._backend._raw.execute("PRAGMA max_page_count = 120")  # type: ignore[attr-defined]
        groups, error = _append_until_it_stops(writer)
        _check_stopped(path, writer, groups, error)
        writer._backend._raw.execute("PRAGMA max_page_count = 9999")  # type: ignore[attr-defined]
        writer.append(1, asked_and_told(16, start=16 * groups))
        assert len(list(writer.log(1))) == 32 * (groups + 1)


def _run(program: Callable[[Path], None], folder: Path, *before: str) -> None:
    """Run a function of this file in another process, on a folder of its own."""
    text = f"from pathlib import Path\nfrom {__name__} import {program.__name__} as program\n"
    call = f"{text}program(Path({str(folder)!r}))\n"
    done = subprocess.run(
        [*before, sys.executable, "-c", call],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _mount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)


def _remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


def small_disk(folder: Path) -> None:
    """Fill a disk of 1 MB, give it room, go on."""
    _mount(folder, "size=1m")
    path = folder / "kernelarc.db"
    writer = open_writer(path, create=True)
    writer.begin(SPEC, HERE)
    groups, error = _append_until_it_stops(writer)
    _check_stopped(path, writer, groups, error)
    writer.close()
    with open_reader(path) as reader:
        assert len(list(reader.log(1))) == 32 * groups
    _remount(folder, "size=30m")
    with open_writer(path) as again:
        again.append(1, asked_and_told(16, start=16 * groups))
        assert len(list(again.log(1))) == 32 * (groups + 1)
    assert [p.name for p in folder.iterdir()] == [path.name]


def full_disk(folder: Path) -> None:
    """Find no room for a new store, and leave nothing behind."""
    _mount(folder, "size=100k")
    (folder / "ballast").write_bytes(b"x" * 90_000)
    with pytest.raises(InputError, match="the disk is full"):
        open_writer(folder / "kernelarc.db", create=True)
    assert [p.name for p in folder.iterdir()] == ["ballast"]


def short_files(folder: Path) -> None:
    """Meet a limit on the size of files, which is how quotas look."""
    import resource

    path = folder / "kernelarc.db"
    with open_writer(path, create=True) as writer:
        writer.begin(SPEC, HERE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))
        groups, error = _append_until_it_stops(writer)
        assert "the disk" in str(error)
        assert len(list(writer.log(1))) == 32 * groups
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with open_writer(path) as again:
        assert again.append(1, asked_and_told(1, start=16 * groups)) == 32 * groups + 2


@mounts
def test_a_small_disk_stops_and_goes_on(tmp_path: Path) -> None:
    _run(small_disk, tmp_path, *NAMESPACE)


@mounts
def test_a_full_disk_takes_no_store(tmp_path: Path) -> None:
    _run(full_disk, tmp_path, *NAMESPACE)


def test_a_limit_on_file_size_stops_and_goes_on(tmp_path: Path) -> None:
    _run(short_files, tmp_path)


def crash(path: Path) -> None:
    """Append and die without closing anything: the WAL stays, not checkpointed."""
    writer = open_writer(path, create=True)
    writer.append(writer.begin(SPEC, HERE), asked_and_told(3))
    os._exit(0)


def _refuse_to_write(path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be written|cannot be made") as caught:
        open_writer(path)
    assert "\n" not in str(caught.value)
    assert "--store" not in str(caught.value)


def _read_all(path: Path) -> None:
    before = {p.name: p.read_bytes() for p in path.parent.iterdir()}
    with open_reader(path) as reader:
        assert len(list(reader.log(1))) == 6
        assert reader.bests(1) != []
        assert reader.size_bytes() > 0
        assert reader.campaign().spec == SPEC
    assert {p.name: p.read_bytes() for p in path.parent.iterdir()} == before


def read_only_media(folder: Path) -> None:
    """Read a store at rest, one in WAL mode without a WAL, and two that a crash left."""
    _mount(folder, "size=9m")
    paths = [folder / name / "kernelarc.db" for name in ("rest", "wal", "crash", "bare")]
    for path in paths:
        path.parent.mkdir()
    for path in paths[:2]:
        with open_writer(path, create=True) as writer:
            writer.append(writer.begin(SPEC, HERE), asked_and_told(3))
    with contextlib.closing(sqlite3.connect(paths[1])) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    for path in paths[2:]:
        _run(crash, path)
        assert path.with_name("kernelarc.db-wal").stat().st_size > 0
    paths[3].with_name("kernelarc.db-shm").unlink()
    _remount(folder, "ro")
    for path in paths:
        _read_all(path)
        _refuse_to_write(path)


@mounts
def test_read_only_media_is_read_without_loss(tmp_path: Path) -> None:
    _run(read_only_media, tmp_path, *NAMESPACE)


def test_a_crash_is_read_without_a_writer_and_then_mended_by_one(tmp_path: Path) -> None:
    path = tmp_path / "kernelarc.db"
    _run(crash, path)
    with open_reader(path) as reader:
        assert len(list(reader.log(1))) == 6
    with open_writer(path) as writer:
        assert writer.append(1, asked_and_told(1, start=3)) == 8
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_hot_journal_is_rolled_back_on_a_copy(tmp_path: Path) -> None:
    """A crash of the disk's power in rollback mode: half of a transaction is in the file."""
    path, torn = tmp_path / "whole" / "kernelarc.db", tmp_path / "torn" / "kernelarc.db"
    for each in (path, torn):
        each.parent.mkdir()
    with open_writer(path, create=True) as writer:
        writer.append(writer.begin(SPEC, HERE), asked_and_told(3))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO event VALUES (?, 1, ?, 'half', 0.0, '{}')",
            [(n, n + 100) for n in range(1000, 3000)],
        )
        for suffix in ("", "-journal"):
            shutil.copy(f"{path}{suffix}", f"{torn}{suffix}")
        connection.execute("ROLLBACK")
    _read_all(torn)
    with open_writer(torn) as mended:
        assert len(list(mended.log(1))) == 6
    assert [p.name for p in torn.parent.iterdir()] == ["kernelarc.db"]
