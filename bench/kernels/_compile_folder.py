"""Where compilers leave what they would forget when they are killed.

Assemblers write beside themselves and clean up at their end, which a killed one never reaches. A
pool gives them a folder of its own, under a lock that ends with the process: folders that nobody
holds are of pools that were killed, and are removed by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX, _LOCK = "kernelarc-compile-", "held"


class CompileFolder:
    """A temporary folder that is removed at its end, or by the next pool after a kill.

    Args:
        root: Where it is made; the system's folder for temporary files if None.
    """

    def __init__(self, root: Path | None = None) -> None:
        base = Path(tempfile.gettempdir()) if root is None else root
        _sweep(base)
        self.path, self._lock = _made(base)
        while not (self.path / _LOCK).exists():  # another pool has just taken it for a dead one's
            os.close(self._lock)
            self.path, self._lock = _made(base)

    def close(self) -> None:
        """Remove it with all that lies there. Idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _made(base: Path) -> tuple[Path, int]:
    path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return path, lock


def _sweep(base: Path) -> None:
    """Remove folders that nobody holds; one that is just being made has no lock file yet."""
    for folder in base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
