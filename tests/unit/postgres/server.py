"""A PostgreSQL server of the tests' own: a folder, a socket in it, no network, nothing kept."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

_SETTINGS = (
    "listen_addresses=",
    "fsync=off",  # nobody pulls the plug here
    "shared_buffers=16MB",
    "max_connections=60",
    "autovacuum=off",
    "wal_level=minimal",
    "max_wal_senders=0",
    "min_wal_size=32MB",
    "max_wal_size=64MB",
)
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def binaries() -> Path | None:
    """Return the folder of the server's programs, the newest one, or None."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    folders = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    versions = sorted((float(path.parts[-3]), path.parent) for path in folders)
    return versions[-1][1] if versions else None


def _unprivileged() -> dict[str, Any]:
    """Return what runs a program as another user: the server refuses to be root."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = names.get("postgres") or names["nobody"]
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGQUIT)


class Server:
    """Running from construction to ``stop``. Any local user is let in, ``locked`` by password."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="karc-"))
        self._as_user = _unprivileged()
        self.port = 10_000 + os.getpid() % 50_000
        self._made = 0
        try:
            self._initialise()
            self.start()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _initialise(self) -> None:
        if self._as_user:
            os.chown(self._folder, self._as_user["user"], self._as_user["group"])
        place = ("-D", str(self._folder / "db"), "-U", "owner", "-A", "trust")
        subprocess.run(
            [str(self._programs / "initdb"), *place, "-N", "--encoding=UTF8", "--locale=C.UTF-8"],
            check=True,
            capture_output=True,
            cwd=self._folder,
            env={"PATH": os.environ["PATH"]},
            **self._as_user,
        )
        rules = self._folder / "db" / "pg_hba.conf"
        rules.write_text("local all locked scram-sha-256\nlocal all all trust\n")

    def _start(self) -> subprocess.Popen[bytes]:
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        place = ("-D", str(self._folder / "db"), "-k", str(self._folder), "-p", str(self.port))
        with (self._folder / "log").open("wb") as log:
            return subprocess.Popen[bytes](
                [str(self._programs / "postgres"), *place, *settings],
                cwd=self._folder,
                env={"PATH": os.environ["PATH"]},
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_parent,
                **self._as_user,
            )

    def _wait(self) -> None:
        deadline = time.monotonic() + 60
        while not self._answers():
            if self._server.poll() is not None or time.monotonic() > deadline:
                said = (self._folder / "log").read_text()
                raise RuntimeError(f"the server does not start: {said}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            return self.do("SELECT 1") == [(1,)]
        except psycopg.OperationalError:
            return False

    def url(self, database: str = "postgres", *, user: str = "owner", password: str = "") -> str:
        """Return how to reach a database, as a user would write it."""
        secret = f":{password}" if password else ""
        socket = str(self._folder).replace("/", "%2F")
        return f"postgresql://{user}{secret}@{socket}:{self.port}/{database}"

    def connect(self, database: str = "postgres", user: str = "owner") -> psycopg.Connection[Any]:
        """Connect as a program that knows nothing of us."""
        return psycopg.connect(self.url(database, user=user), autocommit=True)

    def do(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement as the owner; return its rows."""
        with self.connect(database) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _new(self) -> str:
        self._made += 1
        return f"store_{self._made}"

    def database(self, encoding: str = "UTF8") -> str:
        """Make an empty database and return its name: 900 files, so only where it matters."""
        name, locale = self._new(), "C.UTF-8" if encoding == "UTF8" else "C"
        self.do(
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' "
            f"LC_COLLATE '{locale}' LC_CTYPE '{locale}'"
        )
        return name

    def schema(self, owner: str = "owner") -> str:
        """Make an empty schema in the first database and return its name."""
        name = self._new()
        self.do(f"CREATE SCHEMA {name} AUTHORIZATION {owner}")
        return name

    def inside(self, schema: str, *, user: str = "owner", password: str = "") -> str:
        """Return how to reach a schema as if it were all there is."""
        return self.url(user=user, password=password) + f"?options=-csearch_path%3D{schema}"

    def role(self, name: str, password: str = "another") -> None:
        """Make a role that owns nothing, once."""
        if not self.do(f"SELECT 1 FROM pg_roles WHERE rolname = '{name}'"):
            self.do(f"CREATE ROLE {name} LOGIN")
        self.do(f"ALTER ROLE {name} PASSWORD '{password}'")

    def halt(self) -> None:
        """End it in order, as an administrator does."""
        self._server.send_signal(signal.SIGINT)
        self._server.wait()

    def start(self) -> None:
        """Start it again."""
        self._server = self._start()
        self._wait()

    def stop(self) -> None:
        """End it at once and remove its folder."""
        self._server.send_signal(signal.SIGQUIT)
        self._server.wait()
        shutil.rmtree(self._folder)
