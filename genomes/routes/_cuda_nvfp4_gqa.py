"""The route ``cuda`` of grouped-query attention over 4-bit floats, weights returned too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from kernelarc.genomes._axes import axis_values
from kernelarc.genomes._errors import InputError
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Operator, TensorSpec, Workload
from kernelarc.genomes._records import Proposal
from kernelarc.genomes._space import Space
from kernelarc.genomes.kernels import (
    Argument,
    DeviceLimits,
    KernelRoute,
    Launch,
    LaunchAttributes,
    ScalarArgument,
    TensorArgument,
    TensorMap,
)
from kernelarc.genomes.routes._cuda_nvfp4_space import (
    NATIVE_ROWS,
    Nvfp4Sizes,
    Way,
    nvfp4_constraints,
    nvfp4_genes,
    nvfp4_starts,
)
from kernelarc.genomes.routes._cuda_route import CudaRoute, Prepared, started, whole_gene
from kernelarc.genomes.routes._cuda_source import cuda_source, genome_macros
from kernelarc.genomes.routes._products import products_source

_CODES, _SCALES = "float4_e2m1fn_x2", "float8_e4m3fn"
_SYMBOLS: Mapping[Way, str] = {
    "whole": "nvfp4_gqa", "tiled": "nvfp4_tiled", "native": "nvfp4_native",
}  # fmt: skip
_ROWS = 64  # of a warpgroup's tile
_BYTES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantised:
    """Names of a quantised tensor's parts: two codes a byte, a scale for 16, one for all."""

    codes: str
    scales: str
    whole: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvfp4Roles:
    """Which tensor does what.

    Attributes:
        q: Queries.
        k: Keys.
        v: Values.
        out: Name of the mixed values.
        weights: Name of the softmax.
    """

    q: Quantised
    k: Quantised
    v: Quantised
    out: str
    weights: str


def nvfp4_roles(operator: Operator) -> Nvfp4Roles | None:
    """Read the roles out of an operator that is attention over 4-bit floats.

    Three tensors of codes (batch, heads, length, head / 2), three of scales (..., head / 16) and
    three 0-D scales, each in the order queries, keys, values; two bfloat16 outputs, the second
    with the length as its last axis.
    """
    codes = _of(operator.inputs, _CODES, 4)
    scales = _of(operator.inputs, _SCALES, 4)
    wholes = _of(operator.inputs, "float32", 0)
    outputs = _of(operator.outputs, "bfloat16", 4)
    counts = (len(codes), len(scales), len(wholes), len(outputs), len(operator.inputs))
    if operator.op_type != "attention" or counts != (3, 3, 3, 2, 9):
        return None
    q, k, v = (t.shape or () for t in codes)
    out, weights = (t.shape or () for t in outputs)
    fits = k == v and q[0] == k[0] and q[2] == k[2] and out[:3] == q[:3]
    if not fits or weights != (*q[:3], k[2]):
        return None
    if any(
        a.shape is None or a.shape[:3] != (b.shape or ())[:3]
        for a, b in zip(scales, codes, strict=True)
    ):
        return None
    parts = [
        Quantised(codes=a.name, scales=b.name, whole=c.name)
        for a, b, c in zip(codes, scales, wholes, strict=True)
    ]
    return Nvfp4Roles(
        q=parts[0], k=parts[1], v=parts[2], out=outputs[0].name, weights=outputs[1].name
    )


def _of(tensors: tuple[TensorSpec, ...], dtype: str, rank: int) -> list[TensorSpec]:
    return [t for t in tensors if t.dtype == dtype and t.shape is not None and len(t.shape) == rank]


def cuda_nvfp4_gqa_route(operator: Operator) -> KernelRoute | None:
    """Return the route for attention over 4-bit floats, or None."""
    return None if nvfp4_roles(operator) is None else CudaNvfp4GqaRoute(operator)


