"""Device memory of one job: buffer sets between guard bands, a canary set, scratch.

Every set lies in a block of its own. A set holds A, B, the pristine residual and the output, each
between two bands of a known byte. An aliased genome gets the output's buffer, filled with the
residual, as both operand and result; the pristine residual stays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelarc.bench.cuda._kernels import (
    BAND_BYTE,
    CONSTANT,
    HEAVY,
    NORMAL,
    ZERO_ONE,
    Kernels,
    Tensor,
)
from kernelarc.genomes import InputError, MatmulJob, dtype_bytes

BAND_BYTES = 4096
_ALIGNMENT = 1024
MOST_SETS = 64
_SCALE_STRIDE = 64  # floats: each scale at an aligned address of its own
CANARY_TAIL = 16
_CANARY_ONES = 64.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferSet:
    """The tensors of one call. ``residual`` is None where the job has none."""

    block: Any
    a: Tensor
    b: Tensor
    out: Tensor
    residual: Tensor | None

    def addresses(self, aliased: bool) -> tuple[int, int, int, int]:
        """Return the addresses of A, B, C and D for a call."""
        apart = self.residual is not None and not aliased
        c = self.residual.address if self.residual is not None and apart else self.out.address
        return self.a.address, self.b.address, c, self.out.address


@dataclass(frozen=True, slots=True)
class Filling:
    """How a set is filled: distribution and factor of the values."""

    how: int = NORMAL
    factor: float = 1.0


PLAIN = Filling()
FILLINGS = {
    "plain": PLAIN,
    "tripled": Filling(factor=3.0),
    "hundredth": Filling(factor=0.01),
    "negated": Filling(factor=-1.0),
    "heavy-tailed": Filling(HEAVY, 1.0),
}


def _counts(job: MatmulJob) -> tuple[int, int, int]:
    """Return the elements of A, B and the output."""
    return job.batch * job.m * job.k, job.batch * job.n * job.k, job.batch * job.m * job.n


@dataclass(frozen=True, slots=True)
class Needs:
    """How a job's memory is laid out.

    Attributes:
        count: Buffer sets that timed calls rotate over.
        swept: Whether the sets do not exceed twice the cache, so that it is swept as well.
        total_bytes: Device memory in all, intermediate float64 copies included.
    """

    count: int
    swept: bool
    total_bytes: int

    @classmethod
    def of(cls, job: MatmulJob, l2_bytes: int) -> Needs:
        """Lay a job out on a device with such a cache."""
        a, b, out = _counts(job)
        outputs = out * dtype_bytes(job.out_dtype)
        touched = (a + b) * dtype_bytes(job.dtype) + outputs
        count = max(2, min(-(-2 * l2_bytes // touched) + 1, MOST_SETS))
        one = touched + (outputs if job.residual else 0) + 16 * BAND_BYTES
        total = (count + 1) * one + outputs + 8 * (a + b + 2 * out)
        return cls(count, count * touched <= 2 * l2_bytes, total)

    def demand(self, job: MatmulJob, free: int) -> None:
        """Refuse a job that does not fit beside the scratch memory that its genomes may use.

        Raises:
            InputError: The message says the need and what there is.
        """
        need = self.total_bytes + job.workspace_bytes
        if need > free:
            raise InputError(
                f"the problem M={job.m} N={job.n} K={job.k} needs "
                f"{need / 2**30:.1f} GiB of device memory, {free / 2**30:.1f} are free"
            )


class Arena:
    """All device memory of one job.

    Args:
        cupy: The module.
        kernels: For filling.
        stream: All work goes there.
        job: Whose tensors.
        l2_bytes: The device's cache: sets rotate over more than twice as much.

    """

    def __init__(self, cupy: Any, kernels: Kernels, stream: Any, job: MatmulJob, l2_bytes: int):
        self.job = job
        self._cp, self._kernels, self._stream = cupy, kernels, stream
        self.needs = Needs.of(job, l2_bytes)
        self.count, self.swept = self.needs.count, self.needs.swept
        self._bands: list[int] = []
        self.sets = [self._set() for _ in range(self.count)]
        self.canary = self._set()
        self.bands = cupy.array(self._bands, dtype=cupy.uint64)
        self.scratch = cupy.cuda.alloc(_counts(job)[2] * dtype_bytes(job.out_dtype))
        self.reference = cupy.empty(self._out_shape(), dtype=cupy.float64)
        self.canary_reference = cupy.empty(self._out_shape(), dtype=cupy.float64)
        self._extent = cupy.zeros(2, dtype=cupy.float64)
        self.bias = cupy.cuda.alloc(max(job.n * dtype_bytes(job.out_dtype), 16))
        self.scales = cupy.ones(2 * _SCALE_STRIDE, dtype=cupy.float32)
        self.product_scale = self._scale()

    def _out_shape(self) -> tuple[int, int, int]:
        return self.job.batch, self.job.m, self.job.n

    # Making

    def _set(self) -> BufferSet:
        a, b, out = _counts(self.job)
        job = self.job
        wanted = [(a, job.dtype), (b, job.dtype), (out, job.out_dtype)]
        wanted += [(out, job.out_dtype)] * job.residual
        sizes = [count * dtype_bytes(dtype) for count, dtype in wanted]
        spans = [BAND_BYTES + -(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes]
        block = self._cp.cuda.alloc(sum(spans) + len(spans) * BAND_BYTES + _ALIGNMENT)
        start = int(block.ptr) + (-int(block.ptr)) % _ALIGNMENT
        tensors: list[Tensor] = []
        bands: list[int] = []
        for (count, dtype), size, span in zip(wanted, sizes, spans, strict=True):
            bands.append(start)
            tensors.append(Tensor(start + BAND_BYTES, count, size, dtype))
            bands.append(start + BAND_BYTES + size)
            start += span + BAND_BYTES
        self.mend(bands)
        self._bands += bands
        residual = tensors[3] if len(tensors) > 3 else None
        return BufferSet(block=block, a=tensors[0], b=tensors[1], out=tensors[2], residual=residual)

    def mend(self, bands: list[int] | None = None) -> None:
        """Write guard bands (all of them if not named) as they should be."""
        for address in self._bands if bands is None else bands:
            self._cp.cuda.runtime.memsetAsync(address, BAND_BYTE, BAND_BYTES, self._stream.ptr)

    def _scale(self) -> float:
        """Set the factors' scales: powers of two, so that exact sums stay exact."""
        if not self.job.scaled:
            return 1.0
        scale_a, scale_b = 0.5, 2.0 ** (1 - round(math.log2(math.sqrt(self.job.k))))
        held = np.ones(2 * _SCALE_STRIDE, dtype=np.float32)
        held[0], held[_SCALE_STRIDE] = scale_a, scale_b
        self.scales.set(held)
        return scale_a * scale_b

    @property
    def scale_addresses(self) -> tuple[int, int]:
        """Addresses of A's and B's scale."""
        base = int(self.scales.data.ptr)
        return base, base + 4 * _SCALE_STRIDE

    # Filling

    def fill_bias(self, seed: int) -> None:
        """Draw the bias, which all sets share: zeros and ones, so that exact sums stay exact."""
        if self.job.bias:
            size = self.job.n * dtype_bytes(self.job.out_dtype)
            bias = Tensor(int(self.bias.ptr), self.job.n, size, self.job.out_dtype)
            self._kernels.fill(bias, seed=seed, how=ZERO_ONE, scale=0.5)

    def fill(self, buffers: BufferSet, seed: int, filling: Filling = PLAIN) -> None:
        """Draw a set's inputs anew. B is scaled so that the product has a spread of about 1."""
        b_scale = 1.0 if self.job.scaled else 1.0 / math.sqrt(self.job.k)
        put = self._kernels.fill
        a, b, rest = buffers.a, buffers.b, buffers.residual
        put(a, seed=3 * seed, how=filling.how, scale=filling.factor)
        put(b, seed=3 * seed + 1, how=filling.how, scale=b_scale)
        if rest is not None:
            put(rest, seed=3 * seed + 2, scale=abs(filling.factor))

    def fill_exact(self, buffers: BufferSet, seed: int, *, ones: bool = False) -> None:
        """Fill with zeros and ones, dense along the last places of k: every sum is exact."""
        job, put = self.job, self._kernels.fill
        how = CONSTANT if ones else ZERO_ONE
        chance = 1.0 if ones else min(0.5, math.sqrt(_CANARY_ONES / job.k))
        tail = min(CANARY_TAIL, job.k)
        a, b, rest = buffers.a, buffers.b, buffers.residual
        for tensor, stride, salt in (
            (a, job.m if job.transpose_a else 1, 0),
            (b, 1 if job.transpose_b else job.n, 1),
        ):
            put(
                tensor,
                seed=3 * seed + salt,
                how=how,
                scale=chance,
                k_stride=stride,
                k_extent=job.k,
                tail=tail,
            )
        if rest is not None:
            # Beside all ones the residual is zero: K may need all the bits that the type has.
            put(rest, seed=3 * seed + 2, how=how, scale=0.0 if ones else 0.5)

    # References

    def refer(self, buffers: BufferSet, into: Any, *, exact: bool = False) -> float:
        """Compute a set's reference in float64 and return its root mean square.

        Args:
            buffers: The filled set.
            into: Shape (batch, m, n), float64.
            exact: Round it to the output's type: what exact sums must give.
        """
        cp, job = self._cp, self.job
        with self._stream:
            left = self._wide(buffers.a, (job.batch, job.m, job.k), job.transpose_a)
            right = self._wide(buffers.b, (job.batch, job.k, job.n), job.transpose_b)
            for i in range(job.batch):
                cp.dot(left[i], right[i], out=into[i])
        self._finish(buffers, into)
        if exact:
            self._kernels.rounded(int(into.data.ptr), into.size, job.out_dtype)
            return 1.0
        self._extent.data.memset_async(0, 16, self._stream)
        self._kernels.extent(int(into.data.ptr), into.size, int(self._extent.data.ptr))
        squares = float(self._extent.get(stream=self._stream)[0])
        return math.sqrt(squares / into.size)

    def _wide(self, tensor: Tensor, shape: tuple[int, int, int], transposed: bool) -> Any:
        batch, rows, columns = shape
        stored = (batch, columns, rows) if transposed else shape
        wide = self._cp.empty(stored, dtype=self._cp.float64)
        self._kernels.widen(tensor, int(wide.data.ptr))
        return wide.transpose(0, 2, 1) if transposed else wide

    def _finish(self, buffers: BufferSet, into: Any) -> None:
        job = self.job
        self._kernels.finish(
            int(into.data.ptr),
            into.size,
            job.n,
            job.out_dtype,
            residual=0 if buffers.residual is None else buffers.residual.address,
            bias=int(self.bias.ptr) if job.bias else 0,
            scale=self.product_scale,
            activation=job.activation,
        )

    # Before and after a run

    def prepare(self, buffers: BufferSet, aliased: bool) -> None:
        """Make a set ready for a checked run: the residual in place, or poison (NaN)."""
        runtime, out = self._cp.cuda.runtime, buffers.out
        if aliased and buffers.residual is not None:
            runtime.memcpyAsync(
                out.address, buffers.residual.address, out.nbytes, 3, self._stream.ptr
            )
        else:
            runtime.memsetAsync(out.address, 0xFF, out.nbytes, self._stream.ptr)

    def keep(self, buffers: BufferSet) -> None:
        """Copy a set's output aside, for the comparison of two runs."""
        self._cp.cuda.runtime.memcpyAsync(
            int(self.scratch.ptr), buffers.out.address, buffers.out.nbytes, 3, self._stream.ptr
        )
