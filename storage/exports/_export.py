"""The registry of export formats and the one way to use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from kernelarc.genomes import InputError, nearest
from kernelarc.storage._contract import StoreReader
from kernelarc.storage.exports._c_header import c_header_files
from kernelarc.storage.exports._cublaslt import cublaslt_files, npy_files
from kernelarc.storage.exports._helion import helion_files
from kernelarc.storage.exports._inductor import inductor_files
from kernelarc.storage.exports._json import json_files
from kernelarc.storage.exports._kernel_tuner_cache import kernel_tuner_cache_files
from kernelarc.storage.exports._kernel_tuner_t4 import kernel_tuner_t4_files
from kernelarc.storage.exports._optuna import optuna_files
from kernelarc.storage.exports._placing import FileWriter, place
from kernelarc.storage.exports._sol import sol_files
from kernelarc.storage.exports._subject import Subject
from kernelarc.storage.exports._triton import triton_files
from kernelarc.storage.exports._vllm import vllm_fp8_files, vllm_moe_files

Exporter: TypeAlias = Callable[[Subject, Path], Mapping[Path, FileWriter]]
"""Says which files a format makes of a campaign, and how each is written."""

EXPORTERS: Mapping[str, Exporter] = MappingProxyType(
    {
        "json": json_files,
        "c-header": c_header_files,
        "kernel_tuner-cache": kernel_tuner_cache_files,
        "kernel_tuner-t4": kernel_tuner_t4_files,
        "optuna": optuna_files,
        "cublaslt": cublaslt_files,
        "npy": npy_files,
        "triton": triton_files,
        "vllm-moe": vllm_moe_files,
        "vllm-fp8": vllm_fp8_files,
        "helion": helion_files,
        "inductor": inductor_files,
        "sol": sol_files,
    }
)


def export(
    reader: StoreReader, campaign: int | None, format: str, path: Path | str
) -> tuple[Path, ...]:
    """Write a campaign in another format; return the files written.

    Only what stands is best: a claim that an audit took back is not, and only an audited one is
    called audited. An existing regular file is replaced, and only once the new one is whole.

    Args:
        reader: The store.
        campaign: Its number; the newest for None.
        format: A key of ``EXPORTERS``.
        path: Where to. Formats that hold one workload a file put the workload's label before
            the suffix where there are several.

    Raises:
        InputError: The format or campaign is unknown, nothing valid was found in it, or the
            place cannot be written. Nothing was written.
    """
    exporter = EXPORTERS.get(format)
    if exporter is None:
        raise InputError(f"unknown export format {format!r}{nearest(format, EXPORTERS)}")
    row = reader.campaign(campaign)
    subject = Subject(reader, row, tuple(reader.bests(row.id)))
    if not subject.bests:
        counts = reader.counts(row.id)
        raise InputError(
            f"campaign {row.id} has nothing to export: none of its {counts.unique} evaluations "
            f"gave a valid genome that stands ({counts.failed} failed)"
        )
    files = exporter(subject, Path(path))
    place(files)
    return tuple(files)
