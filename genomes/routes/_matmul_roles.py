"""Who is who in a matrix product: the tensors and axes of an operator in a library's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelarc.genomes._operators import Operator, Workload
from kernelarc.genomes.routes._recognise import ReadProduct, read_product


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulRoles:
    """Which tensor of an operator is what in a matrix product, and which axes are M, N and K.

    Attributes:
        a: Name of the first factor.
        b: Name of the second.
        residual: Name of what is added in the output's shape, or None.
        bias: Name of the vector that is added to every row, or None.
        m: Names of the axes that are the product's rows, and so on.
        transpose_a: As in ``MatmulJob``.
    """

    a: str
    b: str
    residual: str | None
    bias: str | None
    m: tuple[str, ...]
    n: tuple[str, ...]
    k: tuple[str, ...]
    batch: tuple[str, ...]
    transpose_a: bool
    transpose_b: bool


def matmul_roles(operator: Operator, workload: Workload) -> MatmulRoles | None:
    """Return who is who in an operator that is a matrix product, or None where it is none.

    Where the reference can be read, it says so, and two axes may have one name (a square weight).
    Otherwise the axes do: the factors are the first two inputs that take part.
    """
    read = read_product(operator)
    return _roles_by_axes(operator, workload) if read is None else _roles_read(operator, read)


def _roles_read(operator: Operator, read: ReadProduct) -> MatmulRoles | None:
    shapes = {spec.name: spec.shape for spec in operator.inputs}
    (left, flipped), (right, transposed) = read.left, read.right
    a, b, out = shapes[left], shapes[right], operator.outputs[0].shape
    if a is None or b is None or out is None:
        return None
    batch, n = b[:-2], b[-2] if transposed else b[-1]
    rows = (a[-1],) if flipped else a[len(batch) : -1]
    if a[: len(batch)] != batch or out != (*batch, *rows, n) or len(a) < len(batch) + 2:
        return None
    extra = _extras({name: shapes[name] for name in read.added}, out, n)
    if extra is None:
        return None
    return MatmulRoles(
        a=left,
        b=right,
        residual=extra[0],
        bias=extra[1],
        m=rows,
        n=(n,),
        k=(a[-2] if flipped else a[-1],),
        batch=batch,
        transpose_a=flipped,
        transpose_b=transposed,
    )


def _roles_by_axes(operator: Operator, workload: Workload) -> MatmulRoles | None:
    present = [t for t in operator.inputs if not t.optional or workload.options.get(t.name)]
    if len(present) < 2:
        return None
    first, second, *rest = present
    a, b, out = first.shape, second.shape, operator.outputs[0].shape
    if a is None or b is None or out is None or len(out) < 2 or len(b) < 2:
        return None
    contracted = [axis for axis in a if axis in b and axis not in out]
    if len(contracted) != 1 or a.count(contracted[0]) != 1:
        return None
    k, n, batch = contracted[0], out[-1], b[:-2]
    rows = out[len(batch) : -1]
    shapes_fit = (
        out[: len(batch)] == batch
        and a in {(*batch, *rows, k), (*batch, k, *rows)}
        and b in {(*batch, k, n), (*batch, n, k)}
    )
    extra = _extras({spec.name: spec.shape for spec in rest}, out, n)
    if not shapes_fit or extra is None:
        return None
    return MatmulRoles(
        a=first.name,
        b=second.name,
        residual=extra[0],
        bias=extra[1],
        m=rows,
        n=(n,),
        k=(k,),
        batch=batch,
        transpose_a=a[-1] != k,
        transpose_b=b[-1] == k,
    )


def _extras(
    rest: Mapping[str, tuple[str, ...] | None], out: tuple[str, ...], n: str
) -> tuple[str | None, str | None] | None:
    """Return the names of residual and bias; None where there is anything else."""
    residual = [name for name, shape in rest.items() if shape == out]
    bias = [name for name, shape in rest.items() if shape == (n,) and shape != out]
    if len(residual) > 1 or len(bias) > 1 or len(residual) + len(bias) != len(rest):
        return None
    return next(iter(residual), None), next(iter(bias), None)
