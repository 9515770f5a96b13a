"""One search for a key, however many processes call for it: a lock file that the others wait at."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

_PAUSE_S = 0.2


class SharedTooLongError(Exception):
    """Another process searched for longer than this one may wait."""


@contextlib.contextmanager
def one_at_a_time(path: Path, *, wait_s: float) -> Iterator[bool]:
    """Hold a lock file; yield whether somebody else had held it meanwhile.

    The system releases the lock when its holder dies. The file stays.

    Args:
        path: The lock file; its folder is made.
        wait_s: How long to wait.

    Raises:
        SharedTooLongError: It was not free in time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        yield _acquire(descriptor, path, time.monotonic() + wait_s)
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path, until: float) -> bool:
    waited = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            waited = True
            if time.monotonic() > until:
                raise SharedTooLongError(f"another process still holds {path}") from None
            time.sleep(_PAUSE_S)
        else:
            return waited
