"""The route ``triton`` of the backward pass of experts: one expert, or a routed layer.

Three phases, each a grouped product with genes of its own: gradients inside the experts (three
products at once), gradients of the tokens (two), and of the weights (three).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kernelarc.genomes._axes import axis_values
from kernelarc.genomes._constraints import Constraint, ExpressionConstraint
from kernelarc.genomes._gene import Gene
from kernelarc.genomes._genes import Boolean, Choice, PowerOfTwo
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Operator, Workload
from kernelarc.genomes._records import Proposal
from kernelarc.genomes._space import Space
from kernelarc.genomes._strategies import Strategy
from kernelarc.genomes.kernels import DeviceLimits, KernelRoute
from kernelarc.genomes.routes._cuda_route import started
from kernelarc.genomes.routes._moe_calls import Experts, Layer, expert_calls, layer_calls
from kernelarc.genomes.routes._signature import Binding, extent, matched
from kernelarc.genomes.triton import ROUTE, TritonCall
from kernelarc.genomes.triton._packaged import PackagedTritonRoute

EXPERT_IN = ("float *T H", "float *T H", "float I H", "float I H", "float H I")
EXPERT_OUT = ("float *T H", "float I H", "float I H", "float H I")
LAYER_IN = (
    "float *T H",
    "float *T H",
    "float32 *T K",
    "whole *T K",
    "float E I H",
    "float E I H",
    "float E H I",
    "float S H",
    "float S H",
    "float H S",
)
LAYER_OUT = (
    "float *T H",
    "float32 *T K",
    "float E I H",
    "float E I H",
    "float E H I",
    "float S H",
    "float S H",
    "float H S",
)
_TENSOR, _MEMORY, _FUSION = Strategy.TENSOR_CORE, Strategy.MEMORY, Strategy.FUSION
_SCHEDULING, _PRECISION = Strategy.SCHEDULING, Strategy.PRECISION
_MOST_EXPERTS, MOST_ELEMENTS = 1024, 2**31 - 1


_SOME_ROWS, _MANY_ROWS = 64, 1024  # to an expert
_MANY_EXPERTS = 16

# By phase: rows, columns, depth, warps, stages, raster; of weights: tiles of columns walked.
_MANY = (
    ((128, 64, 64, 8, 3, 8), (128, 128, 64, 8, 4, 8), (128, 64, 64, 8, 4, 8)),
    ((128, 64, 64, 8, 3, 8), (128, 128, 64, 8, 3, 8), (128, 128, 64, 8, 3, 8)),
)
_SOME = (
    ((64, 64, 64, 4, 3, 8), (64, 64, 64, 4, 4, 8), (64, 128, 32, 4, 4, 8)),
    ((64, 32, 64, 4, 4, 8), (64, 64, 64, 4, 4, 8), (64, 64, 64, 4, 4, 8)),
)
# The weights are all that is read: the more programs, the more of them draw from memory.
_FEW = (
    ((16, 32, 128, 4, 4, 0), (16, 32, 128, 4, 4, 0), (64, 64, 16, 4, 3, 4)),
    ((16, 16, 128, 2, 5, 0), (16, 16, 128, 2, 5, 0), (64, 128, 16, 4, 2, 4)),
    ((16, 64, 128, 4, 4, 0), (16, 64, 128, 4, 4, 0), (64, 64, 16, 4, 3, 4)),
)
# Where many experts have few rows there are programs enough. On an H200 with 12 rows to an expert,
# rows of less than 128 bytes cost a tenth of the layer, and so did programs that wrote 64 rows
# and not 128.
_FEW_EACH = (
    ((16, 64, 128, 4, 4, 0), (16, 128, 128, 4, 3, 0), (128, 64, 16, 4, 3, 4, 4)),
    ((16, 64, 128, 4, 4, 0), (16, 64, 128, 4, 4, 0), (128, 64, 16, 4, 3, 4)),
    ((16, 128, 64, 4, 4, 0), (16, 128, 64, 4, 4, 0), (64, 128, 16, 4, 3, 4, 4)),
    ((16, 64, 128, 8, 4, 0), (16, 256, 64, 4, 4, 0), (128, 128, 16, 8, 3, 4, 2)),
    ((32, 64, 128, 4, 3, 0), (16, 64, 128, 4, 4, 0), (64, 256, 16, 8, 3, 4, 2)),
)


def _starts(rows: int, experts: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield what to try first for so many rows to an expert: what is made for them leads."""
    if rows < _SOME_ROWS:
        yield from (*(_FEW if experts < _MANY_EXPERTS else _FEW_EACH), _SOME[0])
    elif rows < _MANY_ROWS:
        yield from (*_SOME, _MANY[0], _FEW[-1])
    else:
        yield from (*_MANY, _SOME[0])


