"""SIGINT, SIGTERM, SIGHUP: the first asks for an orderly stop, a second one stops at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequest:
    """Context in which the first signal sets ``name`` and a second raises KeyboardInterrupt.

    Outside the main thread signals cannot be caught: there it never fires, and ``ask`` is the
    way to stop a campaign. A SIGHUP after another signal changes nothing: a terminal that closes
    sends it twice, and service managers send it after SIGTERM. Where it is ignored already
    (``nohup``) it stays so.

    Attributes:
        name: ``"SIGINT"``, ``"SIGTERM"`` or ``"SIGHUP"`` once asked to stop, None before.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self._before: dict[int, Any] = {}

    def ask(self, name: str = "request") -> None:
        """Ask for an orderly stop after the evaluation that is running."""
        self.name = name

    def _caught(self, number: int, _: FrameType | None) -> None:
        if self.name is None:
            self.name = signal.Signals(number).name
        elif number != signal.SIGHUP:
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                    continue
                self._before[number] = signal.signal(number, self._caught)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
