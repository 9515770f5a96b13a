"""Genes and their conditions as JSON, both ways, one entry per gene kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernelarc.genomes import (
    Boolean,
    Choice,
    Gene,
    InputError,
    IntegerRange,
    Permutation,
    PowerOfTwo,
    Strategy,
    When,
    allele_from_json,
    nearest,
)


def gene_to_json(gene: Gene) -> dict[str, Any]:
    """Return the JSON object of a gene: name, kind, domain, strategy and condition."""
    found: dict[str, Any] = {"name": gene.name, **_domain(gene)}
    if gene.strategy is not None:
        found["strategy"] = gene.strategy.value
    if gene.when is not None:
        found["when"] = {"gene": gene.when.gene, "values": list(gene.when.values)}
    if gene.fair:
        found["fair"] = True
    if gene.usual is not None:
        found["usual"] = gene.usual
    if gene.description:
        found["description"] = gene.description
    return found


def gene_from_json(entry: Mapping[str, Any]) -> Gene:
    """Rebuild a gene.

    Raises:
        InputError: An unknown kind or strategy, or a domain that is none.
    """
    kind = str(entry.get("kind"))
    make = _KINDS.get(kind)
    if make is None:
        raise InputError(f"gene kind {kind!r} is unknown{nearest(kind, _KINDS)}")
    try:
        common = {
            "name": str(entry["name"]),
            "strategy": Strategy(entry["strategy"]) if entry.get("strategy") else None,
            "when": _condition(entry.get("when")),
            "description": str(entry.get("description", "")),
            "fair": entry.get("fair") is True,
            "usual": None if entry.get("usual") is None else allele_from_json(entry["usual"]),
        }
        return make(entry, common)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"gene {entry.get('name')!r} is malformed: {error}") from error


def _domain(gene: Gene) -> dict[str, Any]:
    if isinstance(gene, PowerOfTwo):
        return {"kind": "power_of_two", "low": gene.low, "high": gene.high}
    if isinstance(gene, IntegerRange):
        return {"kind": "integer_range", "low": gene.low, "high": gene.high, "step": gene.step}
    if isinstance(gene, Boolean):
        return {"kind": "boolean"}
    if isinstance(gene, Permutation):
        return {"kind": "permutation", "items": list(gene.items)}
    return {"kind": "choice", "options": list(gene.values())}


def _condition(entry: Mapping[str, Any] | None) -> When | None:
    if entry is None:
        return None
    values = tuple(allele_from_json(value) for value in entry["values"])
    return When(gene=str(entry["gene"]), values=values)


def _power_of_two(entry: Mapping[str, Any], common: dict[str, Any]) -> Gene:
    return PowerOfTwo(low=int(entry["low"]), high=int(entry["high"]), **common)


def _integer_range(entry: Mapping[str, Any], common: dict[str, Any]) -> Gene:
    low, high, step = int(entry["low"]), int(entry["high"]), int(entry.get("step", 1))
    return IntegerRange(low=low, high=high, step=step, **common)


def _boolean(_: Mapping[str, Any], common: dict[str, Any]) -> Gene:
    return Boolean(**common)


def _permutation(entry: Mapping[str, Any], common: dict[str, Any]) -> Gene:
    return Permutation(items=tuple(str(item) for item in entry["items"]), **common)


def _choice(entry: Mapping[str, Any], common: dict[str, Any]) -> Gene:
    return Choice(options=tuple(allele_from_json(v) for v in entry["options"]), **common)


_KINDS: Mapping[str, Callable[[Mapping[str, Any], dict[str, Any]], Gene]] = {
    "power_of_two": _power_of_two,
    "integer_range": _integer_range,
    "boolean": _boolean,
    "permutation": _permutation,
    "choice": _choice,
}
