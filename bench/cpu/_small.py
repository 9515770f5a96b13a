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

_SHORT = (3, 5, 7, 11, 13, 17)
"""Beside a long axis: shorter than most tiles, and quickly checked."""


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
        shapes = (self._ragged(rng), self._ragged(rng))
        friendly = [variant for variant in Variant if variant not in EXACT_VARIANTS]
        for place, variant in enumerate((*friendly, *self._exact)):
            yield SmallJob(shapes[place % 2], variant, exact=variant in EXACT_VARIANTS)
        for axis in self._free:
            axes = {name: int(rng.choice(_SHORT)) for name in self._free}
            axes[axis] = int(rng.choice(_LONG))
            yield SmallJob(self._bound(axes), Variant.RANDOM, exact=False)
        ones = self._bound(dict.fromkeys(self._free, 1))
        yield SmallJob(ones, Variant.RANDOM, exact=False)

    def _bound(self, axes: dict[str, int]) -> Workload:
        return replace(self._workload, axes=axes, uuid="")

    def _ragged(self, rng: np.random.Generator) -> Workload:
        return ragged_workload(self._operator, self._workload, rng)

    def runs(self, rng: np.random.Generator) -> Iterator[SmallRun]:
        """Yield filled buffers, one job after the other.

        Jobs of equal shape share buffers: a kernel meets other values at the same addresses.
        """
        made: dict[str, BufferSet] = {}
        for job in self.draw(rng):
            key = job.workload.fingerprint
            if key not in made:
                made[key] = BufferSet(self._operator, job.workload)
            yield self._filled(job, made[key], rng)

    def _filled(self, job: SmallJob, buffers: BufferSet, rng: np.random.Generator) -> SmallRun:
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