class CudaNvfp4GqaRoute(CudaRoute):
    """Attention over 4-bit floats; factors are dequantised inside the kernel.

    Where the device multiplies 4-bit codes itself (``products`` at ``fp4``), the scores are such
    products; values, whose scales run across the keys, are dequantised there too.

    Args:
        operator: One that ``nvfp4_roles`` recognises.
    """

    files = tuple(f"{name}.cu" for name in _SYMBOLS.values())

    def __init__(self, operator: Operator) -> None:
        super().__init__(operator)
        roles = nvfp4_roles(operator)
        if roles is None:
            raise InputError(f"operator {operator.name!r} is no attention over 4-bit floats")
        self.roles = roles

    def unsuited(self, workload: Workload) -> str | None:
        """Say which size the kernels are not made for, or None."""
        return self._sizes(workload).unsuited()

    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return the genomes whose tiles and sums fit the device."""
        sizes = self._sizes(workload)
        genes = nvfp4_genes(sizes, device)
        names = tuple(gene.name for gene in genes)
        return Space(self.name, genes, nvfp4_constraints(sizes, device, names))

    def seeds(self, workload: Workload, device: DeviceLimits) -> tuple[Proposal, ...]:
        """Return genomes that fill the device's multiprocessors."""
        return started(self.space(workload, device), nvfp4_starts(self._sizes(workload), device))

    def prepared(self, workload: Workload, genome: Genome, arch: str) -> Prepared:
        """Return the kernel for one genome; all sizes are compiled in."""
        sizes = self._sizes(workload)
        way = sizes.way(genome)
        macros = {"HEAD": sizes.head, "GROUP": sizes.group, "LENGTH": sizes.length}
        tile = sizes.keys if way == "whole" else whole_gene(genome, "tile_kv")
        generated = {"products.cuh": products_source(tile, sizes.head, dtype="bfloat16")}
        threads, shared = _block(sizes, way, genome)
        launch = Launch(
            binary="",
            symbol=_SYMBOLS[way],
            grid=(sizes.batch * sizes.kv_heads * whole_gene(genome, "parts"), 1, 1),
            block=(threads, 1, 1),
            shared_bytes=shared,
            arguments=self._arguments(sizes, genome),
            attributes=LaunchAttributes(overlap=bool(genome["pdl"])),
        )
        return Prepared(
            source=cuda_source(f"{_SYMBOLS[way]}.cu", generated),
            macros=genome_macros(genome, {**macros, "TILE_KV": tile}),
            steps=(launch,),
        )

    def _sizes(self, workload: Workload) -> Nvfp4Sizes:
        axes = axis_values(self.operator, workload)
        shapes = {t.name: t.shape or () for t in (*self.operator.inputs, *self.operator.outputs)}

        def extents(name: str) -> list[int]:
            return [int(axis) if axis.isdigit() else axes[axis] for axis in shapes[name]]

        batch, q_heads, length, head = extents(self.roles.out)
        return Nvfp4Sizes(
            batch=batch,
            q_heads=q_heads,
            kv_heads=extents(self.roles.k.codes)[1],
            length=length,
            head=head,
        )

    def _arguments(self, sizes: Nvfp4Sizes, genome: Genome) -> tuple[Argument, ...]:
        roles = self.roles
        box = NATIVE_ROWS if sizes.way(genome) == "native" else _ROWS
        out = _planes(roles.out, sizes, sizes.head, box)
        engine = genome["store"] == "engine"
        weights = _planes(roles.weights, sizes, sizes.length, box) if engine else out
        parts = [name for t in (roles.q, roles.k, roles.v) for name in (t.codes, t.scales, t.whole)]
        names = (*parts, roles.out, roles.weights)
        factor = ScalarArgument(sizes.head**-0.5, "f32")
        return (out, weights, *(TensorArgument(name) for name in names), factor)


def _block(sizes: Nvfp4Sizes, way: Way, genome: Genome) -> tuple[int, int]:
    """Return a block's threads and its bytes of shared memory."""
    number = partial(whole_gene, genome)
    if way == "native":
        return NATIVE_ROWS, sizes.native_bytes(number("tile_kv"))
    warpgroups = number("warpgroups")
    if way == "tiled":
        shared = sizes.tiled_bytes(number("tile_kv"), number("stages"), warpgroups)
    else:
        shared = sizes.whole_bytes((1 + number("spare")) * warpgroups)
    return 128 * warpgroups, shared


def _planes(name: str, sizes: Nvfp4Sizes, width: int, rows: int) -> TensorMap:
    """Describe an output as planes of the rows that share keys, in boxes of rows x 64 elements."""
    return TensorMap(
        source=TensorArgument(name),
        dtype="bfloat16",
        extents=(width, sizes.rows, sizes.batch * sizes.kv_heads),
        strides=(width * _BYTES, sizes.rows * width * _BYTES),
        box=(64, rows, 1),
        swizzle=128,
    )
