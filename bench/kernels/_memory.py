"""Device memory of one job: buffer sets between guard bands, a canary set, references.

Every set lies in a block of its own: each tensor stands between two bands of a known byte. An
output that is written into an input's buffer gets its own buffer filled with that input, as both;
the input itself stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelarc.bench.cuda._arena import BAND_BYTES
from kernelarc.bench.cuda._kernels import BAND_BYTE, Kernels, Tensor
from kernelarc.bench.kernels._job import BoundJob, BoundTensor
from kernelarc.genomes import InputError

ALIGNMENT = 1024
_MOST_SETS = 64
_DEVICE_TO_DEVICE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSet:
    """The tensors of one call.

    Attributes:
        block: Keeps the memory alive.
        tensors: Inputs and outputs by name.
        scalars: Values of Python scalars by name; changed in place when the set is filled.
    """

    block: Any
    tensors: Mapping[str, Tensor]
    scalars: dict[str, float | int | bool]

    def addresses(self, aliases: Mapping[str, str]) -> dict[str, int]:
        """Return the address of every tensor; an aliased input has its output's."""
        found = {name: tensor.address for name, tensor in self.tensors.items()}
        for output, source in aliases.items():
            found[source] = found[output]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """How a job's memory is laid out.

    Attributes:
        count: Buffer sets that timed calls rotate over.
        swept: Whether the sets do not exceed twice the cache, so that it is swept as well.
        total_bytes: Device memory in all, float64 copies included.
    """

    count: int
    swept: bool
    total_bytes: int

    @classmethod
    def of(cls, job: BoundJob, l2_bytes: int) -> Needs:
        """Lay a job out on a device with such a cache."""
        touched = max(job.touched_bytes, 1)
        count = max(2, min(-(-2 * l2_bytes // touched) + 1, _MOST_SETS))
        tensors = (*job.inputs, *job.outputs)
        bands = 4 * BAND_BYTES * len(tensors)
        wide = 8 * sum(tensor.count for tensor in tensors if tensor.floating)
        results = sum(tensor.nbytes + 8 * tensor.count for tensor in job.outputs)
        canary = 0 if job.custom else touched + bands
        total = count * (touched + bands) + canary + wide + 2 * results
        return cls(count=count, swept=count * touched <= 2 * l2_bytes, total_bytes=total)

    def demand(self, job: BoundJob, free: int) -> None:
        """Refuse a job that does not fit beside the scratch memory that a library may use.

        Raises:
            InputError: The message says the need and what there is.
        """
        need = self.total_bytes + (0 if job.product is None else job.product.workspace_bytes)
        if need > free:
            raise InputError(
                f"workload {job.task.workload.label!r} needs {need / 2**30:.1f} GiB "
                f"of device memory, {free / 2**30:.1f} are free"
            )


class JobMemory:
    """All device memory of one job.

    Args:
        cupy: The module.
        kernels: For guard bands.
        stream: All work goes there.
        job: Whose tensors.
        l2_bytes: The device's cache: sets rotate over more than twice as much.
    """

    def __init__(
        self, cupy: Any, kernels: Kernels, stream: Any, job: BoundJob, l2_bytes: int
    ) -> None:
        self.job = job
        self._cp, self._kernels, self._stream = cupy, kernels, stream
        needs = Needs.of(job, l2_bytes)
        self.count, self.swept = needs.count, needs.swept
        self._bands: list[int] = []
        self.sets = [self._set() for _ in range(self.count)]
        self._canary = None if job.custom else self._set()
        self.bands = cupy.array(self._bands, dtype=cupy.uint64)
        self.kept = {t.name: cupy.cuda.alloc(max(t.nbytes, 16)) for t in job.outputs}
        self.reference = self._wide()
        self.canary_reference = {} if job.custom else self._wide()

    @property
    def canary(self) -> TensorSet | None:
        """The set of exact inputs, None where the reference makes the inputs.

        Nobody may let go of it: its guard bands are checked with all the others.
        """
        return self._canary

    def _wide(self) -> dict[str, Any]:
        cp = self._cp
        return {t.name: cp.zeros(t.count, dtype=cp.float64) for t in self.job.outputs}

    def _set(self) -> TensorSet:
        wanted = (*self.job.inputs, *self.job.outputs)
        spans = [BAND_BYTES + -(-t.nbytes // ALIGNMENT) * ALIGNMENT + BAND_BYTES for t in wanted]
        block = self._cp.cuda.alloc(sum(spans) + ALIGNMENT)
        start = int(block.ptr) + (-int(block.ptr)) % ALIGNMENT
        tensors: dict[str, Tensor] = {}
        bands: list[int] = []
        for tensor, span in zip(wanted, spans, strict=True):
            place = start + BAND_BYTES
            bands += [start, place + tensor.nbytes]
            tensors[tensor.name] = _placed(tensor, place)
            start += span
        self.mend(bands)
        self._bands += bands
        return TensorSet(block=block, tensors=tensors, scalars={})

    def mend(self, bands: Iterable[int] | None = None) -> None:
        """Write guard bands (all of them if not named) as they should be."""
        for address in self._bands if bands is None else bands:
            self._cp.cuda.runtime.memsetAsync(address, BAND_BYTE, BAND_BYTES, self._stream.ptr)

    # Before and after a run

    def prepare(self, buffers: TensorSet, aliases: Mapping[str, str]) -> None:
        """Make a set ready for a checked run: aliased inputs in place, poison (NaN) elsewhere."""
        for spec in self.job.outputs:
            out = buffers.tensors[spec.name]
            if spec.name in aliases:
                self._copy(out.address, buffers.tensors[aliases[spec.name]].address, out.nbytes)
            else:
                self._cp.cuda.runtime.memsetAsync(out.address, 0xFF, out.nbytes, self._stream.ptr)

    def keep(self, buffers: TensorSet) -> None:
        """Copy a set's outputs aside, for the comparison of two runs."""
        for name, held in self.kept.items():
            out = buffers.tensors[name]
            self._copy(int(held.ptr), out.address, out.nbytes)

    def _copy(self, target: int, source: int, nbytes: int) -> None:
        self._cp.cuda.runtime.memcpyAsync(
            target, source, nbytes, _DEVICE_TO_DEVICE, self._stream.ptr
        )


def _placed(tensor: BoundTensor, address: int) -> Tensor:
    return Tensor(address, tensor.count, tensor.nbytes, tensor.dtype)
