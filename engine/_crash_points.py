"""Deterministic crash points: the places where a campaign must survive ``kill -9``.

A test names one in ``KERNELARC_CRASH_POINT`` as ``name:n``; the n-th time the campaign passes
there it kills itself with SIGKILL, as a power cut would. Unset, a crash point costs one look at
a module-level variable.
"""

from __future__ import annotations

import os
import signal

CRASH_POINTS = (
    "campaign-begun",
    "before-ask",
    "after-ask",
    "before-commit",
    "after-commit",
    "before-submit",
    "after-submit",
    "after-evaluation",
    "before-confirm",
    "after-confirm",
    "before-verdict",
    "after-verdict",
    "before-tell",
    "after-tell",
    "before-audit",
    "between-audits",
    "after-audit",
    "before-finish",
)

_armed = os.environ.get("KERNELARC_CRASH_POINT", "")
_passed = 0


def crash_point(name: str) -> None:
    """Die here if the environment says so. ``name`` is one of ``CRASH_POINTS``."""
    if _armed:
        _pass(name)


def _pass(name: str) -> None:
    global _passed  # noqa: PLW0603 - one counter for the life of the process, for tests only
    armed, _, count = _armed.partition(":")
    if name != armed:
        return
    _passed += 1
    if _passed >= int(count or 1):
        os.kill(os.getpid(), signal.SIGKILL)
