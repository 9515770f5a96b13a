"""Figures that GPU tests see on their way, kept in the file that KERNELARC_GPU_FIGURES names."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VARIABLE = "KERNELARC_GPU_FIGURES"
_CONTEXT = """
import time
import cupy
begun = time.perf_counter()
cupy.cuda.Device(0).use()
cupy.cuda.runtime.free(0)
print(time.perf_counter() - begun)
"""


def record(name: str, figures: Mapping[str, Any]) -> None:
    """Put figures under a name into the file, beside those that are there; none without a file."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    file = Path(path)
    known = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**known, name: figures}, indent=1, sort_keys=True) + "\n")


def context_s(runs: int = 3) -> float:
    """Return how long a fresh process takes to make a CUDA context, the median of some runs."""
    command = [sys.executable, "-c", _CONTEXT]
    environment = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    said = [
        subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
        for _ in range(runs)
    ]
    return statistics.median(float(one) for one in said)
