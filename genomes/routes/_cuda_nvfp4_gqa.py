"""The route ``cuda`` of grouped-query attention over 4-bit floats, weights returned too."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._axes import axis_values
from kernelarc.genomes._constraints import Constraint, ExpressionConstraint
from kernelarc.genomes._errors import InputError
from kernelarc.genomes._gene import Gene
from kernelarc.genomes._genes import Boolean, Choice
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Operator, TensorSpec, Workload
from kernelarc.genomes._records import Proposal
from kernelarc.genomes._space import Space
from kernelarc.genomes._strategies import Strategy
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
from kernelarc.genomes.routes._cuda_route import (
    ALIGNMENT_BYTES,
    CudaRoute,
    Prepared,
    products_gene,
    register_genes,
    started,
    successor_gene,
    whole_gene,
)
from kernelarc.genomes.routes._cuda_source import cuda_source, genome_macros
from kernelarc.genomes.routes._products import products_source

FILE, SYMBOL = "nvfp4_gqa.cu", "nvfp4_gqa"
_CODES, _SCALES = "float4_e2m1fn_x2", "float8_e4m3fn"
_ROWS = 64  # of a warpgroup's tile
_BYTES = 2
_MOST_KEYS = 256  # all scores of a row stay in registers
_BLOCK = 16  # codes to a scale


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Sizes of one workload."""

    batch: int
    q_heads: int
    kv_heads: int
    length: int
    head: int

    @property
    def group(self) -> int:
        """Query heads to a key-value head."""
        return self.q_heads // self.kv_heads

    @property
    def rows(self) -> int:
        """Rows that share keys and values."""
        return self.group * self.length

    @property
    def keys(self) -> int:
        """The length, rounded up to what products take."""
        return -(-self.length // 16) * 16

    def unsuited(self) -> str | None:
        """Say which size the kernel is not made for, or None."""
        if self.q_heads % self.kv_heads:
            return f"{self.q_heads} query heads do not share {self.kv_heads} key-value heads evenly"
        if self.head not in {64, 128}:
            return f"heads of {self.head} features, not 64 or 128"
        if self.length > _MOST_KEYS:
            return f"{self.length} keys, at most {_MOST_KEYS}"
        return None


class CudaNvfp4GqaRoute(CudaRoute):
    """Attention over 4-bit floats; factors are dequantised inside the kernel.

    Args:
        operator: One that ``nvfp4_roles`` recognises.
    """

    files = (FILE, "attention.cuh")

    def __init__(self, operator: Operator) -> None:
        super().__init__(operator)
        roles = nvfp4_roles(operator)
        if roles is None:
            raise InputError(f"operator {operator.name!r} is no attention over 4-bit floats")
        self.roles = roles

    def unsuited(self, workload: Workload) -> str | None:
        """Say which size the kernel is not made for, or None."""
        return self._sizes(workload).unsuited()

    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return the genomes whose tiles and sums fit the device."""
        sizes = self._sizes(workload)
        genes = (*_work(sizes, device), *_way_out(sizes), *_rest(device))
        names = tuple(gene.name for gene in genes)
        return Space(self.name, genes, _constraints(sizes, device, names))

    def seeds(self, workload: Workload, device: DeviceLimits) -> tuple[Proposal, ...]:
        """Return genomes that fill the device's multiprocessors."""
        return started(self.space(workload, device), _STARTS)

    def prepared(self, workload: Workload, genome: Genome, arch: str) -> Prepared:
        """Return the kernel for one genome; all sizes are compiled in."""
        sizes, number = self._sizes(workload), partial(whole_gene, genome)
        macros = {
            "HEAD": sizes.head,
            "GROUP": sizes.group,
            "LENGTH": sizes.length,
            "TILE_KV": sizes.keys,
        }
        generated = {"products.cuh": products_source(sizes.keys, sizes.head, dtype="bfloat16")}
        warpgroups = number("warpgroups")
        buffers = (1 + number("spare")) * warpgroups * _ROWS * sizes.head * _BYTES
        launch = Launch(
            binary="",
            symbol=SYMBOL,
            grid=(sizes.batch * sizes.kv_heads * number("parts"), 1, 1),
            block=(128 * warpgroups, 1, 1),
            shared_bytes=ALIGNMENT_BYTES + 2 * sizes.keys * sizes.head * _BYTES + buffers,
            arguments=self._arguments(sizes, genome),
            attributes=LaunchAttributes(overlap=bool(genome["pdl"])),
        )
        return Prepared(
            source=cuda_source(FILE, generated),
            macros=genome_macros(genome, macros),
            steps=(launch,),
        )

    def _sizes(self, workload: Workload) -> _Sizes:
        axes = axis_values(self.operator, workload)
        shapes = {t.name: t.shape or () for t in (*self.operator.inputs, *self.operator.outputs)}

        def extents(name: str) -> list[int]:
            return [int(axis) if axis.isdigit() else axes[axis] for axis in shapes[name]]

        batch, q_heads, length, head = extents(self.roles.out)
        return _Sizes(
            batch=batch,
            q_heads=q_heads,
            kv_heads=extents(self.roles.k.codes)[1],
            length=length,
            head=head,
        )

    def _arguments(self, sizes: _Sizes, genome: Genome) -> tuple[Argument, ...]:
        roles = self.roles
        out = _planes(roles.out, sizes, sizes.head)
        engine = genome["store"] == "engine"
        weights = _planes(roles.weights, sizes, sizes.length) if engine else out
        parts = [name for t in (roles.q, roles.k, roles.v) for name in (t.codes, t.scales, t.whole)]
        names = (*parts, roles.out, roles.weights)
        factor = ScalarArgument(sizes.head**-0.5, "f32")
        return (out, weights, *(TensorArgument(name) for name in names), factor)


def _planes(name: str, sizes: _Sizes, width: int) -> TensorMap:
    """Describe an output as planes of the rows that share keys, in boxes of 64 x 64 elements."""
    return TensorMap(
        source=TensorArgument(name),
        dtype="bfloat16",
        extents=(width, sizes.rows, sizes.batch * sizes.kv_heads),
        strides=(width * _BYTES, sizes.rows * width * _BYTES),
        box=(64, _ROWS, 1),
        swizzle=128,
    )


def _work(sizes: _Sizes, device: DeviceLimits) -> tuple[Gene, ...]:
    tiles = -(-sizes.rows // _ROWS)
    return (
        products_gene(device),
        Choice(
            name="warpgroups",
            options=(1, 2, 3, 4, 5),
            strategy=Strategy.TENSOR_CORE,
            description="Warpgroups of a block, each with tiles of 64 rows of its own.",
        ),
        Choice(
            name="parts",
            options=tuple(n for n in (1, 2, 3, 4, 5, 7, 10, 20) if n <= tiles),
            strategy=Strategy.SCHEDULING,
            description="Blocks that share out the rows of a key-value head.",
        ),
    )


def _way_out(sizes: _Sizes) -> tuple[Gene, ...]:
    engine = sizes.length * _BYTES % 16 == 0
    return (
        Choice(
            name="store",
            options=("engine", "direct") if engine else ("direct",),
            strategy=Strategy.MEMORY,
            description="Whether results leave by shared memory and copy engine.",
        ),
        Boolean(
            name="spare",
            strategy=Strategy.MEMORY,
            description="Results leave by a buffer of their own, not by that of the queries.",
        ),
        Choice(
            name="mix",
            options=("first", "last"),
            strategy=Strategy.FUSION,
            description="Values are mixed while weights leave, or after.",
        ),
    )


def _rest(device: DeviceLimits) -> tuple[Gene, ...]:
    converts = device.compute_capability[0] >= 10
    return (
        Choice(
            name="dequantise",
            options=("table", "convert") if converts else ("table",),
            strategy=Strategy.BLACKWELL if converts else Strategy.PRECISION,
            description="4-bit codes are looked up, or converted by the chip.",
        ),
        Boolean(
            name="ahead",
            strategy=Strategy.MEMORY,
            description="The next queries are fetched before this tile is worked on.",
        ),
        *register_genes((96, 128, 168), (1, 2, 3)),
        successor_gene(),
    )


def _constraints(sizes: _Sizes, device: DeviceLimits, names: tuple[str, ...]) -> list[Constraint]:
    room = device.shared_bytes - ALIGNMENT_BYTES - 2 * sizes.keys * sizes.head * _BYTES
    tile = _ROWS * sizes.head * _BYTES
    tiles = -(-sizes.rows // _ROWS)
    held = sizes.keys // 2 + 40  # scores of a thread, beside some others
    texts = [
        f"(1 + spare) * warpgroups * {tile} <= {room}",
        f"warpgroups * 128 * {held} <= {device.registers_multiprocessor}",
        f"max_registers == 0 or max_registers >= {held}",
        f"min_blocks * warpgroups * 128 * {held} <= {device.registers_multiprocessor}",
        f"min_blocks * ((1 + spare) * warpgroups * {tile} + "
        f"{2 * sizes.keys * sizes.head * _BYTES + 2048}) <= {device.shared_bytes_multiprocessor}",
        "max_registers * warpgroups * 128 <= " + str(device.registers_multiprocessor),
        f"parts * warpgroups <= {tiles}",
    ]
    return [ExpressionConstraint(text, names) for text in texts]


_STARTS: tuple[dict[str, Allele], ...] = tuple(
    {
        "products": "warpgroup",
        "warpgroups": warpgroups,
        "parts": parts,
        "store": store,
        "spare": True,
        "mix": "first",
        "ahead": True,
    }
    for warpgroups, parts, store in (
        (3, 1, "engine"),
        (2, 1, "engine"),
        (2, 2, "engine"),
        (3, 2, "direct"),
        (2, 5, "engine"),
        (4, 1, "engine"),
        (4, 2, "engine"),
    )
)
