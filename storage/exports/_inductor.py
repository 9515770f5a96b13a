"""Format ``inductor``: entries for the lookup table of PyTorch's compiler, as JSON.

To use them: ``torch._inductor.config.lookup_table.table = json.load(open(PATH))``, with
``LookupTableChoices`` set as the handler of choices.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelarc.genomes import InputError, MatmulJob, axis_values, matmul_job
from kernelarc.storage.exports._compiled import Compiled, compiled_bests, renamed
from kernelarc.storage.exports._placing import FileWriter
from kernelarc.storage.exports._subject import Subject

_NAMES: Mapping[str, tuple[str, ...]] = {
    "BLOCK_M": ("block_m", "block_size_m"),
    "BLOCK_N": ("block_n", "block_size_n"),
    "BLOCK_K": ("block_k", "block_size_k"),
    "GROUP_M": ("group_m", "group_size_m", "group"),
    "num_warps": ("num_warps",),
    "num_stages": ("num_stages",),
}
_TEMPLATE, _BATCHED_TEMPLATE = "triton::mm", "triton::bmm"


def inductor_files(subject: Subject, path: Path) -> Mapping[Path, FileWriter]:
    """Write the table: one key for each workload.

    Raises:
        InputError: The operator is no matrix product that the table knows, or the genes are not
            those of its template.
    """
    table = dict(_entry(subject, each) for each in compiled_bests(subject, "inductor"))
    text = json.dumps(table, indent=1) + "\n"

    def write(aside: Path) -> None:
        aside.write_text(text, encoding="utf-8")

    return {path: write}


def _entry(subject: Subject, each: Compiled) -> tuple[str, list[dict[str, Any]]]:
    axes = axis_values(subject.operator, each.workload)
    job = matmul_job(subject.operator, each.workload, axes)
    if job is None or job.bias or job.activation != "none":
        raise InputError(
            f"format inductor: {subject.operator.name!r} ({each.workload.label}) is no plain "
            f"matrix product, and the table's template computes nothing else"
        )
    values = renamed(each, _NAMES, "inductor")
    # What its own heuristics say, and no more: whether TF32 is allowed it adds itself.
    entry = {
        "template_id": _BATCHED_TEMPLATE if job.batch > 1 else _TEMPLATE,
        "EVEN_K": job.k % values["BLOCK_K"] == 0,
        "USE_FAST_ACCUM": False,
        "ACC_TYPE": "tl.float32",
        "hint_override": None,
        **values,
    }
    return f"{subject.device_label}+{lookup_key(job)}", [entry]


def lookup_key(job: MatmulJob) -> str:
    """Return the key under which a product is looked up, without the device."""
    left = ([job.m, job.k], [1, job.m] if job.transpose_a else [job.k, 1])
    right = ([job.k, job.n], [1, job.k] if job.transpose_b else [job.n, 1])
    nodes = [left, right]
    name, scalars = "mm", ""
    if job.residual:
        nodes.insert(0, ([job.m, job.n], [job.n, 1]))
        name, scalars = "addmm", "alpha=1&beta=1+"
    if job.batch > 1:
        if job.residual:
            raise InputError("format inductor: its table has no batched product with a residual")
        nodes = [([job.batch, *s], [s[0] * s[1], *t]) for s, t in nodes]
        name = "bmm"
    text = ", ".join(f"(torch.{job.dtype}, {shape}, {strides})" for shape, strides in nodes)
    return f"({text})+{scalars}{name}"
