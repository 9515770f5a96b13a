"""Format ``helion``: one flat JSON object a workload, as ``helion.Config.load`` takes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from kernelarc.genomes import Allele, InputError
from kernelarc.storage.exports._compiled import Compiled, compiled_bests, is_neutral
from kernelarc.storage.exports._naming import paths_for
from kernelarc.storage.exports._placing import FileWriter
from kernelarc.storage.exports._subject import Subject

_Change: TypeAlias = Callable[[Any], Mapping[str, Any]]

# Sizes of blocks stand in one list, in the order in which a kernel names its tiles.
_TILE_ORDER = ("m", "n", "k")

_OWN = frozenset(
    {
        "block_sizes", "loop_orders", "flatten_loops", "l2_groupings", "reduction_loops",
        "range_unroll_factors", "range_warp_specializes", "range_num_stages",
        "range_multi_buffers", "range_flattens", "static_ranges", "load_eviction_policies",
        "num_warps", "num_stages", "pid_type", "indexing", "num_sm_multiplier", "epilogue_subtile",
    }
)  # fmt: skip
"""Genes that a kernel of Helion's own has: they go over as they are."""


def _indexing(value: Any) -> Mapping[str, Any]:
    return {"indexing": "tensor_descriptor" if value in {True, "descriptor"} else "pointer"}


def _grouping(value: Any) -> Mapping[str, Any]:
    return {"l2_groupings": [value]}


def _subtile(value: Any) -> Mapping[str, Any]:
    return {"epilogue_subtile": value} if value > 1 else {}


_CHANGES: Mapping[str, _Change] = {
    **dict.fromkeys(("group", "group_m", "group_size_m"), _grouping),
    **dict.fromkeys(("load", "tma", "descriptors"), _indexing),
    **dict.fromkeys(("subtile", "epilogue_parts"), _subtile),
    **dict.fromkeys(("sm_multiplier", "sm_multiple"), lambda value: {"num_sm_multiplier": value}),
    "persistent": lambda value: {"pid_type": "persistent_interleaved" if value else "flat"},
    "maxnreg": lambda value: {"maxnreg": value} if value else {},
}
"""Genes by their names here, in lower case, and what they are called there."""

_LOADS = ("a", "b")
"""The factors of a product, in the order in which a kernel loads them."""


def helion_files(subject: Subject, path: Path) -> Mapping[Path, FileWriter]:
    """Write one file for each workload.

    Raises:
        InputError: A gene has no counterpart in a Helion configuration.
    """
    bests = compiled_bests(subject, "helion")
    places = paths_for(path, tuple(each.workload for each in bests))
    return {
        places[each.workload.fingerprint]: _writer(helion_configuration(each)) for each in bests
    }


def helion_configuration(each: Compiled) -> dict[str, Any]:
    """Return a genome in Helion's words."""
    found: dict[str, Any] = {}
    tiles: dict[str, Allele] = {}
    for gene, allele in each.genome.items():
        name = gene.lower()
        if gene in _OWN:
            found[gene] = allele
        elif name.startswith("block"):
            tiles[name.rpartition("_")[2]] = allele
        elif name in _CHANGES:
            found.update(_CHANGES[name](allele))
        elif name.startswith("evict_") or name == "store_descriptor":
            continue
        elif not is_neutral(gene, allele):
            raise _foreign(each, gene)
    if "maxnreg" in found and not str(found.get("pid_type", "")).startswith("persistent"):
        raise InputError(
            f"format helion: genome {each.genome.fingerprint} caps registers at "
            f"{found['maxnreg']}, and Helion does that for persistent kernels alone"
        )
    if tiles:
        order = sorted(tiles, key=lambda t: _TILE_ORDER.index(t) if t in _TILE_ORDER else 3)
        found["block_sizes"] = [tiles[name] for name in order]
    return dict(sorted({**found, **_of_loads(each, found)}.items()))


def _of_loads(each: Compiled, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is said of each load, and of the store after them."""
    genome = each.genome
    made: dict[str, Any] = {}
    policies = [str(genome.get(f"evict_{name}", "")).removeprefix("evict_") for name in _LOADS]
    if any(policies):
        made["load_eviction_policies"] = policies
    if found.get("indexing") == "tensor_descriptor" and genome.get("store_descriptor") is False:
        made["indexing"] = ["tensor_descriptor", "tensor_descriptor", "pointer"]
    return made


def _foreign(each: Compiled, gene: str) -> InputError:
    return InputError(
        f"format helion: gene {gene!r} of genome {each.genome.fingerprint} is "
        f"{each.genome[gene]!r}, for which a Helion configuration has no word"
    )


def _writer(found: Mapping[str, Any]) -> FileWriter:
    def write(aside: Path) -> None:
        aside.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")

    return write
