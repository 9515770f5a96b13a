"""The route ``cuda`` of a decoder block: a graph of subtasks, each a part with genes of its own.

Products, gated projection and attention are the routes of those operators; their tensors are the
block's or buffers between subtasks. Whether a product is a kernel's or the library's is a gene of
each, and so is who adds the residual after the attention. A part is compiled alone, so that a
genome that changes one part compiles one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._constraints import ExpressionConstraint
from kernelarc.genomes._gene import Gene, When
from kernelarc.genomes._genes import Boolean, Choice
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Operator, Workload
from kernelarc.genomes._records import Proposal
from kernelarc.genomes._space import Space
from kernelarc.genomes._strategies import Strategy
from kernelarc.genomes.kernels import (
    Argument,
    DeviceLimits,
    InputArgument,
    KernelRoute,
    Launch,
    LaunchAttributes,
    ScalarArgument,
    Scratch,
    ScratchArgument,
    TensorArgument,
)
from kernelarc.genomes.routes._block import (
    BLOCK_INPUTS,
    BLOCK_ROLES,
    BlockSizes,
    attention_operator,
    block_sizes,
    gated_operator,
)
from kernelarc.genomes.routes._cuda_gemm import FILE as GEMM_FILE
from kernelarc.genomes.routes._cuda_gemm import CudaGatedRoute, CudaGemmRoute
from kernelarc.genomes.routes._cuda_gemm_space import ProductJob
from kernelarc.genomes.routes._cuda_gqa_paged import FILE as ATTENTION_FILE
from kernelarc.genomes.routes._cuda_gqa_paged import CudaGqaPagedRoute
from kernelarc.genomes.routes._cuda_parts import (
    PartedCudaRoute,
    part_alleles,
    part_genome,
    placed,
    prefixed,
)
from kernelarc.genomes.routes._cuda_route import (
    CudaRoute,
    Prepared,
    started,
    successor_gene,
    whole_gene,
)
from kernelarc.genomes.routes._cuda_source import cuda_source
from kernelarc.genomes.routes._library_part import (
    BY,
    FIRST_CHOICE,
    KERNEL,
    gating_genes,
    gating_part,
    is_by_library,
    library_part,
    made_by_either,
)
from kernelarc.genomes.routes._library_part import FILE as GATING_FILE
from kernelarc.genomes.routes._matmul import MatmulForm, matmul_operator
from kernelarc.genomes.routes._signature import Binding, matched

FILE = "block_parts.cu"
_PRODUCTS = ("q", "kv", "o", "wide", "down")
_PARTS = (*_PRODUCTS, "attention")
_ADDING = frozenset({"o", "down"})
_STARTS = ((0, 0), (1, 1), (2, 4), (-3, 0), (-2, 1))  # seeds of products, of attention
_BY_LIBRARY: tuple[tuple[tuple[str, ...], int], ...] = (
    (_PRODUCTS, 0),
    (tuple(name for name in _PRODUCTS if name != "wide"), 1),
    (("wide", "down"), 1),
    (("q", "kv", "o"), 1),
)  # what the library makes in a seed, the seed of attention
# Tokens from which on seeds with products of the library come first: with 128 tokens, torch's block
# over cuBLAS's products took 252 us on an H200, ours over our own 293, kernels alone.
_LIBRARY_FIRST = 64
_VECTOR, _MOST_ROW = 8, 1 << 15
_LAST = "last"  # the residual is read at the end: there is this in every space of a product
_MOST_HELD = 8  # vectors of a row that a thread of the norm holds


def cuda_block_route(operator: Operator) -> KernelRoute | None:
    """Return the route of an operator whose tensors are those of a decoder block, or None."""
    found = matched(operator, BLOCK_INPUTS, ("float B S H",))
    if found is None or found["float"][0] not in {"bfloat16", "float16"}:
        return None
    return CudaBlock(operator, found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A subtask that has a route.

    Attributes:
        route: Its route, bound to the device.
        workload: Its workload.
        macros: What its source is told beside its genome.
    """

    route: CudaRoute
    workload: Workload
    macros: Mapping[str, str]

    def prepared(self, genome: Genome, arch: str) -> Prepared:
        """Return source and launches of one genome of the part."""
        ready = self.route.prepared(self.workload, genome, arch)
        return replace(ready, macros={**ready.macros, **self.macros})

    def job(self) -> ProductJob:
        """Return what a product's part multiplies."""
        assert isinstance(self.route, CudaGemmRoute | CudaGatedRoute)
        return self.route.job(self.workload)


