"""One writing process a store: an exclusive lock on a file beside it.

The lock is ``flock`` on a file of its own and not on the database: closing any descriptor of the
database would drop SQLite's own POSIX locks in this process. The kernel releases it when the
process ends, however it ends; the file's text only says who holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import sys
import time
import weakref
from pathlib import Path

from kernelarc.genomes import InputError, StoreInUseError


class WriterLock:
    """An exclusive lock, close-on-exec and given up in forked children. Take it to have it.

    Args:
        store: The database file.
        movable: Whether whoever asks could use another store: what a refusal advises.

    Raises:
        StoreInUseError: Another process holds it (named).
        InputError: The folder cannot be written.
    """

    def __init__(self, store: Path, *, movable: bool) -> None:
        self.path = store.with_name(store.name + ".lock")
        self._descriptor: int | None = self._take(store, movable)
        _held.add(self)

    def _take(self, store: Path, movable: bool) -> int:
        while True:
            try:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                reason = (error.strerror or "error").lower()
                where = "choose --store" if movable else "copy it to a folder"
                raise InputError(
                    f"store {store}: cannot be written, its lock {self.path} cannot be made "
                    f"({reason}): {where} on a writable disk"
                ) from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                message = f"store {store}: in use by a running campaign {_holder(descriptor)}"
                message += ", or choose another --store" * movable
                os.close(descriptor)
                raise StoreInUseError(message) from error
            if self._is_current(descriptor):
                self._sign(descriptor)
                return descriptor
            os.close(descriptor)  # its former holder removed the file meanwhile

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    @staticmethod
    def _sign(descriptor: int) -> None:
        command = shlex.join(Path(a).name if i == 0 else a for i, a in enumerate(sys.argv))
        text = json.dumps({"pid": os.getpid(), "command": command, "since": time.time()})
        # A full disk must not cost the lock itself, only the name in the other's message.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text.encode(errors="replace"), 0)

    def release(self) -> None:
        """Remove the file and let go. Idempotent."""
        if self._descriptor is None:
            return
        if self._is_current(self._descriptor):
            with contextlib.suppress(OSError):
                self.path.unlink()
        self.forget()

    def forget(self) -> None:
        """Close the descriptor only: what a forked child does with its parent's lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_held: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _forget_all() -> None:
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_forget_all)


def _holder(descriptor: int) -> str:
    """Name the holder from the lock's text, and say how to wait for it."""
    try:
        signed = json.loads(os.pread(descriptor, 65536, 0))
        pid, command = int(signed["pid"]), str(signed["command"])
    except (OSError, ValueError, KeyError, TypeError):
        return "(its process has no name yet): try again in a moment"
    return (
        f"(pid {pid}: {command}): wait for it with `tail --pid={pid} -f /dev/null`, or stop it "
        f"with `kill {pid}`"
    )
