"""The reading process: imports one file and says what stands in it.

Run as ``python -m kernelarc.bench.kernelfile._child FILE DESCRIPTOR SECONDS``. The answer goes to
the descriptor as one JSON object; whatever the file prints goes where the parent caught it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from kernelarc.bench.kernelfile._inspect import UnfitSeedError, kernels_of

MODULE = "kernelarc_kernel_file"


def main(file: str, descriptor: int) -> int:
    """Import the file, answer, and end."""
    try:
        import triton  # noqa: F401, PLC0415
    except ImportError as error:
        return _answer(descriptor, {"fault": "triton", "message": str(error)})
    path = Path(file).resolve()
    try:
        module = imported(path)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return _answer(descriptor, {"fault": "raises", **_place(error, path)})
    try:
        return _answer(descriptor, {"kernels": kernels_of(module)})
    except UnfitSeedError as error:
        return _answer(descriptor, {"fault": "seed", "message": str(error)})


def imported(path: Path) -> Any:
    """Import a file by its path, with its folder first on the module path, as a script has it."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(MODULE, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    return module


def _place(error: BaseException, path: Path) -> dict[str, Any]:
    """Return what was raised, and the newest line of the file itself on the way there."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename) == path
    ]
    text = str(error).strip().partition("\n")[0]
    return {
        "message": f"{type(error).__name__}: {text}" if text else type(error).__name__,
        "line": lines[-1] if lines else None,
    }


def _answer(descriptor: int, values: dict[str, Any]) -> int:
    sys.stdout.flush()
    with os.fdopen(descriptor, "w") as file:
        json.dump(values, file)
    # The file may have started threads or registered things to do at exit.
    os._exit(0)


if __name__ == "__main__":
    signal.alarm(int(sys.argv[3]))  # also where the parent is gone
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
