"""One device, one job: an exclusive lock across processes, users and containers of a host.

The lock is ``flock`` on a file that is never removed (removing it would let two holders each have
a lock on a file of the same name). The kernel releases it when the holder dies, however it dies.
Children do not keep it: the descriptor closes on exec, and a forked child closes its copy.

The folder is ``/tmp`` unless ``KERNELARC_LOCK_DIR`` names another one. Containers that do not
share ``/tmp`` must be given one folder that they do share, through that variable.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import getpass
import json
import os
import re
import socket
import stat
import sys
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import Self

from kernelarc.genomes import DeviceInUseError, InputError, StoppedError

LOCK_DIR_VARIABLE = "KERNELARC_LOCK_DIR"
_LONGEST_HOLDER = 4096
_ATTEMPTS = 20


def lock_path(device: str) -> Path:
    """Return the lock file of a device (``"cpu"``, ``"cuda:0"``, a GPU's UUID)."""
    folder = Path(os.environ.get(LOCK_DIR_VARIABLE) or "/tmp")
    return folder / f"kernelarc-{re.sub(r'[^A-Za-z0-9.-]', '_', device)}.lock"


def _open_shared(path: Path) -> int:
    """Open or make the lock file so that any user can lock it.

    In a sticky world-writable folder the kernel may refuse O_CREAT on a file that exists and
    belongs to somebody else (fs.protected_regular), even to root: so first without it.
    """
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):
            try:
                return os.open(path, os.O_RDWR | flags)
            except PermissionError:
                return os.open(path, os.O_RDONLY | flags)  # enough to lock, not to say who holds it
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o666)
            os.fchmod(descriptor, 0o666)  # whatever the umask
            return descriptor
    raise StoppedError(f"{path} appears and vanishes: something removes lock files there")


def _opened(path: Path) -> int:
    try:
        descriptor = _open_shared(path)
    except FileNotFoundError:
        raise InputError(
            f"there is no folder {path.parent} for lock files: make it, or set {LOCK_DIR_VARIABLE}"
        ) from None
    except OSError as error:
        raise InputError(
            f"cannot open the lock file {path}: {error.strerror}; set {LOCK_DIR_VARIABLE}"
        ) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"{path} is no ordinary file: remove it, or set {LOCK_DIR_VARIABLE}")
    return descriptor


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    opened = os.fstat(descriptor)
    return (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return str(os.getuid())


def _holder_text(command: str) -> bytes:
    holder = {
        "pid": os.getpid(),
        "user": _user(),
        "host": socket.gethostname(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        "command": command[:1000],
    }
    return json.dumps(holder).encode()[:_LONGEST_HOLDER] + b"\n"


def _described(raw: bytes) -> str:
    """Say who holds a lock, from what the holder wrote; tolerant of a text half written."""
    try:
        holder = json.loads(raw)
        return (
            f"process {holder['pid']} ({holder['command']}) of {holder['user']} "
            f"on {holder['host']} since {holder['since']}"
        )
    except (ValueError, KeyError, TypeError):
        return "another process"


class DeviceLock:
    """The right to use one device, held until ``release`` or until this process ends.

    Attributes:
        device: The device's name.
        path: The lock file.
    """

    def __init__(self, device: str, *, command: str | None = None) -> None:
        self.device = device
        self.path = lock_path(device)
        self._command = " ".join(sys.argv) if command is None else command
        self._descriptor: int | None = None
        _locks.add(self)

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self, *, wait_s: float = 0.0) -> Self:
        """Take the lock, waiting at most so long.

        Raises:
            StoppedError: Somebody holds it; the message names who.
            InputError: The lock file cannot be opened; the message says what to set.
        """
        if self._descriptor is not None:
            raise DeviceInUseError(f"device {self.device} is already in use by this process")
        deadline = time.monotonic() + wait_s
        while not self._attempt():
            if time.monotonic() >= deadline:
                raise DeviceInUseError(
                    f"device {self.device} is in use by {self.holder()}: "
                    "wait until that ends, or end it"
                )
            time.sleep(0.05)
        return self

    def _attempt(self) -> bool:
        descriptor = _opened(self.path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                return False
            raise InputError(
                f"files in {self.path.parent} cannot be locked: {error.strerror}; "
                f"set {LOCK_DIR_VARIABLE}"
            ) from None
        if not _same_file(descriptor, self.path):  # removed between open and lock: try again
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        with contextlib.suppress(OSError):  # opened read-only: held, but anonymous
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, _holder_text(self._command), 0)
        return True

    def holder(self) -> str:
        """Say who holds the lock, or held it last."""
        try:
            raw = self.path.read_bytes()
        except OSError:
            return "another process"
        return _described(raw[:_LONGEST_HOLDER])

    def release(self) -> None:
        """Let go. Idempotent."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def _forget(self) -> None:
        """In a forked child: close the copy without unlocking what the parent holds."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self if self.held else self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


_locks: weakref.WeakSet[DeviceLock] = weakref.WeakSet()


def _forget_all() -> None:
    for lock in list(_locks):
        lock._forget()


os.register_at_fork(after_in_child=_forget_all)
