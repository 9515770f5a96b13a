"""What differs between two environments."""

from __future__ import annotations

from collections.abc import Mapping


def changed_parts(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return in words which parts of an environment's identity differ."""
    keys = sorted({*before, *after})
    return [
        f"{key}: {before.get(key, 'none')} -> {after.get(key, 'none')}"
        for key in keys
        if before.get(key) != after.get(key)
    ]