class CudaBlock(PartedCudaRoute):
    """A decoder block by CUDA C++.

    Args:
        operator: What it implements.
        found: Which axes are sequences (B, S), features (H, D, I), of all query heads (Q) and of
            all key-value heads (C).
    """

    files = (FILE, GEMM_FILE, GATING_FILE, ATTENTION_FILE, "attention.cuh")

    def __init__(self, operator: Operator, found: Binding) -> None:
        super().__init__(operator)
        self.found = found

    @property
    def dtype(self) -> str:
        """Of all tensors."""
        return self.found["float"][0]

    def sizes(self, workload: Workload) -> BlockSizes:
        """Return the sizes of a workload."""
        return block_sizes(self.operator, self.found, workload)

    def unsuited(self, workload: Workload) -> str | None:
        """Say which size the kernels do not take, or None."""
        size = self.sizes(workload)
        if size.hidden % _VECTOR or size.wide % _VECTOR or size.hidden > _MOST_ROW:
            return (
                f"route cuda takes rows of at most {_MOST_ROW} features, in multiples of "
                f"{_VECTOR}, not {size.hidden} and {size.wide}"
            )
        part = self._part("attention", size)
        return part.route.unsuited(part.workload)

    def _part(self, name: str, size: BlockSizes, *, adds: bool = False) -> _Part:
        """Return a subtask; ``adds`` says whether a product adds a residual."""
        device, macros = self._device, dict[str, str]()
        route: CudaRoute
        if name == "attention":
            operator = attention_operator(size, self.dtype)
            free = {"total_q": size.tokens, "total_kv": size.tokens, "len_indptr": size.batch + 1}
            route, macros = CudaGqaPagedRoute(operator), {"LENGTH": str(size.seq)}
        elif name == "wide":
            operator, free = gated_operator(size, self.dtype), {"batch": 1, "seq": size.tokens}
            route = CudaGatedRoute(operator)
        else:
            n, k = {
                "q": (size.q, size.hidden),
                "kv": (size.kv, size.hidden),
                "o": (size.hidden, size.q),
                "down": (size.hidden, size.wide),
            }[name]
            form = MatmulForm(dtype=self.dtype, residual=adds)
            operator = matmul_operator(form, {"M": size.tokens, "N": n, "K": k})
            free, route = {}, CudaGemmRoute(operator)
        workload = Workload(operator=operator.fingerprint, axes=free)
        return _Part(
            route=route if device is None else route.on(device), workload=workload, macros=macros
        )

    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return the genes of every subtask and of their fusion."""
        size = self.sizes(workload)
        genes: list[Gene] = [
            Boolean(
                name="product_adds",
                strategy=Strategy.FUSION,
                description="The projection adds the residual; else the norm behind it does.",
            ),
            Choice(
                name="norm_warps",
                options=(2, 4, 8, 16, 32),
                strategy=Strategy.MEMORY,
                description="Warps that share a row while it is normalised.",
            ),
            Choice(
                name="turn_warps",
                options=(1, 2, 4, 8),
                strategy=Strategy.MEMORY,
                description="Heads that a block turns.",
            ),
            successor_gene(),
        ]
        texts = [f"norm_warps * {32 * _VECTOR * _MOST_HELD} >= {size.hidden}"]
        for name in _PARTS:
            part = self._part(name, size, adds=name in _ADDING)
            own = part.route.space(part.workload, device)
            if name == "attention":
                made = prefixed(name, own)
            else:
                seeds = part.route.seeds(part.workload, device)
                made = made_by_either(name, own, seeds[0].genome.alleles() if seeds else {})
            genes += made[0]
            texts += made[1]
        genes += gating_genes("wide")
        adds = When("product_adds", (True,))
        genes = [replace(g, when=adds) if g.name == "o_residual" else g for g in genes]
        # A gene has one condition: where the library adds, this one says nothing.
        texts.append(f"o_residual == {_LAST!r} or o_by == {KERNEL!r}")
        names = tuple(gene.name for gene in genes)
        return Space(self.name, genes, [ExpressionConstraint(text, names) for text in texts])

    def seeds(self, workload: Workload, device: DeviceLimits) -> tuple[Proposal, ...]:
        """Return what the subtasks' own routes would try first, side by side.

        Some leave products to the library, as torch does: first where there are many tokens.
        """
        size = self.sizes(workload)
        found = {}
        for name in _PARTS:
            part = self._part(name, size, adds=name in _ADDING)
            found[name] = part.route.seeds(part.workload, device)
        ours = [_side_by_side(found, product, attention) for product, attention in _STARTS]
        theirs = [_left_to_library(ours[place], names) for names, place in _BY_LIBRARY]
        few = size.tokens < _LIBRARY_FIRST
        return started(self.space(workload, device), [*ours, *theirs] if few else [*theirs, *ours])

    def parts(self, workload: Workload, genome: Genome, arch: str) -> list[Prepared]:
        """Return the parts of a genome in the order of their launches."""
        names = dict(zip(BLOCK_ROLES, (spec.name for spec in self.operator.inputs), strict=True))
        names["out"] = self.operator.outputs[0].name
        return _Graph(self, self.sizes(workload), names, genome, arch).parts()


def _side_by_side(
    found: Mapping[str, Sequence[Proposal]], product: int, attention: int
) -> dict[str, Allele]:
    """Return a start of the subtasks' own ones at some places."""
    start: dict[str, Allele] = {"product_adds": True, "norm_warps": 8, "turn_warps": 4}
    for name, seeds in found.items():
        place = attention if name == "attention" else product
        chosen = seeds[max(-len(seeds), min(place, len(seeds) - 1))]
        start |= part_alleles(name, chosen.genome)
    return start


