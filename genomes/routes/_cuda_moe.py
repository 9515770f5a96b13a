"""The route ``cuda`` of one expert's backward pass: four kinds of product, parts with genes.

The gradient inside the expert; gate and up-projection, from which the hidden row and both
gradients leave at once; the tokens' gradient, both products in one loop; the weights' gradients.
Each kind is made by a kernel or by the library: then the hidden row and both gradients are made by
a kernel of their own, and the tokens' gradient by two products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._axes import axis_values
from kernelarc.genomes._constraints import ExpressionConstraint
from kernelarc.genomes._gene import Gene
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Operator, Workload
from kernelarc.genomes._records import Proposal
from kernelarc.genomes._space import Space
from kernelarc.genomes.kernels import (
    DeviceLimits,
    KernelRoute,
    Scratch,
    ScratchArgument,
    TensorArgument,
)
from kernelarc.genomes.routes._cuda_gemm import FILE, product_prepared
from kernelarc.genomes.routes._cuda_gemm_space import ProductJob, product_space, starts
from kernelarc.genomes.routes._cuda_parts import PartedCudaRoute, part_genome, placed
from kernelarc.genomes.routes._cuda_route import Prepared, started
from kernelarc.genomes.routes._library_part import (
    BY,
    FIRST_CHOICE,
    gating_genes,
    gating_part,
    is_by_library,
    library_part,
    made_by_either,
)
from kernelarc.genomes.routes._library_part import FILE as GATING_FILE
from kernelarc.genomes.routes._product_cost import ranked_starts
from kernelarc.genomes.routes._signature import Binding, extent, matched
from kernelarc.genomes.routes._triton_moe import EXPERT_IN, EXPERT_OUT

_VECTOR = 8  # elements of 16 bytes, as the copy engine counts rows
_UNIFORM = (3, 5)  # of a product's starts: tiles in turns, and smaller ones
_BY_LIBRARY = (("inner", "hidden", "token", "weight"), ("inner", "weight"))
_LIBRARY_FIRST = 2048  # tokens from which on seeds with products of the library come first
_INNER, _HIDDEN, _BY_GATE, _BY_UP = _BUFFERS = ("inner rows", "hidden rows", "gate rows", "up rows")


def cuda_expert_route(operator: Operator) -> KernelRoute | None:
    """Return the route of an operator whose tensors are those of one expert, or None."""
    found = matched(operator, EXPERT_IN, EXPERT_OUT)
    if found is None or found["float"][0] not in {"bfloat16", "float16"}:
        return None
    return CudaExpert(operator, found)


class CudaExpert(PartedCudaRoute):
    """Gradients of one expert by CUDA C++.

    Args:
        operator: What it implements.
        found: Which axes are tokens (T), features of a token (H) and of a hidden row (I).
    """

    files = (FILE, GATING_FILE)

    def __init__(self, operator: Operator, found: Binding) -> None:
        super().__init__(operator)
        self.found = found

    def _sizes(self, workload: Workload) -> tuple[int, int, int]:
        """Return tokens, features of a token, features of a hidden row."""
        axes = axis_values(self.operator, workload)
        tokens, hidden, inner = (extent(self.found, letter, axes) for letter in "THI")
        return tokens, hidden, inner

    def unsuited(self, workload: Workload) -> str | None:
        """Say that rows do not begin where the copy engine can, or None."""
        _, hidden, inner = self._sizes(workload)
        if hidden % _VECTOR or inner % _VECTOR:
            return f"route cuda takes features in multiples of {_VECTOR}, not {hidden} and {inner}"
        return None

    def jobs(self, workload: Workload) -> list[tuple[str, ProductJob]]:
        """Return the products in order, each with the part whose genes it has."""
        t, h, i = self._sizes(workload)
        grad, x, gate, up, down = (spec.name for spec in self.operator.inputs)
        grad_x, grad_gate, grad_up, grad_down = (spec.name for spec in self.operator.outputs)
        job = partial(ProductJob, dtype=self.found["float"][0])
        weight = partial(job, k=t, left_across=True, right_across=True)
        inner = job(m=t, n=i, k=h, left=grad, right=down, right_across=True, out=_INNER)
        hidden = job(
            m=t, n=i, k=h, left=x, right=gate, up=up, bend="silu",
            residual=_INNER, out=_HIDDEN, gradients=(_BY_GATE, _BY_UP),
        )  # fmt: skip
        token = job(
            m=t, n=h, k=i, left=_BY_GATE, right=gate, second=(_BY_UP, up),
            right_across=True, out=grad_x,
        )  # fmt: skip
        return [
            ("inner", inner),
            ("hidden", hidden),
            ("token", token),
            ("weight", weight(m=i, n=h, left=_BY_GATE, right=x, out=grad_gate)),
            ("weight", weight(m=i, n=h, left=_BY_UP, right=x, out=grad_up)),
            ("weight", weight(m=h, n=i, left=grad, right=_HIDDEN, out=grad_down)),
        ]

    def _kinds(self, workload: Workload) -> dict[str, tuple[ProductJob, ...]]:
        """Return the products by the part whose genes they have."""
        kinds: dict[str, tuple[ProductJob, ...]] = {}
        for name, job in self.jobs(workload):
            kinds[name] = (*kinds.get(name, ()), job)
        return kinds

    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return the genes of every kind of product."""
        genes: list[Gene] = []
        texts: list[str] = []
        for name, jobs in self._kinds(workload).items():
            ranked = ranked_starts(jobs, device) or starts(jobs[0], device)
            own, usual = product_space(self.name, jobs[0], device), {**ranked[0], "pdl": True}
            more, rules = made_by_either(name, own, usual)
            genes += more
            texts += rules
        genes += gating_genes("hidden")
        names = tuple(gene.name for gene in genes)
        return Space(self.name, genes, [ExpressionConstraint(text, names) for text in texts])

    def seeds(self, workload: Workload, device: DeviceLimits) -> tuple[Proposal, ...]:
        """Return what is expected fastest of every kind of product, then one kind for all.

        The former let each kernel begin while the one before it ends. In others the library makes
        every product, or all that a kernel of ours fuses nothing with: first where there are many
        tokens.
        """
        kinds = self._kinds(workload)
        ranked = {name: ranked_starts(jobs, device) for name, jobs in kinds.items()}
        made = [
            _side_by_side(
                {n: {**found[min(r, len(found) - 1)], "pdl": True} for n, found in ranked.items()}
            )
            for r in range(max(map(len, ranked.values())))
        ]
        uniform = [
            {name: starts(jobs[0], device)[place] for name, jobs in kinds.items()}
            for place in _UNIFORM
        ]
        ours = [*made, *map(_side_by_side, uniform)]
        theirs = [_left_to_library(ours[0], names) for names in _BY_LIBRARY]
        few = self._sizes(workload)[0] < _LIBRARY_FIRST
        space = self.space(workload, device)
        return started(space, [*ours, *theirs] if few else [*theirs, *ours])

    def parts(self, workload: Workload, genome: Genome, arch: str) -> list[Prepared]:
        """Return the products of a genome in order."""
        tokens, _, inner = self._sizes(workload)
        multiprocessors = self.limits(arch).multiprocessors
        held = tuple(Scratch(name=name, nbytes=2 * tokens * inner) for name in _BUFFERS)
        own = {spec.name for spec in (*self.operator.inputs, *self.operator.outputs)}

        def place(name: str) -> TensorArgument | ScratchArgument:
            return TensorArgument(name) if name in own else ScratchArgument(name)

        made = []
        for name, job in self.jobs(workload):
            for ready in _made(job, part_genome(name, genome), multiprocessors):
                made.append(replace(ready, steps=placed(ready, place)))
        return [replace(made[0], scratch=(*made[0].scratch, *held)), *made[1:]]


