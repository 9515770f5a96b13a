"""Old stores open for ever: the golden ones, and a made-up older schema that is migrated."""

from __future__ import annotations

import contextlib
import gzip
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.store_records import (
    ELSEWHERE,
    HERE,
    LARGE,
    SPEC,
    asked_and_told,
    identical,
    telling_entries,
    trial,
    win,
)

from kernelarc.genomes import Genome, InputError, Judged
from kernelarc.storage import _schema as schema
from kernelarc.storage import open_reader, open_writer
from kernelarc.storage._schema import SCHEMA_VERSION

ROOT = Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests" / "golden"


def _unpacked(version: int, folder: Path) -> Path:
    path = folder / "kernelarc.db"
    packed = GOLDEN / f"store-schema-{version}.db.gz"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


def test_every_released_schema_has_its_golden_store() -> None:
    found = sorted(path.name for path in GOLDEN.glob("store-schema-*"))
    assert found == [f"store-schema-{n}.db.gz" for n in range(1, SCHEMA_VERSION + 1)]


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
def test_a_golden_store_is_read_whole(tmp_path: Path, version: int) -> None:
    path = _unpacked(version, tmp_path)
    before = path.read_bytes()
    with open_reader(path) as reader:
        rows = reader.campaigns()
        assert [row.id for row in rows] == [1, 2]
        assert [row.spec for row in rows] == [SPEC, SPEC]
        assert [row.environment for row in rows] == [HERE, ELSEWHERE]
        first = [entry for _, entry in reader.log(1)]
        assert identical(first, [*telling_entries(), trial(0, "audit", upheld=True)])
        assert [entry for _, entry in reader.log(2)] == asked_and_told(3)
        (best,) = reader.bests(1)
        assert (best.number, best.audited) == (0, True)
        assert reader.conclusions() == [(1, win(0))]
        assert len(list(reader.known(ELSEWHERE.fingerprint, LARGE.fingerprint))) == 3
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
def test_a_golden_store_is_written_on(tmp_path: Path, version: int) -> None:
    path = _unpacked(version, tmp_path)
    with open_writer(path) as writer:
        assert writer.append(2, asked_and_told(1, start=3)) == 8
        assert writer.begin(SPEC, HERE) == 3
        assert len(writer.operators()) == 1


def test_fingerprints_are_what_they_were_when_the_golden_store_was_made(tmp_path: Path) -> None:
    """The identity of everything in a store: it must not change from version to version."""
    with open_reader(_unpacked(1, tmp_path)) as reader:
        stored = next(e for _, e in reader.log(1) if isinstance(e, Judged))
        genome = stored.evaluation.candidate.genome
        problem = reader.campaign(1).spec.problem
        (_, conclusion) = reader.conclusions()[0]
    assert Genome(genome.route, genome.alleles()).fingerprint == genome.fingerprint
    assert genome.fingerprint == "191aab482e828fd42126f36d"
    assert problem.operator.fingerprint == "507639ecd623cdd7757f5b26"
    assert [w.fingerprint for w in problem.workloads] == [
        "9f35feab95a50ab4f9f27cdb",
        "933e6cf69a0ffcfb9fb05fdd",
    ]
    assert conclusion.fingerprint == "95327c39be237ebfaa50f23e"


def test_the_schema_is_the_golden_one_to_the_letter(tmp_path: Path) -> None:
    """A changed table, index or trigger needs a new version and a migration."""

    def statements(path: Path) -> list[tuple[str, str]]:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return connection.execute(
                "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name"
            ).fetchall()

    fresh = tmp_path / "fresh.db"
    open_writer(fresh, create=True).close()
    assert statements(fresh) == statements(_unpacked(SCHEMA_VERSION, tmp_path))


# A made-up version 0: what is now ``event.unix_s`` did not exist yet.

OLD_EVENT = """
CREATE TABLE event (
    id INTEGER NOT NULL, campaign_id INTEGER NOT NULL, position INTEGER NOT NULL,
    kind TEXT NOT NULL, payload TEXT NOT NULL, PRIMARY KEY (id),
    UNIQUE (campaign_id, position), FOREIGN KEY(campaign_id) REFERENCES campaign (id))
"""
TRIGGERS = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'event'"


