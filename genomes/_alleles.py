"""Alleles: the values that stand at a gene, and their canonical text.

The canonical text is typed: ``1``, ``1.0`` and ``True`` are three different alleles, although
Python calls them equal. Everything that must be stable across processes and versions (a genome's
fingerprint, the store, exports) is made from it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Hashable, Mapping
from typing import TypeAlias

Allele: TypeAlias = "bool | int | float | str | tuple[Allele, ...]"

FINGERPRINT_DIGITS = 24


def allele_text(value: Allele) -> str:
    """Return the typed canonical text of one allele, for example ``1``, ``1.0``, ``true``.

    Raises:
        TypeError: The value is of a type that no gene has.
        ValueError: The value is a float that is not finite.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"an allele must be finite, not {value!r}")
    if not isinstance(value, bool | int | float | str | tuple):
        raise TypeError(f"{type(value).__name__} is no allele: bool, int, float, str or tuple is")
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True)


def allele_from_json(value: object) -> Allele:
    """Turn a value that ``json.loads`` gave back into an allele (lists become tuples)."""
    if isinstance(value, list):
        return tuple(allele_from_json(item) for item in value)
    if isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"an allele is a bool, int, float, str or tuple, not {type(value).__name__}")


def same_allele(left: Allele, right: Allele) -> bool:
    """Tell whether two alleles are the same value *and* the same type."""
    if type(left) is not type(right) or left != right:
        return False
    return not isinstance(left, tuple) or allele_key(left) == allele_key(right)


def allele_key(value: object) -> Hashable:
    """Return a dictionary key under which equal means the same allele, types included."""
    if isinstance(value, tuple):
        return tuple, tuple(allele_key(item) for item in value)
    return type(value), value


def canonical_json(value: object) -> str:
    """Return JSON text with sorted keys and no spaces: equal content, equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def fingerprint_of(text: str) -> str:
    """Return the content fingerprint of a canonical text: 24 hexadecimal digits of SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_DIGITS]


def alleles_text(alleles: Mapping[str, Allele]) -> str:
    """Return the typed canonical text of a whole assignment, sorted by gene name."""
    return json.dumps(dict(alleles), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
