"""Skips, with the reason, where there is no usable NVIDIA GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


def _missing() -> str | None:
    """Say what is missing, without importing anything that would make a context."""
    if not Path("/dev/nvidiactl").exists():
        return "there is no NVIDIA GPU"
    parts = [part for part in ("cupy", "nvmath", "cuda") if not importlib.util.find_spec(part)]
    return f"not installed: {', '.join(parts)}" if parts else None


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark where the project's settings are not read (``-c /dev/null``)."""
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder, and skip it where it cannot run."""
    why = _missing()
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if why:
                item.add_marker(pytest.mark.skip(reason=why))