def _to_version_0(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        triggers = connection.execute(TRIGGERS).fetchall()
        connection.execute("ALTER TABLE event RENAME TO newer")
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(OLD_EVENT)
        connection.execute(
            "INSERT INTO event SELECT id, campaign_id, position, kind, payload FROM newer"
        )
        connection.execute("DROP TABLE newer")
        for _, sql in triggers:
            connection.execute(sql)
        connection.execute("PRAGMA user_version = 0")


def _from_0_to_1(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE event ADD COLUMN unix_s REAL NOT NULL DEFAULT 0.0")


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(schema, "MIGRATIONS", {0: _from_0_to_1})
    path = _unpacked(1, tmp_path)
    _to_version_0(path)
    yield path


def _events(path: Path) -> list[tuple[str, float]]:
    with open_reader(path) as reader:
        return [(event.kind, event.unix_s) for event in reader.events(1)]


def test_a_reader_migrates_a_copy_only(old: Path) -> None:
    before = old.read_bytes()
    assert _events(old) == [("started", 0.0), ("finished", 0.0)]
    assert old.read_bytes() == before
    assert [p.name for p in old.parent.iterdir()] == [old.name]


def test_a_writer_migrates_and_keeps_the_old_file(old: Path) -> None:
    before = old.read_bytes()
    with open_writer(old) as writer:
        assert writer.append(1, asked_and_told(1, start=7)) == 12
    assert _events(old) == [("started", 0.0), ("finished", 0.0)]
    kept = old.with_name("kernelarc.db.schema-0")
    assert kept.read_bytes() == before
    assert sorted(p.name for p in old.parent.iterdir()) == [old.name, kept.name]
    with (
        contextlib.closing(sqlite3.connect(old)) as connection,
        pytest.raises(sqlite3.IntegrityError, match="append-only"),
    ):
        connection.execute("DELETE FROM event")


def test_a_migration_that_fails_leaves_the_old_store(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(connection: sqlite3.Connection) -> None:
        _from_0_to_1(connection)
        connection.execute("ALTER TABLE nowhere ADD COLUMN x")

    before = old.read_bytes()
    monkeypatch.setattr(schema, "MIGRATIONS", {0: broken})
    with pytest.raises(InputError, match="no such table: nowhere"):
        open_writer(old)
    assert old.read_bytes() == before
    assert sorted(p.name for p in old.parent.iterdir()) == [old.name, f"{old.name}.schema-0"]
    monkeypatch.setattr(schema, "MIGRATIONS", {0: _from_0_to_1})
    open_writer(old).close()
    assert _events(old) == [("started", 0.0), ("finished", 0.0)]


def test_a_migration_that_is_killed_leaves_the_old_store(old: Path) -> None:
    before = old.read_bytes()
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from kernelarc.storage import _schema, open_writer\n"
        "def step(connection):\n"
        "    connection.execute('ALTER TABLE event ADD COLUMN unix_s REAL')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "_schema.MIGRATIONS = {0: step}\n"
        "open_writer(Path(sys.argv[1]))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", program, str(old)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert old.read_bytes() == before
    assert _events(old) == [("started", 0.0), ("finished", 0.0)]
    open_writer(old).close()
    assert sorted(p.name for p in old.parent.iterdir()) == [old.name, f"{old.name}.schema-0"]


def test_a_wal_that_a_crash_left_is_migrated_too(old: Path) -> None:
    program = (
        "import os, sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('PRAGMA journal_mode = WAL')\n"
        "c.execute(\"INSERT INTO event VALUES (99, 1, 99, 'in the WAL', '{}')\")\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(old)], check=True)
    assert old.with_name("kernelarc.db-wal").stat().st_size > 0
    assert _events(old)[-1] == ("in the WAL", 0.0)
    open_writer(old).close()
    assert _events(old)[-1] == ("in the WAL", 0.0)
    assert sorted(p.name for p in old.parent.iterdir()) == [old.name, f"{old.name}.schema-0"]
