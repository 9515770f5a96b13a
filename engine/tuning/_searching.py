"""Having a job searched by another process, and waiting for it."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from typing import IO, Any

from kernelarc.genomes import child_environment

_PROGRAM = "kernelarc.engine.tuning._program"
_KEPT = 2000


class SearchFailedError(Exception):
    """The searching process found nothing to return; the text is one line."""


def have_searched(order: Any, *, limit_s: float) -> int | None:
    """Start a searching process, wait for its answer, and end it with all that it started.

    Args:
        order: An ``Order``, pickled for the process.
        limit_s: After so long it is given up.

    Returns:
        The campaign's number.

    Raises:
        SearchFailedError: It failed, died or took too long.
    """
    alive, lifeline = os.pipe()
    with tempfile.TemporaryFile() as answers, tempfile.TemporaryFile() as said:
        try:
            child = subprocess.Popen(
                [sys.executable, "-m", _PROGRAM, str(answers.fileno()), str(alive)],
                pass_fds=(answers.fileno(), alive),
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                start_new_session=True,
                env=child_environment(),
            )
        finally:
            os.close(alive)
        try:
            child.communicate(pickle.dumps(order), timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise SearchFailedError(f"the search took longer than {limit_s:g} s") from None
        finally:
            os.close(lifeline)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        answers.seek(0)
        text = answers.read()
        if not text:
            raise SearchFailedError(f"the searching process died: {_end_of(said)}")
    answer = json.loads(text)
    if "fault" in answer:
        raise SearchFailedError(answer["fault"])
    found: int | None = answer["campaign"]
    return found


def _end_of(said: IO[bytes]) -> str:
    size = said.seek(0, os.SEEK_END)
    said.seek(max(size - _KEPT, 0))
    lines = said.read().decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"
