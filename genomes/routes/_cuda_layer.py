"""The route ``cuda`` of a routed layer's backward pass: packed rows, then products by expert.

Rows are packed by expert on the device; every kind of product is one launch over all experts, by
blocks that stay. The shared expert goes through the same kernels, as one expert for all tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kernelarc.genomes._axes import axis_values
from kernelarc.genomes._constraints import ExpressionConstraint
from kernelarc.genomes._gene import Gene
from kernelarc.genomes._genes import Choice
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Operator, Workload
from kernelarc.genomes._records import Proposal
from kernelarc.genomes._space import Space
from kernelarc.genomes._strategies import Strategy
from kernelarc.genomes.kernels import (
    DeviceLimits,
    KernelRoute,
    Launch,
    LaunchAttributes,
    ScalarArgument,
    Scratch,
    ScratchArgument,
    TensorArgument,
)
from kernelarc.genomes.routes._cuda_grouped import (
    FILE,
    HIDDEN,
    INNER,
    KINDS,
    TOKEN,
    WEIGHT,
    GroupedJob,
    GroupedShape,
    grouped_constraints,
    grouped_genes,
    grouped_prepared,
)
from kernelarc.genomes.routes._cuda_layer_starts import layer_starts
from kernelarc.genomes.routes._cuda_parts import PartedCudaRoute, part_genome
from kernelarc.genomes.routes._cuda_route import (
    Prepared,
    products_gene,
    started,
    successor_gene,
    whole_gene,
)
from kernelarc.genomes.routes._cuda_source import cuda_source
from kernelarc.genomes.routes._signature import Binding, extent, matched
from kernelarc.genomes.routes._triton_moe import LAYER_IN, LAYER_OUT

ROUTING = "routing.cu"
_BOX = 64
_PLAN_THREADS = 1024
_MOST_CHOICES = 2**24
_WHOLE = ("pad", "chunk", "pack_threads", "gather_threads", "pdl")


def cuda_layer_route(operator: Operator) -> KernelRoute | None:
    """Return the route of an operator whose tensors are those of a routed layer, or None."""
    found = matched(operator, LAYER_IN, LAYER_OUT)
    return None if found is None else CudaLayer(operator, found)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSizes:
    """The sizes of a layer.

    Attributes:
        tokens: How many.
        hidden: Features of a token.
        inner: Features inside an expert.
        shared: Features inside the shared expert.
        experts: How many.
        top_k: Experts of a token.
    """

    tokens: int
    hidden: int
    inner: int
    shared: int
    experts: int
    top_k: int

    @property
    def choices(self) -> int:
        """Tokens times experts of each."""
        return self.tokens * self.top_k

    def rows(self, pad: int) -> int:
        """Return the most rows there can be where each expert's are filled up to ``pad``."""
        most = min(self.choices + self.experts * (pad - 1), self.choices * pad)
        return -(-most // pad) * pad


class CudaLayer(PartedCudaRoute):
    """Gradients of a routed layer with a shared expert by CUDA C++.

    Args:
        operator: What it implements.
        found: Which axes are tokens (T), features (H, I, S), experts (E) and choices (K).
    """

    files = (ROUTING, FILE)

    def __init__(self, operator: Operator, found: Binding) -> None:
        super().__init__(operator)
        self.found = found

    def sizes(self, workload: Workload) -> LayerSizes:
        """Return the sizes of a workload."""
        axes = axis_values(self.operator, workload)
        tokens, hidden, inner, shared, experts, top_k = (
            extent(self.found, letter, axes) for letter in "THISEK"
        )
        return LayerSizes(
            tokens=tokens, hidden=hidden, inner=inner, shared=shared, experts=experts, top_k=top_k
        )

    def unsuited(self, workload: Workload) -> str | None:
        """Say that boxes do not fit the features, or that there is too much to count, or None."""
        size = self.sizes(workload)
        features = (size.hidden, size.inner, size.shared)
        if any(count % _BOX for count in features):
            return f"route cuda takes features in multiples of {_BOX}, not {features}"
        if size.experts > _PLAN_THREADS or size.choices > _MOST_CHOICES:
            return (
                f"route cuda sorts up to {_MOST_CHOICES} choices among up to {_PLAN_THREADS} "
                f"experts, not {size.choices} among {size.experts}"
            )
        return None

    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return the genes of every kind of product, and of what packs rows and gathers them."""
        size = self.sizes(workload)
        genes: list[Gene] = [gene for kind in KINDS for gene in grouped_genes(kind)]
        genes += [products_gene(device), *_routing_genes(), successor_gene()]
        depths = {INNER: (size.hidden,), HIDDEN: (size.hidden,), TOKEN: (size.inner, size.shared)}
        texts = [text for k in KINDS for text in grouped_constraints(k, device, depths.get(k, ()))]
        texts.append("weight_tile_k <= pad")
        names = tuple(gene.name for gene in genes)
        return Space(self.name, genes, [ExpressionConstraint(text, names) for text in texts])

    def seeds(self, workload: Workload, device: DeviceLimits) -> tuple[Proposal, ...]:
        """Return tiles for as many rows as an expert has."""
        size = self.sizes(workload)
        starts = layer_starts(
            choices=size.choices, experts=size.experts, hidden=size.hidden, inner=size.inner,
            pad=_BOX, device=device,
        )  # fmt: skip
        return started(self.space(workload, device), list(starts))

    def parts(self, workload: Workload, genome: Genome, arch: str) -> list[Prepared]:
        """Return the launches of a genome in order."""
        multiprocessors = self.limits(arch).multiprocessors
        return _Layer(self, self.sizes(workload), genome, multiprocessors).parts()


def _routing_genes() -> tuple[Gene, ...]:
    return (
        Choice(
            name="pad",
            options=(64, 128),
            strategy=Strategy.MEMORY,
            description="Each expert's rows are filled up to a multiple of it.",
        ),
        Choice(
            name="chunk",
            options=(128, 256, 512),
            strategy=Strategy.SCHEDULING,
            description="Choices that a block counts and places.",
        ),
        Choice(
            name="pack_threads",
            options=(64, 128, 256, 512),
            strategy=Strategy.MEMORY,
            description="Threads that copy a row.",
        ),
        Choice(
            name="gather_threads",
            options=(64, 128, 256, 512),
            strategy=Strategy.MEMORY,
            description="Threads that add up a token's gradient.",
        ),
    )


class _Layer:
    """One genome's launches: where each buffer lies, and who writes it."""

    def __init__(
        self, route: CudaLayer, size: LayerSizes, genome: Genome, multiprocessors: int
    ) -> None:
        self.size, self.genome, self.multiprocessors = size, genome, multiprocessors
        operator = route.operator
        self.dtype, self.selected = route.found["float"][0], route.found["whole"][0]
        self.inputs = tuple(spec.name for spec in operator.inputs)
        self.outputs = tuple(spec.name for spec in operator.outputs)
        self.rows = size.rows(whole_gene(genome, "pad"))
        self.chunks = -(-size.choices // whole_gene(genome, "chunk"))
        hidden = GroupedShape(part_genome("hidden", genome), gated=True)
        self.columns = -(-size.inner // hidden.out_n)

    def parts(self) -> list[Prepared]:
        """Return routing, both sets of experts phase by phase, and what the tokens get."""
        grad, x, weights, selected, *rest = self.inputs
        grad_x, grad_weights, *grads = self.outputs
        routed, shared = _Experts(self, "routed "), _Experts(self, "shared ")
        first = [*self._sorting(selected), self._packing(x, grad, weights)]
        products = [
            routed.inner("packed grad", rest[2]),
            shared.inner(grad, rest[5]),
            routed.hidden("packed x", *rest[:2]),
            shared.hidden(x, *rest[3:5]),
            routed.token(*rest[:2]),
            shared.token(*rest[3:5]),
        ]
        last = [
            *routed.weights("packed x", "packed grad", grads[:3]),
            *shared.weights(x, grad, grads[3:]),
        ]
        made = [
            self._routing(*first, scratch=self.scratch()),
            *(self._product(job) for job in products),
            self._routing(self._gathering(grad_x, grad_weights)),
            *(self._product(job) for job in last),
        ]
        return made

    def scratch(self) -> tuple[Scratch, ...]:
        """Return every buffer between launches."""
        size, rows = self.size, self.rows
        words = {
            "counts": size.experts * self.chunks,
            "spans": 2 * size.experts,
            "sources": rows,
            "counted": 4,
            "places": size.choices,
            "scales": rows,
            "products": self.columns * rows,
            **{kind.table: 4 * rows // _BOX for kind in (INNER, HIDDEN, TOKEN)},
        }
        halves = {"packed x": rows * size.hidden, "packed grad": rows * size.hidden}
        for stem, high, wide in (
            ("routed ", rows, size.inner),
            ("shared ", size.tokens, size.shared),
        ):
            halves |= {f"{stem}{name}": high * wide for name in ("inner", "hidden", "gate", "up")}
            halves[f"{stem}tokens"] = high * size.hidden
        found = [(name, 4 * count) for name, count in words.items()]
        found += [(name, 2 * count) for name, count in halves.items()]
        return tuple(Scratch(name=name, nbytes=nbytes) for name, nbytes in found)

    def place(self, name: str) -> TensorArgument | ScratchArgument:
        """Return where a tensor or buffer lies."""
        own = name in self.inputs or name in self.outputs
        return TensorArgument(name) if own else ScratchArgument(name)

    # Products

    def _product(self, job: GroupedJob) -> Prepared:
        name = job.kind.name
        alleles = part_genome(name, self.genome).alleles()
        both = {gene: self.genome[gene] for gene in ("products", "pdl")}
        genome = Genome(self.genome.route, {**alleles, **both})
        return grouped_prepared(job, genome, self.dtype, self.place, self.multiprocessors)

    # Routing

    def _routing(self, *launches: Launch, scratch: tuple[Scratch, ...] = ()) -> Prepared:
        tiles = {
            kind.name: GroupedShape(part_genome(kind.name, self.genome), kind.gated).tile_m
            for kind in (INNER, HIDDEN, TOKEN)
        }
        size = self.size
        return Prepared(
            source=cuda_source(ROUTING),
            macros={
                f"DTYPE_{self.dtype}": "1",
                f"SELECTED_{self.selected}": "1",
                "EXPERTS": str(size.experts),
                "TOP_K": str(size.top_k),
                "HIDDEN": str(size.hidden),
                **{f"TILE_{name.upper()}": str(rows) for name, rows in tiles.items()},
                **{gene.upper(): str(whole_gene(self.genome, gene)) for gene in _WHOLE},
            },
            steps=launches,
            scratch=scratch,
        )

    def _launch(
        self, symbol: str, grid: int, threads: int, names: tuple[str, ...], *numbers: int
    ) -> Launch:
        return Launch(
            binary="",
            symbol=symbol,
            grid=(grid, 1, 1),
            block=(threads, 1, 1),
            arguments=(
                *map(self.place, names),
                *(ScalarArgument(number, "i32") for number in numbers),
            ),
            attributes=LaunchAttributes(overlap=bool(self.genome["pdl"])),
        )

    def _sorting(self, selected: str) -> list[Launch]:
        chunk, choices, chunks = whole_gene(self.genome, "chunk"), self.size.choices, self.chunks
        tables = (kind.table for kind in (INNER, HIDDEN, TOKEN))
        planned = ("counts", "spans", "sources", *tables, "counted")
        placed = (selected, "counts", "spans", "places", "sources")
        return [
            self._launch("tally", chunks, chunk, (selected, "counts"), choices, chunks),
            self._launch("plan", 1, _PLAN_THREADS, planned, chunks),
            self._launch("place", chunks, chunk, placed, choices, chunks),
        ]

    def _packing(self, x: str, grad: str, weights: str) -> Launch:
        names = (x, grad, weights, "sources", "counted", "packed x", "packed grad", "scales")
        return self._launch("pack", self.rows, whole_gene(self.genome, "pack_threads"), names)

    def _gathering(self, grad_x: str, grad_weights: str) -> Launch:
        names = ("shared tokens", "routed tokens", "places", "products", grad_x, grad_weights)
        threads = whole_gene(self.genome, "gather_threads")
        return self._launch("gather", self.size.tokens, threads, names, self.rows, self.columns)


class _Experts:
    """The products of one set of experts: the routed ones, or the shared one."""

    def __init__(self, layer: _Layer, stem: str) -> None:
        size, routed = layer.size, stem == "routed "
        self.stem, self.routed, self.hidden_size = stem, routed, size.hidden
        self.inner_size = size.inner if routed else size.shared
        self.job = partial(
            GroupedJob,
            rows=layer.rows if routed else size.tokens,
            experts=size.experts if routed else 1,
            listed=routed,
        )

    def inner(self, grad: str, down: str) -> GroupedJob:
        """Return the gradient of the hidden rows."""
        return self.job(
            kind=INNER, n=self.inner_size, k=self.hidden_size, factors=(grad, down),
            outputs=(f"{self.stem}inner",),
        )  # fmt: skip

    def hidden(self, x: str, gate: str, up: str) -> GroupedJob:
        """Return hidden rows and the gradients of gate and up."""
        return self.job(
            kind=HIDDEN, n=self.inner_size, k=self.hidden_size, factors=(x, gate, up),
            outputs=tuple(f"{self.stem}{name}" for name in ("hidden", "gate", "up")),
            inner=f"{self.stem}inner", weighed=("scales", "products") if self.routed else None,
        )  # fmt: skip

    def token(self, gate: str, up: str) -> GroupedJob:
        """Return the gradient of the rows' tokens."""
        return self.job(
            kind=TOKEN, n=self.hidden_size, k=self.inner_size,
            factors=(f"{self.stem}gate", gate, f"{self.stem}up", up),
            outputs=(f"{self.stem}tokens",),
        )  # fmt: skip

    def weights(self, x: str, grad: str, outputs: list[str]) -> list[GroupedJob]:
        """Return the gradients of gate, up and down."""
        hidden, inner = self.hidden_size, self.inner_size
        made = [
            (f"{self.stem}gate", x, inner, hidden),
            (f"{self.stem}up", x, inner, hidden),
            (grad, f"{self.stem}hidden", hidden, inner),
        ]
        return [
            self.job(kind=WEIGHT, m=m, n=n, factors=(left, right), outputs=(out,))
            for (left, right, m, n), out in zip(made, outputs, strict=True)
        ]  # fmt: skip
