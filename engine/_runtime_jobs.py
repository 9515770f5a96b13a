"""From the arrays of a call to the job that they are, read from shapes, strides and types."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from kernelarc.bench.cuda import Side
from kernelarc.engine._runtime_arrays import Kind, Layout
from kernelarc.genomes import InputError, MatmulJob

ACTIVATIONS = ("none", "relu", "gelu")


@dataclass(frozen=True, slots=True)
class Call:
    """One call as the user made it, arrays of one kind."""

    activation: str
    a: Any
    b: Any
    out: Any
    residual: Any
    bias: Any
    scale_a: Any
    scale_b: Any


def job_of(
    kind: Kind,
    call: Call,
    *,
    tf32: bool,
    fast_accum: bool,
    workspace_bytes: int,
    known: Callable[[MatmulJob], bool],
) -> tuple[MatmulJob, tuple[int, ...]]:
    """Read the job out of a call's arrays; also the output's shape.

    Raises:
        InputError: They do not fit together.
    """
    if call.activation not in ACTIVATIONS:
        raise InputError(f"activation is none, relu or gelu, not {call.activation!r}")
    a, b = kind.layout(call.a), kind.layout(call.b)
    batch, m, k, n = _extents(a, b)
    out_dtype = "bfloat16" if a.dtype.startswith("float8") else a.dtype
    shape = (*a.shape[:-1], n)
    _demand_outputs(kind, call, shape, out_dtype, n)
    job = MatmulJob(
        m=m,
        n=n,
        k=k,
        batch=batch,
        dtype=a.dtype,
        out_dtype=out_dtype,
        residual=call.residual is not None,
        in_place=call.residual is not None and call.residual is call.out,
        bias=call.bias is not None,
        activation=call.activation,
        tf32=tf32 and a.dtype == "float32",
        fast_accum=fast_accum and a.dtype.startswith("float8"),
        workspace_bytes=workspace_bytes,
    )
    return _laid_out(job, a, b, known), shape


def _extents(a: Layout, b: Layout) -> tuple[int, int, int, int]:
    """Return batch, m, k, n."""
    if len(a.shape) < 2 or len(b.shape) not in {2, 3}:
        raise InputError(f"shapes {a.shape} and {b.shape} are no matrices")
    if a.dtype != b.dtype or a.device != b.device:
        raise InputError(f"factors must have one type and device, not {a.dtype} and {b.dtype}")
    k, n = b.shape[-2:]
    if a.shape[-1] != k:
        raise InputError(f"shapes {a.shape} and {b.shape} do not fit: {a.shape[-1]} is not {k}")
    if min(*a.shape, *b.shape) < 1:
        raise InputError(f"shapes {a.shape} and {b.shape}: nothing to multiply")
    if len(b.shape) == 3:
        if len(a.shape) != 3 or a.shape[0] != b.shape[0]:
            raise InputError(f"shapes {a.shape} and {b.shape} do not fit: batches differ")
        return b.shape[0], a.shape[1], k, n
    return 1, math.prod(a.shape[:-1]), k, n


def _demand_outputs(kind: Kind, call: Call, shape: tuple[int, ...], dtype: str, n: int) -> None:
    wanted = {
        "out": (call.out, shape),
        "residual": (call.residual, shape),
        "bias": (call.bias, (n,)),
    }
    for name, (array, needed) in wanted.items():
        if array is None:
            continue
        layout = kind.layout(array)
        if layout.shape != needed or layout.dtype != dtype:
            raise InputError(
                f"{name} must have shape {needed} and type {dtype}, "
                f"not {layout.shape} and {layout.dtype}"
            )
        flat = replace(layout, shape=(1, *layout.shape), strides=(0, *layout.strides))
        if not flat.packed(transposed=False):
            raise InputError(f"{name} must lie without gaps, row after row")


def _laid_out(
    job: MatmulJob, a: Layout, b: Layout, known: Callable[[MatmulJob], bool]
) -> MatmulJob:
    """Add which factors lie transposed; where both readings hold, the one that the table knows."""
    flat = job.batch == 1 and len(a.shape) > 2
    ways = [
        replace(job, transpose_a=across_a, transpose_b=across_b)
        for across_a in ((False,) if flat else (False, True))
        for across_b in (True, False)
        if a.packed(transposed=across_a) and b.packed(transposed=across_b)
    ]
    if not ways:
        raise InputError(
            f"factors must lie without gaps, or be such a matrix transposed: strides are "
            f"{a.strides} of shape {a.shape} and {b.strides} of shape {b.shape}"
        )
    return next((way for way in ways if known(way)), ways[0])


def side_of(kind: Kind, call: Call, job: MatmulJob) -> Side | None:
    if job.scaled and (call.scale_a is None or call.scale_b is None):
        raise InputError("8-bit factors need scale_a and scale_b: one float32 each, on the GPU")
    if not job.scaled and not job.bias:
        return None
    addresses = {
        name: 0 if array is None else kind.address(array)
        for name, array in (
            ("bias", call.bias),
            ("scale_a", call.scale_a),
            ("scale_b", call.scale_b),
        )
    }
    return Side(**addresses)