def _left_to_library(start: Mapping[str, Allele], names: Sequence[str]) -> dict[str, Allele]:
    """Return a start with some products made by the library, as torch would have it."""
    left = {f"{name}_{gene}": allele for name in names for gene, allele in FIRST_CHOICE.items()}
    if "o" in names:
        left["o_residual"] = _LAST
    return {**start, **left, "pdl": True}


class _Graph:
    """One genome's subtasks: what each reads and writes, and how it is launched."""

    def __init__(
        self, route: CudaBlock, size: BlockSizes, names: dict[str, str], genome: Genome, arch: str
    ) -> None:
        self.route, self.size, self.names, self.genome, self.arch = route, size, names, genome, arch
        buffers = {
            "normed": size.hidden, "q": size.q, "k": size.kv, "v": size.kv, "mixed": size.q,
            "projected": size.hidden, "middle": size.hidden, "normed_2": size.hidden,
            "gated": size.wide, "raised": size.wide, "log_sums": 2 * (size.q // size.head),
        }  # fmt: skip
        self.scratch = {n: Scratch(name=n, nbytes=2 * size.tokens * w) for n, w in buffers.items()}

    def parts(self) -> list[Prepared]:
        """Return every part; a buffer comes with the parts that write it."""
        if self.genome["product_adds"]:
            between = [
                self._product("o", "mixed", "wo", "middle", added="x"),
                self._norm("middle", "norm_2", "normed_2"),
            ]
        else:
            between = [
                self._product("o", "mixed", "wo", "projected"),
                self._norm("x", "norm_2", "normed_2", added="projected"),
            ]
        return [
            self._norm("x", "norm_1", "normed"),
            self._product("q", "normed", "wq", "q"),
            self._product("kv", "normed", "wk", "k"),
            self._product("kv", "normed", "wv", "v"),
            self._turned(),
            self._attention(),
            *between,
            *self._gated(),
            self._product("down", "gated", "down", "out", added="middle"),
        ]

    # Subtasks with routes of their own

    def _product(self, name: str, x: str, weight: str, out: str, *, added: str = "") -> Prepared:
        roles = {"a": x, "weight": weight, "out": out, "residual": added}
        return self._moved(name, roles, adds=bool(added))

    def _attention(self) -> Prepared:
        roles = {
            "q": "q", "k": "k", "v": "v", "output": "mixed", "lse": "log_sums",
            "qo_indptr": "q", "kv_indptr": "q",  # never read: all sequences are equally long
        }  # fmt: skip
        return self._moved("attention", roles)

    def _gated(self) -> list[Prepared]:
        """Return gate and up-projection: one kernel, or two of the library's products and one."""
        roles = {"x": "normed_2", "gate_proj": "gate", "up_proj": "up", "out": "gated"}
        genome = part_genome("wide", self.genome)
        if not is_by_library(genome):
            return [self._moved("wide", roles)]
        job = self.route._part("wide", self.size).job()
        gate = replace(job, up=None, bend="")
        raised = replace(gate, right=str(job.up), out="raised")
        gating = gating_part("gate_rows", (job.out, "raised"), gate, genome)
        roles["raised"] = "raised"
        return [self._at(library_part([gate, raised], genome), roles), self._at(gating, roles)]

    def _moved(self, name: str, roles: Mapping[str, str], *, adds: bool = False) -> Prepared:
        """Return a subtask with its tensors where the block has them."""
        part, genome = self.route._part(name, self.size, adds=adds), part_genome(name, self.genome)
        if is_by_library(genome):
            return self._at(library_part([part.job()], genome), roles)
        own = part_genome(name, self.genome, without=(BY,) if adds else (BY, "residual"))
        return self._at(part.prepared(own, self.arch), roles)

    def _at(self, ready: Prepared, roles: Mapping[str, str]) -> Prepared:
        """Return a part with its tensors where the block has them."""
        steps = tuple(
            replace(each, arguments=tuple(self._numbered(a) for a in each.arguments))
            if isinstance(each, Launch)
            else each
            for each in placed(ready, lambda name: self._place(roles[name]))
        )
        held = (self.scratch[role] for role in roles.values() if role in self.scratch)
        return replace(ready, steps=steps, scratch=(*ready.scratch, *held))

    def _numbered(self, argument: Argument) -> Argument:
        if isinstance(argument, InputArgument):  # the scores' factor
            return ScalarArgument(1.0 / math.sqrt(self.size.head), argument.kind)
        return argument

    def _place(self, role: str) -> TensorArgument | ScratchArgument:
        return TensorArgument(self.names[role]) if role in self.names else ScratchArgument(role)

    # What stands between them

    def _norm(self, x: str, weight: str, out: str, *, added: str = "") -> Prepared:
        tensors = (x, added, weight, out, "middle") if added else (x, weight, out)
        return self._between(
            "norm_rows_sum" if added else "norm_rows",
            grid=self.size.tokens,
            threads=32 * whole_gene(self.genome, "norm_warps"),
            tensors=tensors,
            written=(out, "middle") if added else (out,),
        )

    def _turned(self) -> Prepared:
        size, warps = self.size, whole_gene(self.genome, "turn_warps")
        heads = (size.q // size.head, size.kv // size.head)
        rows = tuple(size.tokens * count for count in heads)
        return self._between(
            "turn_heads",
            grid=-(-sum(rows) // warps),
            threads=32 * warps,
            tensors=("q", "k", "norm_q", "norm_k", "cos", "sin"),
            numbers=(*rows, *heads, size.seq),
        )

    def _between(
        self,
        symbol: str,
        *,
        grid: int,
        threads: int,
        tensors: tuple[str, ...],
        numbers: tuple[int, ...] = (),
        written: tuple[str, ...] = (),
    ) -> Prepared:
        launch = Launch(
            binary="",
            symbol=symbol,
            grid=(grid, 1, 1),
            block=(threads, 1, 1),
            arguments=(
                *(self._place(role) for role in tensors),
                *(ScalarArgument(value, "i32") for value in numbers),
                InputArgument(self.names["eps"], "f32"),
            ),
            attributes=LaunchAttributes(overlap=bool(self.genome["pdl"])),
        )
        genes = ("norm_warps", "turn_warps", "pdl")
        return Prepared(
            source=cuda_source(FILE),
            macros={
                f"DTYPE_{self.route.dtype}": "1",
                "HIDDEN": str(self.size.hidden),
                "HEAD": str(self.size.head),
                **{gene.upper(): str(whole_gene(self.genome, gene)) for gene in genes},
            },
            steps=(launch,),
            scratch=tuple(self.scratch[role] for role in written if role in self.scratch),
        )
