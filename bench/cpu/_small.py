"""Small ragged jobs that every genome must get right before it touches the real shape.

Extents that no tile divides, one axis long at a time (so that every loop over blocks turns at
least once), every axis at 1, friendly and unfriendly values, and canaries that must be exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from kernelarc.bench._inputs import EXACT_VARIANTS, Variant, make_inputs, ragged_workload
from kernelarc.bench._numerics import Comparison, compare, compare_exact
from kernelarc.bench._reference import depth_of, run_reference, sums_exactly
from kernelarc.bench.cpu._stage import BufferSet
from kernelarc.genomes import Operator, Workload

_LONG = (1031, 1543, 2053)
"""Longer than most cache blocks, and prime."""


@dataclass(frozen=True, slots=True)
class SmallJob:
    """One small workload and how its values are chosen."""

    workload: Workload
    variant: Variant
    exact: bool


class SmallJobs:
    """Makes the small jobs of one workload, with other extents and values every time."""

    def __init__(self, operator: Operator, workload: Workload) -> None:
        self._operator = operator
        self._workload = workload
        self._exact = EXACT_VARIANTS if sums_exactly(operator) else ()
        self._free = [name for name, axis in operator.axes.items() if axis.kind == "var"]

    def draw(self, rng: np.random.Generator) -> Iterator[SmallJob]:
        """Yield the jobs of one candidate."""
        for variant in (v for v in Variant if v not in EXACT_VARIANTS):
            yield SmallJob(self._ragged(rng), variant, exact=False)
        for variant in self._exact:
            yield SmallJob(self._ragged(rng), variant, exact=True)
        for axis in self._free:
            ragged = self._ragged(rng)
            axes = {**ragged.axes, axis: int(rng.choice(_LONG))}
            yield SmallJob(replace(ragged, axes=axes), Variant.RANDOM, exact=False)
        ones = dict.fromkeys(self._free, 1)
        yield SmallJob(replace(self._workload, axes=ones, uuid=""), Variant.RANDOM, exact=False)

    def _ragged(self, rng: np.random.Generator) -> Workload:
        return ragged_workload(self._operator, self._workload, rng)

    def fill(self, job: SmallJob, rng: np.random.Generator) -> SmallRun:
        """Return buffers with fresh values and what they must give."""
        buffers = BufferSet(self._operator, job.workload)
        drawn = make_inputs(self._operator, job.workload, rng, job.variant)
        for name, array in buffers.inputs.items():
            np.copyto(array, np.asarray(drawn[name]), casting="unsafe")
        buffers.poison()
        return SmallRun(self._operator, job, buffers, dict(run_reference(self._operator, drawn)))


class SmallRun:
    """Buffers of one small job."""

    def __init__(
        self,
        operator: Operator,
        job: SmallJob,
        buffers: BufferSet,
        reference: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]],
    ) -> None:
        self._operator = operator
        self._job = job
        self._reference = reference
        self._before = {name: array.tobytes() for name, array in buffers.inputs.items()}
        self.buffers = buffers

    @property
    def label(self) -> str:
        """Shape and values for people."""
        return f"{self._job.workload.label}, {self._job.variant.value}"

    def changed_inputs(self) -> tuple[str, ...]:
        """Return the names of inputs that are not as they were."""
        now = self.buffers.inputs.items()
        return tuple(name for name, array in now if array.tobytes() != self._before[name])

    def compare(self) -> dict[str, Comparison]:
        """Compare every output."""
        return {spec.name: self._compared(spec.name, spec.dtype) for spec in self._operator.outputs}

    def _compared(self, name: str, dtype: str) -> Comparison:
        output, expected = self.buffers.outputs[name], self._reference[name]
        if self._job.exact:
            return compare_exact(output, expected, dtype=dtype, name=name)
        return compare(
            output,
            expected,
            self._job.workload.tolerance,
            dtype=dtype,
            depth=depth_of(self._operator, self._job.workload),
            name=name,
        )
