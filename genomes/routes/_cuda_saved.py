"""The route ``cuda`` of one expert's backward pass whose activations were kept: four products.

The gradient inside the expert, which ends in the gradients of gate and up; the tokens' gradient,
all products in one loop; the weights' gradients, of gate and up and of the down-projection. What
the gradients of gate and up are multiplied as is a gene of each: rounded once, or as two roundings
whose products are added. The library can make the weights' gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from kernelarc.genomes._alleles import Allele
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
    Scratch,
    ScratchArgument,
    TensorArgument,
)
from kernelarc.genomes.routes._cuda_gemm import FILE, product_prepared
from kernelarc.genomes.routes._cuda_gemm_space import ProductJob, product_space, starts
from kernelarc.genomes.routes._cuda_parts import PartedCudaRoute, part_genome, placed, prefixed
from kernelarc.genomes.routes._cuda_route import Prepared, started
from kernelarc.genomes.routes._library_part import (
    BY,
    FIRST_CHOICE,
    is_by_library,
    library_part,
    made_by_either,
)
from kernelarc.genomes.routes._product_cost import ranked_starts
from kernelarc.genomes.routes._signature import Binding, extent, matched
from kernelarc.genomes.routes._triton_saved import SAVED_IN, SAVED_OUT

FORMS = ("pair", "one")
FORM = "form"

_VECTOR = 8  # elements of 16 bytes, as the copy engine counts rows
_UNIFORM = (3, 5)  # of a product's starts: tiles in turns, and smaller ones
_EITHER = ("weight", "down")
_FORMED = ("token", "weight")
_ROWS = _BY_GATE, _BY_UP = "gate rows", "up rows"
_RESTS = _GATE_REST, _UP_REST = "gate rest", "up rest"


def cuda_saved_route(operator: Operator) -> KernelRoute | None:
    """Return the route of an operator whose tensors are one expert's and what it kept, or None."""
    found = matched(operator, SAVED_IN, SAVED_OUT)
    return None if found is None else CudaSaved(operator, found)


class CudaSaved(PartedCudaRoute):
    """Gradients of one expert from kept activations, by CUDA C++.

    Args:
        operator: What it implements.
        found: Which axes are tokens (T), features of a token (H) and of a hidden row (I).
    """

    files = (FILE,)

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

    def jobs(self, workload: Workload, forms: Mapping[str, Allele]) -> list[tuple[str, ProductJob]]:
        """Return the products in order, each with the part whose genes it has.

        Args:
            workload: Of which sizes.
            forms: What ``token`` and ``weight`` multiply the gradients of gate and up as.
        """
        t, h, i = self._sizes(workload)
        grad, x, gate, up, down, *kept, hidden = (spec.name for spec in self.operator.inputs)
        grad_x, grad_gate, grad_up, grad_down = (spec.name for spec in self.operator.outputs)
        job = partial(ProductJob, dtype=self.found["float"][0], right_across=True)
        weight = partial(job, k=t, left_across=True)
        paired = {name: forms[name] == "pair" for name in _FORMED}
        rests = _RESTS if any(paired.values()) else ()
        inner = job(
            m=t, n=i, k=h, left=grad, right=down, out=_BY_GATE, kept=(_BY_UP, *kept, *rests)
        )
        token = job(
            m=t, n=h, k=i, left=_BY_GATE, right=gate, second=(_BY_UP, up),
            rests=_RESTS if paired["token"] else None, out=grad_x,
        )  # fmt: skip
        weights = [
            weight(
                m=i, n=h, left=rows, right=x, out=out,
                second=(rest, x) if paired["weight"] else None,
            )
            for rows, rest, out in zip(_ROWS, _RESTS, (grad_gate, grad_up), strict=True)
        ]  # fmt: skip
        return [
            ("inner", inner),
            ("token", token),
            *(("weight", each) for each in weights),
            ("down", weight(m=h, n=i, left=grad, right=hidden, out=grad_down)),
        ]

    def _kinds(self, workload: Workload) -> dict[str, tuple[ProductJob, ...]]:
        """Return the products by the part whose genes they have, as pairs where there are any."""
        kinds: dict[str, tuple[ProductJob, ...]] = {}
        for name, job in self.jobs(workload, dict.fromkeys(_FORMED, "pair")):
            kinds[name] = (*kinds.get(name, ()), job)
        return kinds

    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return the genes of every kind of product."""
        genes: list[Gene] = []
        texts: list[str] = []
        for name, jobs in self._kinds(workload).items():
            own = product_space(self.name, jobs[0], device)
            if name in _EITHER:
                ranked = ranked_starts(jobs, device) or starts(jobs[0], device)
                made = made_by_either(name, own, {**ranked[0], "pdl": True})
            else:
                made = prefixed(name, own)
            genes += made[0]
            texts += made[1]
            if name in _FORMED:
                genes.append(_form(name))
        names = tuple(gene.name for gene in genes)
        return Space(self.name, genes, [ExpressionConstraint(text, names) for text in texts])

    def seeds(self, workload: Workload, device: DeviceLimits) -> tuple[Proposal, ...]:
        """Return what is expected fastest of every kind of product, then one kind for all.

        The former let each kernel begin while the one before it ends. Then the library makes the
        weights' gradients. None multiplies what was rounded once: that fails where results near
        zero must be right.
        """
        kinds = self._kinds(workload)
        ranked = {name: ranked_starts(jobs, device) for name, jobs in kinds.items()}
        made: list[dict[str, Mapping[str, Allele]]] = [
            {n: {**found[min(r, len(found) - 1)], "pdl": True} for n, found in ranked.items()}
            for r in range(max(map(len, ranked.values())))
        ]
        made += [{n: starts(jobs[0], device)[r] for n, jobs in kinds.items()} for r in _UNIFORM]
        ours = [
            {f"{n}_{gene}": a for n, start in each.items() for gene, a in start.items()}
            for each in made
        ]
        theirs = {f"{name}_{gene}": a for name in _EITHER for gene, a in FIRST_CHOICE.items()}
        return started(self.space(workload, device), [*ours, {**ours[0], **theirs}])

    def parts(self, workload: Workload, genome: Genome, arch: str) -> list[Prepared]:
        """Return the products of a genome in order."""
        tokens, _, inner = self._sizes(workload)
        multiprocessors = self.limits(arch).multiprocessors
        forms = {name: genome[f"{name}_{FORM}"] for name in _FORMED}
        buffers = _ROWS + (_RESTS if "pair" in forms.values() else ())
        held = tuple(Scratch(name=name, nbytes=2 * tokens * inner) for name in buffers)
        own = {spec.name for spec in (*self.operator.inputs, *self.operator.outputs)}

        def place(name: str) -> TensorArgument | ScratchArgument:
            return TensorArgument(name) if name in own else ScratchArgument(name)

        made = []
        for name, job in self.jobs(workload, forms):
            ready = _made(job, part_genome(name, genome, without=(FORM,)), multiprocessors)
            made.append(replace(ready, steps=placed(ready, place)))
        return [replace(made[0], scratch=(*made[0].scratch, *held)), *made[1:]]


def _form(name: str) -> Gene:
    return Choice(
        name=f"{name}_{FORM}",
        options=FORMS,
        strategy=Strategy.PRECISION,
        description="What gradients of gate and up are multiplied as: two roundings, or one.",
    )


def _made(job: ProductJob, genome: Genome, multiprocessors: int) -> Prepared:
    """Return the part that makes one product."""
    if is_by_library(genome):
        return library_part([job], genome)
    own = Genome(genome.route, {n: a for n, a in genome.items() if n != BY})
    return product_prepared(job, own, multiprocessors)
