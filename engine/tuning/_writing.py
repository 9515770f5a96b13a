"""A tuning job as a kernel file: from there on it is a target like any other."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kernelarc.engine.tuning._calls import Buffer
from kernelarc.engine.tuning._job import TuningJob
from kernelarc.engine.tuning._tables import Tabled
from kernelarc.genomes import Gene, IntegerRange, PowerOfTwo

_TOLERANCE = "max_atol=2e-2, max_rtol=2e-2, required_matched_ratio=0.999"
_TEMPLATE = '''"""Kernel {kernel} as a program called it, written down by kernelarc.autotune.

Key: {key}. `kernelarc run {file}` searches on.
"""

from pathlib import Path

import numpy as np

import kernelarc
from kernelarc.genomes.triton import TabledConstraint, view_at

{source}

KERNELARC_GRID = {grid}
KERNELARC_COMPUTED = {computed}


def kernelarc_row(table, given):
    genes, rows = table
    return rows[tuple(given[name] for name in genes)]


def kernelarc_launch(**given):
    views = {{name: view_at(given[buffer], offset) for name, buffer, offset in {views}}}
    computed = {{n: kernelarc_row(table, given) for n, table in KERNELARC_COMPUTED.items()}}
    {kernel}[kernelarc_row(KERNELARC_GRID, given)](**views, **computed, **{plain})


def kernelarc_values(**axes):
    return dict(np.load(Path(__file__).with_suffix(".npz")))


KERNEL = kernelarc.TritonKernel(
    kernel={kernel},
    launch=kernelarc_launch,
    axes={axes},
    inputs={inputs},
    outputs={outputs},
    in_place={in_place},
    values={values},
    genes=[
{genes}
    ],
    constraints={constraints},
    seeds={seeds},
    tolerance=kernelarc.Tolerance({tolerance}),
)
'''


def file_text(job: TuningJob, written: Collection[str], file: str) -> str:
    """Return the kernel file of a job.

    Args:
        job: The job.
        written: Buffers that the kernel writes. They are inputs too: a call may add to what is
            there, or leave a part of it alone.
        file: Its name, for the introduction.
    """
    inputs = {_before(b, written): (b.dtype, (str(b.elements),)) for b in job.call.buffers}
    return _TEMPLATE.format(
        kernel=job.subject.kernel,
        key=", ".join(f"{name}={value}" for name, value in job.subject.key.items()) or "none",
        file=file,
        source=job.subject.source,
        grid=_table(job.grid),
        computed="{" + ", ".join(f"{n!r}: {_table(t)}" for n, t in job.computed.items()) + "}",
        views=[(name, view.buffer, view.offset) for name, view in job.call.views.items()],
        plain=dict(job.call.plain),
        axes=job.subject.axes,
        inputs=inputs,
        outputs={
            b.name: (b.dtype, (str(b.elements),)) for b in job.call.buffers if b.name in written
        },
        in_place={b.name: _before(b, written) for b in job.call.buffers if b.name in written},
        values="kernelarc_values" if carried(job, written) else None,
        genes="\n".join(f"        {_gene(gene)}," for gene in job.subject.genes),
        constraints=_constraints(job),
        seeds=[dict(seed) for seed in job.subject.seeds],
        tolerance=_TOLERANCE,
    )


def _before(buffer: Buffer, written: Collection[str]) -> str:
    return f"{buffer.name}_before" if buffer.name in written else buffer.name


def _table(table: Tabled) -> str:
    return f"({table.genes!r}, {dict(table.rows)!r})"


def _constraints(job: TuningJob) -> str:
    if job.pruned is None:
        return "[]"
    names = [gene.name for gene in job.subject.genes]
    return f"[TabledConstraint({names!r}, {list(job.pruned)!r}, 'early_config_prune')]"


def _gene(gene: Gene) -> str:
    if isinstance(gene, PowerOfTwo):
        return f"kernelarc.PowerOfTwo(name={gene.name!r}, low={gene.low}, high={gene.high})"
    if isinstance(gene, IntegerRange):
        return (
            f"kernelarc.IntegerRange(name={gene.name!r}, low={gene.low}, high={gene.high}, "
            f"step={gene.step})"
        )
    return f"kernelarc.Choice(name={gene.name!r}, options={gene.values()!r})"


def carried(job: TuningJob, written: Collection[str]) -> dict[str, Any]:
    """Return what stands in inputs that random numbers do not fit, by input name."""
    found: dict[str, Any] = {}
    for buffer in job.call.buffers:
        name = _before(buffer, written)
        if buffer.values is not None:
            found[name] = buffer.values
        elif buffer.zeroed:
            found[name] = np.zeros(buffer.elements, dtype=np.float32)
    return found


def write_file(job: TuningJob, written: Collection[str], path: Path) -> None:
    """Write a job's kernel file, and its values beside it, each whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values: Mapping[str, Any] = carried(job, written)
    if values:
        aside = path.with_suffix(".writing.npz")
        np.savez(aside, **values)
        aside.replace(path.with_suffix(".npz"))
    aside = path.with_suffix(".writing")
    aside.write_text(file_text(job, written, path.name), encoding="utf-8")
    aside.replace(path)
