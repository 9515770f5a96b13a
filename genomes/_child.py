"""What every process that we start is given."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def child_environment() -> dict[str, str]:
    """Return an environment in which a child imports this very package, wherever it lies."""
    root = str(Path(sys.modules["kernelarc"].__path__[0]).parent)
    known = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, known]) if known else root}
