"""The compile pool: a batch is built side by side, and nothing compiles outside of a batch."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from kernelarc.bench._environment import file_hash
from kernelarc.bench.cpu._build import (
    COMPILER_LEFT_NOTHING,
    BuildFailure,
    BuildJob,
    Built,
    failure_of,
)
from kernelarc.bench.cpu._compiler import Compiler
from kernelarc.genomes import StoppedError, fingerprint_of

Outcome: TypeAlias = "Built | BuildFailure"
_CLOSE_LIMIT_S = 5.0
_LIBRARY = ("-shared", "-fPIC", "-pthread")


class CompilePool:
    """Builds batches of libraries into a cache.

    Args:
        compiler: Which compiler.
        folder: The cache; made when needed. Libraries lie there by build key.
        workers: How many compilers run side by side.
        limit_s: After so long a compiler is killed, with all that it started.
    """

    def __init__(
        self, compiler: Compiler, folder: Path, *, workers: int, limit_s: float = 60.0
    ) -> None:
        self._compiler = compiler
        self._folder = folder
        self._workers = workers
        self._limit_s = limit_s
        self._server: subprocess.Popen[str] | None = None

    def build(self, jobs: Sequence[BuildJob]) -> dict[str, Outcome]:
        """Build all jobs and return their outcomes by key. When it returns, no compiler runs.

        Raises:
            StoppedError: The cache cannot be written, or compilers cannot be started at all.
        """
        found = {job.key: built for job in jobs if (built := self._cached(job.key))}
        missing = {job.key: job for job in jobs if job.key not in found}
        outcomes: dict[str, Outcome] = dict(found)
        if missing:
            with self._scratch() as scratch:
                outcomes.update(self._build_missing(list(missing.values()), scratch))
        return outcomes

    def _library(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.so"

    def _cached(self, key: str) -> Built | None:
        path = self._library(key)
        return Built(path=path, binary=file_hash(path)) if path.is_file() else None

    @contextmanager
    def _scratch(self) -> Iterator[Path]:
        """A folder on the cache's own file system, so that renaming into the cache is atomic."""
        try:
            # Not before the first build: bad input that only the device finds leaves no folder.
            self._folder.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix="build-", dir=self._folder))
        except OSError as error:
            raise StoppedError(
                f"cannot write to {self._folder} ({error.strerror}): "
                "make room or give it back its rights, then resume"
            ) from None
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _build_missing(self, jobs: list[BuildJob], scratch: Path) -> dict[str, Outcome]:
        server = self._started()
        assert server.stdin is not None and server.stdout is not None
        for number, job in enumerate(jobs):
            self._ask(server, self._request(number, job, scratch))
        outcomes: dict[str, Outcome] = {}
        while len(outcomes) < len(jobs):
            line = server.stdout.readline()
            if not line:
                self.close()
                raise StoppedError("the compile pool was ended from outside: resume to go on")
            answer = json.loads(line)
            job = jobs[answer["id"]]
            outcomes[job.key] = self._outcome(job, answer, scratch / str(answer["id"]))
        return outcomes

    def _ask(self, server: subprocess.Popen[str], request: dict[str, Any]) -> None:
        assert server.stdin is not None
        try:
            server.stdin.write(json.dumps(request) + "\n")
            server.stdin.flush()
        except OSError:
            self.close()
            raise StoppedError("the compile pool was ended from outside: resume to go on") from None

    def _request(self, number: int, job: BuildJob, scratch: Path) -> dict[str, Any]:
        folder = scratch / str(number)
        try:
            folder.mkdir()
            source = folder / "kernel.c"
            source.write_text(job.source, "utf-8")
        except OSError as error:
            raise StoppedError(
                f"cannot write to {self._folder} ({error.strerror}): make room, then resume"
            ) from None
        words = (self._compiler.path, *self._compiler.command[1:], *_LIBRARY, *job.options)
        return {
            "id": number,
            "command": [*words, "kernel.c", "-o", "kernel.so", "-lm"],
            "folder": str(folder.resolve()),
            "limit_s": self._limit_s,
        }

    def _outcome(self, job: BuildJob, answer: dict[str, Any], folder: Path) -> Outcome:
        seconds = float(answer["seconds"])
        failed = failure_of(
            answer["returncode"], answer["timed_out"], answer["said"], self._limit_s
        )
        made = folder / "kernel.so"
        if failed is None and not made.is_file():
            failed = COMPILER_LEFT_NOTHING, "the compiler reported success and wrote no library"
        if failed is not None:
            return BuildFailure(failure=failed[0], message=failed[1], seconds=seconds)
        return self._kept(job, made, seconds)

    def _kept(self, job: BuildJob, made: Path, seconds: float) -> Built:
        """Move a library, and its source, to where their hashes say."""
        path = self._library(job.key)
        try:
            path.parent.mkdir(exist_ok=True)
            made.replace(path)
            source = self._folder / f"source-{fingerprint_of(job.source)}.c"
            if not source.exists():
                (made.parent / "kernel.c").replace(source)
        except OSError as error:
            raise StoppedError(
                f"cannot write to {self._folder} ({error.strerror}): make room, then resume"
            ) from None
        return Built(path=path, binary=file_hash(path), seconds=seconds)

    def _started(self) -> subprocess.Popen[str]:
        if self._server is not None and self._server.poll() is None:
            return self._server
        program = Path(__file__).with_name("_compile_server.py")
        self._server = subprocess.Popen(
            [sys.executable, "-I", "-S", str(program), str(self._workers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        return self._server

    def close(self) -> None:
        """End the pool and every compiler. Idempotent."""
        server, self._server = self._server, None
        if server is None:
            return
        assert server.stdin is not None and server.stdout is not None
        with contextlib.suppress(OSError):
            server.stdin.close()
        try:
            server.wait(timeout=_CLOSE_LIMIT_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        server.stdout.close()
