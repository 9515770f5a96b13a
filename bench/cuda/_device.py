"""The device ``cuda:N``. Importing and naming it touches no CUDA library."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from kernelarc.bench._lock import DeviceLock
from kernelarc.bench._session import Device
from kernelarc.bench.cuda._process import WorkerProcess
from kernelarc.bench.cuda._protocol import WorkerGoneError
from kernelarc.bench.cuda._session import CudaSession
from kernelarc.genomes import Environment, InputError, MissingPartError, Problem, StoppedError

_PARTS = {
    "cupy": "cupy-cuda13x",
    "nvmath": "nvmath-python",
    "cuda": "cuda-python",
}
_IDENTIFY_S = 60.0


class CudaDevice(Device):
    """An NVIDIA GPU.

    Args:
        name: ``"cuda:0"``; ``"cuda"`` is the first one.

    Raises:
        InputError: The name is no such device's.
    """

    deterministic = False

    def __init__(self, name: str = "cuda:0") -> None:
        kind, _, number = name.partition(":")
        if kind != "cuda" or not (number or "0").isdigit():
            raise InputError(f"{name!r} names no GPU: cuda:0 names the first one")
        self.ordinal = int(number or 0)
        self.name = f"cuda:{self.ordinal}"
        self._environment: Environment | None = None

    def environment(self) -> Environment:
        """Return identity and observations, asked of a worker that ends at once."""
        if self._environment is None:
            demand_parts()
            worker = WorkerProcess(self.ordinal)
            try:
                self._environment = worker.ask("environment", timeout_s=_IDENTIFY_S)
            except (WorkerGoneError, TimeoutError):
                words = worker.last_words()
                raise MissingPartError(
                    f"device {self.name} does not answer: {words or 'its worker died'}"
                ) from None
            finally:
                worker.close()
        return self._environment

    def open(
        self, problem: Problem, *, seed: int, artefacts: Path, margin: float = 0.0
    ) -> CudaSession:
        """Take the device's lock and start a worker. Nothing is built, so nothing is kept."""
        demand_parts()
        with lock_to_open(self.name) as lock:
            return CudaSession(self.name, self.ordinal, problem, seed=seed, lock=lock)


@contextlib.contextmanager
def lock_to_open(device: str) -> Iterator[DeviceLock]:
    """Take a device's lock for a session; it is kept unless the session cannot be opened.

    Raises:
        StoppedError: Its worker died or does not answer.
    """
    lock = DeviceLock(device).acquire()
    try:
        yield lock
    except (WorkerGoneError, TimeoutError) as error:
        lock.release()
        raise StoppedError(f"device {device} does not answer: {error}") from None
    except BaseException:
        lock.release()
        raise


def demand_parts() -> None:
    """Look for the packages of the extra ``cuda`` without importing them.

    Raises:
        MissingPartError: One is not installed.
    """
    missing = [package for part, package in _PARTS.items() if not importlib.util.find_spec(part)]
    if missing:
        raise MissingPartError(
            f"the cuda device needs {', '.join(missing)}: install kernelarc[cuda]"
        )
