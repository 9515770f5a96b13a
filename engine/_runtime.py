"""Matrix products by an exported table: what a campaign found, in a program's own calls.

A call is looked up by its shapes, types, layouts and aliasing; what was looked up is kept, so that
a second call of the same kind only launches. See ``kernelarc.runtime``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelarc.bench.cuda import Algorithm, Matmul, Side, demand_parts, load_lt
from kernelarc.engine._runtime_arrays import (
    Addresses,
    CupyKind,
    Facts,
    Kind,
    TorchKind,
    as_cupy,
    one_library,
)
from kernelarc.engine._runtime_jobs import Call, job_of, side_of
from kernelarc.engine._runtime_table import Entry, TableFile, read_table
from kernelarc.genomes import InputError, MatmulJob, MissingPartError

_ALIGNMENT = 256
_Launch = Callable[[int, int, int, int, int, int], None]


class TableWarning(UserWarning):
    """A table's entries cannot be used as they are: the library's own heuristic runs instead."""


@dataclass(slots=True)
class _Plan:
    """What a kind of call comes to.

    Attributes:
        launch: Takes addresses of A, B, residual (or output), output, scratch; and the stream.
        scratch_bytes: What the algorithm needs.
        facts: What the arrays must be like.
        dtype: Of the output, a schema dtype name.
        source: In words, where the algorithm came from.
        matmul: Whose description holds the addresses of bias and scales.
        side: Those addresses; None where there are none.
    """

    launch: _Launch
    scratch_bytes: int
    facts: Facts
    dtype: str
    source: str
    matmul: Matmul
    side: Side | None


class Table:
    """An exported table, ready to multiply. Made by ``load``.

    One table may be used from one thread at a time. Arrays must lie on the current device.

    Args:
        file: What was read.
    """

    def __init__(self, file: TableFile) -> None:
        self._file = file
        first = next(iter(file.entries.values())).job
        self._tf32, self._fast_accum = first.tf32, first.fast_accum
        self._lt: Any = None
        self._handles: dict[int, int] = {}
        self._cupy_kind: CupyKind | None = None
        self._kinds: dict[type, Kind] = {}
        self._plans: dict[Hashable, _Plan] = {}
        self._recent: dict[Hashable, _Plan] = {}
        self._scratch: dict[tuple[int, int], tuple[Any, int]] = {}
        self._warned = False

    @property
    def version(self) -> int:
        """The version of cuBLASLt that the table was tuned for."""
        return self._file.version

    def __len__(self) -> int:
        return len(self._file.entries)

    def matmul(
        self,
        a: Any,
        b: Any,
        *,
        out: Any = None,
        residual: Any = None,
        bias: Any = None,
        activation: str = "none",
        scale_a: Any = None,
        scale_b: Any = None,
    ) -> Any:
        """Return ``activation(a @ b + residual + bias)`` on the stream that is current.

        Args:
            a: Shape (..., m, k), on a GPU. The last two axes of a factor may be exchanged by a
                view, so a weight stored as (n, k) is given as ``weight.T``; no other gaps.
            b: Shape (k, n), or (batch, k, n).
            out: Shape (..., m, n), where the result goes; made if None.
            residual: Shape of ``out``; the same array as ``out`` is added in place.
            bias: Shape (n,).
            activation: ``"none"``, ``"relu"`` or ``"gelu"``.
            scale_a: For 8-bit factors: one float32 on the GPU.
            scale_b: As ``scale_a``.

        Raises:
            InputError: Shapes, types or layouts do not fit, or the library has no way.
            MissingPartError: CuPy or nvmath is not installed, or there is no GPU.
        """
        kind = self._kinds.get(type(a)) or self._kind(a)
        if kind is None:
            kind, a, b, out, residual, bias, scale_a, scale_b = self._wrapped(
                (a, b, out, residual, bias, scale_a, scale_b)
            )
        plan: _Plan | None = None
        addresses: Addresses | None = None
        try:
            quick = (a.shape, b.shape, residual is None, residual is out, bias is None, activation)
            plan = self._recent.get(quick)
            if plan is not None and out is not None and bias is None:
                addresses = kind.match(plan.facts, a, b, out, residual)
        except AttributeError:
            raise one_library(a, b, out, residual) from None
        if plan is None or addresses is None:
            call = Call(activation, a, b, out, residual, bias, scale_a, scale_b)
            plan = self._recent[quick] = self._planned(kind, call)
            out = kind.empty(a, plan.facts.shape, plan.dtype) if out is None else out
            addresses = kind.match(plan.facts, a, b, out, residual)
            assert addresses is not None
        if plan.side is not None:
            self._point(plan, kind, bias, scale_a, scale_b)
        stream = kind.stream(plan.facts.device)
        scratch = self._scratch_for(plan, stream) if plan.scratch_bytes else 0
        first, second, added, target = addresses
        plan.launch(first, second, added, target, scratch, stream)
        return out

    def _planned(self, kind: Kind, call: Call) -> _Plan:
        """Return the plan of a call, looked up by all that it depends on, or made."""
        key_of = kind.key
        arrays = (call.a, call.b, call.out, call.residual, call.bias)
        try:
            keys = [key_of(call.a), key_of(call.b)]
            keys += [None if array is None else key_of(array) for array in arrays[2:]]
        except AttributeError:
            raise one_library(*arrays) from None
        key = (*keys, call.residual is call.out, call.activation)
        if key not in self._plans:
            self._plans[key] = self._plan(kind, call)
        return self._plans[key]

    def source(
        self,
        a: Any,
        b: Any,
        *,
        out: Any = None,
        residual: Any = None,
        bias: Any = None,
        activation: str = "none",
        scale_a: Any = None,
        scale_b: Any = None,
    ) -> str:
        """Say in words where the algorithm of such a call comes from; launches nothing.

        Arguments and errors as for ``matmul``.
        """
        arrays: tuple[Any, ...] = (a, b, out, residual, bias, scale_a, scale_b)
        kind = self._kinds.get(type(a)) or self._kind(a)
        if kind is None:
            kind, *wrapped = self._wrapped(arrays)
            arrays = tuple(wrapped)
        return self._planned(kind, Call(activation, *arrays)).source

    # Kinds of arrays

    def _kind(self, array: Any) -> Kind | None:
        """Return the kind of an array, and remember it; None where it has to be wrapped."""
        if self._cupy_kind is None:
            demand_parts()
            self._cupy_kind = CupyKind()
            self._kinds[self._cupy_kind.cupy.ndarray] = self._cupy_kind
        found = type(array)
        if found not in self._kinds and _is_torch(found):
            known = [kind for kind in self._kinds.values() if isinstance(kind, TorchKind)]
            self._kinds[found] = known[0] if known else TorchKind()
        return self._kinds.get(found)

    def _wrapped(self, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        """Wrap foreign arrays; what was one array stays one, so that aliasing is seen."""
        assert self._cupy_kind is not None
        if arrays[0] is None or arrays[1] is None:
            raise one_library(*arrays)
        views: dict[int, Any] = {}
        for array in arrays:
            if array is not None and id(array) not in views:
                views[id(array)] = as_cupy(array)
        return self._cupy_kind, *(None if x is None else views[id(x)] for x in arrays)

    # Plans

    def _plan(self, kind: Kind, call: Call) -> _Plan:
        job, shape = job_of(
            kind, call, tf32=self._tf32, fast_accum=self._fast_accum,
            workspace_bytes=self._file.workspace_bytes, known=self._known,
        )  # fmt: skip
        side = side_of(kind, call, job)
        device = kind.layout(call.a).device
        lt, handle = self._library(device)
        matmul = Matmul(lt, handle, job, side or Side())
        algorithm, source = self._algorithm(matmul, job)
        out = kind.empty(call.a, shape, job.out_dtype) if call.out is None else call.out
        return _Plan(
            launch=matmul.launcher(algorithm, algorithm.workspace_bytes),
            scratch_bytes=algorithm.workspace_bytes,
            facts=kind.facts(call.a, call.b, out),
            dtype=job.out_dtype,
            source=source,
            matmul=matmul,
            side=side,
        )

    def _known(self, job: MatmulJob) -> bool:
        return self._file.find(job) is not None

    def _library(self, device: int) -> tuple[Any, int]:
        assert self._cupy_kind is not None
        runtime = self._cupy_kind.cupy.cuda.runtime
        if (current := int(runtime.getDevice())) != device:
            raise InputError(f"the arrays lie on GPU {device}, but the current device is {current}")
        if self._lt is None:
            self._lt = load_lt()
        if device not in self._handles:
            try:
                self._handles[device] = int(self._lt.create())
            except Exception as error:
                line = str(error).splitlines()[0]
                raise MissingPartError(f"cuBLASLt cannot be used on this GPU: {line}") from None
        return self._lt, self._handles[device]

    def _algorithm(self, matmul: Matmul, job: MatmulJob) -> tuple[Algorithm, str]:
        """Return the entry's algorithm where it can be used, else the library's first heuristic."""
        entry = self._file.find(job)
        why = "no entry" if entry is None else f"entry {entry.label}: {entry.why}"
        if entry is not None and entry.row is not None:
            found = self._from_entry(matmul, entry, entry.row)
            if isinstance(found, Algorithm):
                return found, f"entry {entry.label}"
            why = found
            self._warn(why)
        for row in matmul.heuristics(self._file.workspace_bytes):
            algorithm = matmul.algorithm(row)
            if algorithm is not None:
                return algorithm, f"heuristic ({why})"
        raise InputError(
            f"cuBLASLt has no way for {job.dtype} {job.layout} M={job.m} N={job.n} K={job.k}"
        )

    def _from_entry(self, matmul: Matmul, entry: Entry, row: tuple[int, ...]) -> Algorithm | str:
        """Return the entry's algorithm, or why it cannot be used."""
        version = int(matmul.lt.get_version())
        if version != self._file.version:
            return f"tuned for cuBLASLt {self._file.version}, but {version} is loaded"
        algorithm = matmul.algorithm(row)
        if algorithm is None:
            return f"cuBLASLt refuses the algorithm of entry {entry.label}"
        if algorithm.blob.tobytes() != entry.blob:
            return f"attributes and blob of entry {entry.label} are not one algorithm"
        return algorithm

    def _warn(self, what: str) -> None:
        """Say once for this table what is wrong with it, at the line that called it."""
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{self._file.path}: {what}: the library's first heuristic runs instead",
                TableWarning,
                stacklevel=6,  # the same from matmul and from source
            )

    # What belongs to a call

    def _point(self, plan: _Plan, kind: Kind, bias: Any, scale_a: Any, scale_b: Any) -> None:
        side = Side(
            bias=0 if bias is None else kind.address(bias),
            scale_a=0 if scale_a is None else kind.address(scale_a),
            scale_b=0 if scale_b is None else kind.address(scale_b),
        )
        if side != plan.side:
            plan.matmul.point(side)
            plan.side = side

    def _scratch_for(self, plan: _Plan, stream: int) -> int:
        """Return scratch memory of a stream: two streams never share any."""
        held = self._scratch.get((plan.facts.device, stream))
        if held is None:
            assert self._cupy_kind is not None
            size = max(self._file.workspace_bytes, plan.scratch_bytes) + _ALIGNMENT
            memory = self._cupy_kind.cupy.cuda.alloc(size)
            start = int(memory.ptr)
            held = self._scratch[plan.facts.device, stream] = memory, start + (-start) % _ALIGNMENT
        return held[1]


def _is_torch(kind: type) -> bool:
    """Tell whether these are torch tensors: parameters and other subclasses included."""
    return any(
        base.__name__ == "Tensor" and base.__module__.partition(".")[0] == "torch"
        for base in kind.__mro__
    )


def load(path: str | Path) -> Table:
    """Read a table that ``kernelarc export --format cublaslt`` wrote.

    Needs no GPU: the library is loaded with the first product.

    Raises:
        InputError: The file is missing, truncated, or says what no library can take.
    """
    return Table(read_table(Path(path)))
