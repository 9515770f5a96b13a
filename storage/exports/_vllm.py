"""Formats ``vllm-moe`` and ``vllm-fp8``: what vLLM and SGLang read for their Triton kernels.

A file holds one layer: the batch size to the genome. Its name is part of the format, so PATH may
be a folder; the file then gets the name under which vLLM looks for it. SGLang reads the same body
under a name with a space in the shape of a block: there PATH is that name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelarc.genomes import InputError, Workload, axis_values
from kernelarc.storage.exports._compiled import Compiled, compiled_bests, renamed
from kernelarc.storage.exports._placing import FileWriter
from kernelarc.storage.exports._subject import Subject

NAMES: Mapping[str, tuple[str, ...]] = {
    "BLOCK_SIZE_M": ("block_size_m", "block_m"),
    "BLOCK_SIZE_N": ("block_size_n", "block_n"),
    "BLOCK_SIZE_K": ("block_size_k", "block_k"),
    "GROUP_SIZE_M": ("group_size_m", "group_m", "group"),
    "num_warps": ("num_warps",),
    "num_stages": ("num_stages",),
}
"""The genes of both kernels, with the names that they may have here."""

_FP8 = "fp8_w8a8"
_USUAL_BLOCK, _FAMILY = "128,128", "H200"


def vllm_moe_files(subject: Subject, path: Path) -> Mapping[Path, FileWriter]:
    """Write one file for each pair of experts E and width N.

    Raises:
        InputError: The genes or the axes are not those of the fused MoE kernel.
    """
    return _files(subject, path, "vllm-moe", ("E", "N"))


def vllm_fp8_files(subject: Subject, path: Path) -> Mapping[Path, FileWriter]:
    """Write one file for each pair of N and K.

    Raises:
        InputError: The genes or the axes are not those of the block-scaled product.
    """
    return _files(subject, path, "vllm-fp8", ("N", "K"))


def _files(
    subject: Subject, path: Path, format: str, layer: tuple[str, str]
) -> Mapping[Path, FileWriter]:
    tables: dict[str, dict[str, dict[str, Any]]] = {}
    for each in compiled_bests(subject, format):
        axes = axis_values(subject.operator, each.workload)
        missing = [name for name in (*layer, "M") if name not in axes]
        if missing:
            raise InputError(
                f"format {format}: operator {subject.operator.name!r} has no axis {missing[0]!r}; "
                f"its files are named by {layer[0]} and {layer[1]} and list sizes M"
            )
        name = file_name(subject, each.workload, {n: axes[n] for n in layer})
        rows = tables.setdefault(name, {})
        if str(axes["M"]) in rows:
            raise InputError(f"format {format}: two workloads have M={axes['M']}")
        rows[str(axes["M"])] = _row(each, format)
    if len(tables) > 1 and not path.is_dir():
        raise InputError(
            f"format {format}: the campaign holds {len(tables)} layers; name a folder to write to"
        )
    return {
        (path / name if path.is_dir() else path): _writer(rows) for name, rows in tables.items()
    }


def _row(each: Compiled, format: str) -> dict[str, Any]:
    row = renamed(each, NAMES, format)
    odd = next((n for n, value in row.items() if type(value) is not int), None)
    if odd is not None:
        raise InputError(f"format {format}: {odd} is {row[odd]!r}, and must be a whole number")
    return row


def file_name(subject: Subject, workload: Workload, layer: Mapping[str, int]) -> str:
    """Return the name under which the file is looked for on this device.

    The options ``dtype`` and ``block_shape`` (``"128,128"``) of the workload say what stands in
    it; 8-bit weights are ``fp8_w8a8`` by themselves.
    """
    eight = any(spec.dtype.startswith("float8") for spec in subject.operator.inputs)
    dense = "E" not in layer
    dtype = workload.options.get("dtype", _FP8 if eight or dense else None)
    block = workload.options.get("block_shape", _USUAL_BLOCK if dense else None)
    device = re.sub(r"\s+", "_", subject.device_label)
    if not dense and _FAMILY in device.split("_"):  # fused MoE knows one file for all of them
        device = f"NVIDIA_{_FAMILY}"
    parts = [f"{name}={value}" for name, value in layer.items()] + [f"device_name={device}"]
    if dtype:
        parts.append(f"dtype={dtype}")
    if block:
        parts.append(f"block_shape=[{str(block).replace(' ', '').replace('x', ',')}]")
    return ",".join(parts) + ".json"


def _writer(rows: Mapping[str, Any]) -> FileWriter:
    ordered = {size: rows[size] for size in sorted(rows, key=int)}

    def write(aside: Path) -> None:
        aside.write_text(json.dumps(ordered, indent=4) + "\n", encoding="utf-8")

    return write
