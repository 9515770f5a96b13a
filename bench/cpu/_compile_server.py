"""Runs compilers side by side, each in its own process group, and ends them with its parent.

A program of its own, of the standard library alone: it starts in milliseconds, and when the
coordinator dies, however it dies, this process reads the end of its input and kills what runs.

One JSON object a line: ``{"id", "command", "folder", "limit_s"}`` in,
``{"id", "returncode", "timed_out", "said", "seconds"}`` out.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_LONGEST_TEXT = 4000


class _Groups:
    """Process groups that run now."""

    def __init__(self) -> None:
        self._running: set[int] = set()
        self._lock = threading.Lock()
        self._closed = False

    def start(self, command: list[str], folder: str, said: Any) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise OSError("closing")
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, "TMPDIR": folder, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
            self._running.add(process.pid)
            return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill whatever is left of a group; its leader is waited for."""
        _kill_group(process.pid)
        process.wait()
        with self._lock:
            self._running.discard(process.pid)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for group in self._running:
                _kill_group(group)


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _run(groups: _Groups, request: dict[str, Any]) -> dict[str, Any]:
    started = time.monotonic()
    said_path = Path(request["folder"]) / "said.txt"
    returncode, timed_out, text = 0, False, ""
    try:
        with said_path.open("wb") as said:
            process = groups.start(request["command"], request["folder"], said)
        try:
            returncode = process.wait(timeout=request["limit_s"])
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            groups.end(process)
        text = said_path.read_text(errors="replace")[:_LONGEST_TEXT]
    except OSError as error:
        returncode, text = 127, f"cannot be started: {error.strerror or error}"
    return {
        "id": request["id"],
        "returncode": returncode,
        "timed_out": timed_out,
        "said": text,
        "seconds": time.monotonic() - started,
    }


def main() -> None:
    """Serve until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    groups, speaking = _Groups(), threading.Lock()

    def serve(request: dict[str, Any]) -> None:
        answer = json.dumps(_run(groups, request)) + "\n"
        with speaking, contextlib.suppress(OSError):
            sys.stdout.write(answer)
            sys.stdout.flush()

    pool = ThreadPoolExecutor(max_workers=int(sys.argv[1]))
    for line in sys.stdin:
        pool.submit(serve, json.loads(line))
    groups.close()
    os._exit(0)


if __name__ == "__main__":
    main()
