"""What environments' identities say: what differs between two, and what a device can do."""

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


def capability_of(identity: Mapping[str, str]) -> int | None:
    """Return a device's compute capability times ten (90 for Hopper), or None where it has none."""
    major, _, minor = identity.get("compute_capability", "").partition(".")
    return 10 * int(major) + int(minor) if major.isdecimal() and minor.isdecimal() else None
