"""Where ``torch.compile`` keeps what it builds for baselines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


def kept_builds() -> Mapping[str, str]:
    """Return what a worker's environment needs, so that later sessions find its builds.

    They lie in the user's cache folder, for all workloads, sessions and stores. torch keeps them by
    itself, but in the folder for temporary files, which may end with a job or a restart. Where the
    user names a folder, or none can be made, that is left as it is.
    """
    if _VARIABLE in os.environ:
        return {}
    try:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(caches, "kernelarc", "torch").absolute()
        there = next(each for each in (folder, *folder.parents) if each.exists())
    except (OSError, RuntimeError):  # nobody's home is known, or may be looked into
        return {}
    can = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    return {_VARIABLE: str(folder)} if can else {}  # torch makes it when it has something to keep