def _start(*tiles: tuple[int, ...]) -> dict[str, Any]:
    genes = ("m", "n", "k", "warps", "stages", "group", "columns")
    start: dict[str, Any] = {"weight_dual": True, "weight_columns": 1, "scan": 1024}
    for phase, alleles in zip(("hidden", "token", "weight"), tiles, strict=True):
        start |= {f"{phase}_{gene}": value for gene, value in zip(genes, alleles, strict=False)}
    return start | {"weight_stream": start["weight_columns"] > 1}


def expert_starts(tokens: int) -> list[dict[str, Any]]:
    """Return the alleles to try first for one expert of so many tokens."""
    return [_start(*tiles) for tiles in _starts(tokens, 1)]


def triton_moe_route(operator: Operator) -> KernelRoute | None:
    """Return the route of an operator whose tensors are those of experts' gradients, or None."""
    one = matched(operator, EXPERT_IN, EXPERT_OUT)
    layer = matched(operator, LAYER_IN, LAYER_OUT)
    found = one or layer
    return None if found is None else TritonMoe(operator, found, routed=layer is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    rows: int
    hidden: int
    inner: int
    experts: int


class TritonMoe(PackagedTritonRoute):
    """Gradients of experts by Triton.

    Args:
        operator: What it implements.
        found: Which axes are tokens (T), features (H, I, S), experts (E) and choices (K).
        routed: Whether tokens choose among several experts.
    """

    module = "triton_moe"

    def __init__(self, operator: Operator, found: Binding, *, routed: bool) -> None:
        super().__init__(operator)
        self.found, self.routed = found, routed

    def unsuited(self, workload: Workload) -> str | None:
        """Say that there are too many experts to count in one program, or too many elements."""
        sizes = self._sizes(workload)
        if sizes.experts > _MOST_EXPERTS:
            return f"route triton sorts by at most {_MOST_EXPERTS} experts"
        if max(sizes.rows, sizes.inner) * max(sizes.hidden, sizes.inner) > MOST_ELEMENTS:
            return "route triton counts elements in 32 bits"
        return None

    def _sizes(self, workload: Workload) -> _Sizes:
        axes = axis_values(self.operator, workload)

        def size(letter: str) -> int:
            return extent(self.found, letter, axes)

        rows = size("T") * (size("K") if self.routed else 1)
        widest = max(size("I"), size("S") if self.routed else 0)
        experts = size("E") if self.routed else 1
        return _Sizes(rows=rows, hidden=size("H"), inner=widest, experts=experts)

    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return tiles, pipeline, raster and warps of each phase, and what is fused."""
        sizes = self._sizes(workload)
        rows = max(1, sizes.rows // sizes.experts)
        genes: list[Gene] = [
            *phase_genes("hidden", rows),
            *phase_genes("token", rows),
            *phase_genes("weight", 0),
        ]
        genes += [
            Boolean(name="token_paired", strategy=_FUSION, description="Both products in a loop."),
            Boolean(name="weight_dual", strategy=_FUSION, description="Gate and up together."),
            Choice(
                name="weight_columns",
                options=(1, 2, 4, 8),
                strategy=_SCHEDULING,
                description="Tiles side by side that one program writes.",
            ),
            Boolean(
                name="weight_stream",
                strategy=_MEMORY,
                description="What is written need not stay in the L2 cache.",
            ),
        ]
        if self.routed:
            genes += [
                PowerOfTwo(name="scan", low=256, high=4096, strategy=_MEMORY),
                Choice(
                    name="parts",
                    options=("bfloat16", "float32"),
                    strategy=_PRECISION,
                    description="What an assignment's token gradient is kept in.",
                ),
            ]
        names = tuple(gene.name for gene in genes)
        return Space(ROUTE, tuple(genes), _constraints(device, names))

    def seeds(self, workload: Workload, device: DeviceLimits) -> tuple[Proposal, ...]:
        """Return tiles for as many rows as an expert has, then for others."""
        sizes = self._sizes(workload)
        starts = _starts(max(1, sizes.rows // sizes.experts), sizes.experts)
        return started(self.space(workload, device), [_start(*tiles) for tiles in starts])

    def calls(self, workload: Workload, genome: Genome, arch: str) -> list[TritonCall]:
        """Return the launches of a genome, in order."""
        axes, alleles = axis_values(self.operator, workload), dict(genome.items())

        def size(letter: str) -> int:
            return extent(self.found, letter, axes)

        inputs = tuple(spec.name for spec in self.operator.inputs)
        outputs = tuple(spec.name for spec in self.operator.outputs)
        dtype = self.found["float"][0]
        if not self.routed:
            experts = Experts(
                tokens=size("T"), hidden=size("H"), inner=size("I"), dtype=dtype, stem=""
            )
            return expert_calls(self.kernel, experts, inputs, outputs, alleles)
        layer = Layer(
            tokens=size("T"),
            hidden=size("H"),
            inner=size("I"),
            shared=size("S"),
            experts=size("E"),
            top_k=size("K"),
            dtype=dtype,
            selected=self.found["whole"][0],
        )
        return layer_calls(self.kernel, layer, inputs, outputs, alleles)


def phase_genes(name: str, rows: int) -> tuple[Gene, ...]:
    """Return the genes of one phase; tiles of few rows where an expert has few.

    0 rows are those of a weight's gradient: any number, and what is summed may be few.
    """
    low = 64 if rows >= 512 or rows == 0 else 32 if rows >= 64 else 16
    shallow = 16 if rows == 0 else 32
    narrow = 0 < rows < _SOME_ROWS
    return (
        PowerOfTwo(name=f"{name}_m", low=min(low, 64), high=256, strategy=_TENSOR),
        PowerOfTwo(name=f"{name}_n", low=16 if narrow else 32, high=256, strategy=_TENSOR),
        PowerOfTwo(name=f"{name}_k", low=shallow, high=128, strategy=_TENSOR),
        Choice(name=f"{name}_warps", options=(1, 2, 4, 8) if narrow else (4, 8), strategy=_TENSOR),
        Choice(name=f"{name}_stages", options=(2, 3, 4, 5), strategy=_MEMORY),
        Choice(
            name=f"{name}_group",
            options=(0, 1, 4, 8, 16),
            strategy=_SCHEDULING,
            description="Tiles of rows that are walked together; 0 walks rows of tiles.",
        ),
    )


def _constraints(device: DeviceLimits, names: tuple[str, ...]) -> tuple[Constraint, ...]:
    shared = device.shared_bytes
    texts = (
        f"hidden_stages * hidden_k * (2 * hidden_m + 3 * hidden_n) * 2 <= {shared}",
        f"token_stages * token_k * (token_m + token_n) * 2 * (1 + token_paired) <= {shared}",
        f"weight_stages * weight_k * (weight_m * (1 + weight_dual) + weight_n) * 2 <= {shared}",
        "hidden_m * hidden_n * 3 <= 6144 * hidden_warps",
        "token_m * token_n <= 6144 * token_warps",
        "weight_m * weight_n * (1 + weight_dual) <= 6144 * weight_warps",
        "hidden_m * hidden_n >= 128 * hidden_warps",
        "token_m * token_n >= 128 * token_warps",
        "weight_m * weight_n >= 256 * weight_warps",
    )
    return tuple(ExpressionConstraint(text, names) for text in texts)