def _made(job: ProductJob, genome: Genome, multiprocessors: int) -> list[Prepared]:
    """Return the parts that make one kind of product."""
    if not is_by_library(genome):
        own = Genome(genome.route, {n: a for n, a in genome.items() if n != BY})
        return [product_prepared(job, own, multiprocessors)]
    if job.gradients is None:
        return [library_part([job], genome)]
    gate, up = job.gradients
    plain = replace(job, up=None, bend="", residual=None, gradients=None, out=gate)
    raised = replace(plain, right=str(job.up), out=up)
    tensors = (str(job.residual), gate, up, job.out)
    gating = gating_part("gate_rows_back", tensors, plain, genome)
    return [library_part([plain, raised], genome), gating]


def _left_to_library(start: Mapping[str, Allele], names: Sequence[str]) -> dict[str, Allele]:
    """Return a start with some kinds of product made by the library."""
    left = {f"{name}_{gene}": allele for name in names for gene, allele in FIRST_CHOICE.items()}
    return {**start, **left}


def _side_by_side(kinds: Mapping[str, Mapping[str, Allele]]) -> dict[str, Allele]:
    """Return the alleles of every kind of product by the names that they have in the whole."""
    return {f"{n}_{gene}": a for n, start in kinds.items() for gene, a in start.items()}
