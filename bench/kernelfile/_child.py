"""The reading process: imports one file and says what stands in it.

Run as ``python -m kernelarc.bench.kernelfile._child FILE DESCRIPTOR SECONDS WORKLOADS``, the
last being axes by workload as JSON. The answer goes to the descriptor as one JSON object; whatever
the file prints goes where the parent caught it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelarc.bench.kernelfile._describe import Declared
from kernelarc.bench.kernelfile._inspect import UnfitSeedError, kernels_of
from kernelarc.genomes import KernelarcError
from kernelarc.genomes.triton import declarations_of, imported


def main(file: str, descriptor: int, workloads: list[dict[str, int]]) -> int:
    """Import the file, answer, and end."""
    try:
        import triton  # noqa: F401, PLC0415
    except ImportError as error:
        return _answer(descriptor, {"fault": "triton", "message": str(error)})
    path = Path(file).resolve()
    try:
        module = imported(path)
    except KernelarcError as error:
        return _answer(descriptor, {**_place(error, path), "fault": "said", "message": str(error)})
    except BaseException as error:
        return _answer(descriptor, {"fault": "raises", **_place(error, path)})
    try:
        return _answer(descriptor, _found(module, workloads))
    except (UnfitSeedError, KernelarcError) as error:
        return _answer(descriptor, {"fault": "said", "message": str(error)})
    except Exception as error:
        said = _place(error, path)["message"]
        return _answer(descriptor, {"fault": "said", "message": f"cannot be understood: {said}"})


def _found(module: ModuleType, workloads: list[dict[str, int]]) -> dict[str, Any]:
    said = declarations_of(module)
    return {
        "kernels": kernels_of(module),
        "declarations": [
            Declared(module, name, each).to_json(workloads) for name, each in said.items()
        ],
    }


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
    sys.exit(main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[4])))
