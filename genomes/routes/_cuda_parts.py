"""Routes of several CUDA sources: each a part, compiled alone; all as one source for a solution."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._constraints import Constraint, ExpressionConstraint
from kernelarc.genomes._errors import InputError
from kernelarc.genomes._gene import Gene
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Workload
from kernelarc.genomes._space import Space
from kernelarc.genomes.kernels import (
    Argument,
    Build,
    KernelReport,
    Launch,
    LaunchPlan,
    LibraryProduct,
    Scratch,
    ScratchArgument,
    Step,
    TensorArgument,
    TensorMap,
    code_hash,
)
from kernelarc.genomes.routes._cuda_route import CudaRoute, Prepared
from kernelarc.genomes.routes._nvrtc import compile_cuda

_DEFINED = re.compile(r"^\s*#\s*define\s+(\w+)", re.MULTILINE)
_WORD = re.compile(r"'[^']*'|[A-Za-z_]\w*")


def joined(parts: Sequence[Prepared]) -> Prepared:
    """Return one source that holds the kernels of all parts, and their steps in order.

    Equal parts stand in it once.
    """
    texts: dict[str, int] = {}
    steps: list[Step] = []
    for part in parts:
        number = texts.setdefault(part.text, len(texts)) if part.launches else -1
        steps += [
            replace(each, symbol=f"{each.symbol}_{number}") if isinstance(each, Launch) else each
            for each in part.steps
        ]
    symbols = {
        number: {launch.symbol for part in parts if part.text == text for launch in part.launches}
        for text, number in texts.items()
    }
    return Prepared(
        source="\n".join(_enclosed(text, n, symbols[n]) for text, n in texts.items()),
        macros={},
        steps=tuple(steps),
        scratch=_all_scratch(parts),
    )


def _all_scratch(parts: Sequence[Prepared]) -> tuple[Scratch, ...]:
    """Return every buffer once, as large as any part wants it."""
    found: dict[str, Scratch] = {}
    for each in (one for part in parts for one in part.scratch):
        held = found.get(each.name)
        if held is None or each.nbytes > held.nbytes:
            found[each.name] = each
    return tuple(found.values())


def _enclosed(text: str, number: int, symbols: set[str]) -> str:
    for symbol in symbols:
        text = re.sub(rf"\b{symbol}\b(?=\s*\()", f"{symbol}_{number}", text)
    undone = "".join(f"#undef {name}\n" for name in dict.fromkeys(_DEFINED.findall(text)))
    return f"namespace part_{number} {{\n{text}\n}}\n{undone}"


def placed(
    part: Prepared, place: Callable[[str], TensorArgument | ScratchArgument]
) -> tuple[Step, ...]:
    """Return a part's steps with the tensors that it names where the whole has them."""

    def lies(source: TensorArgument | ScratchArgument) -> TensorArgument | ScratchArgument:
        return place(source.name) if isinstance(source, TensorArgument) else source

    def moved(argument: Argument) -> Argument:
        if isinstance(argument, TensorMap):
            return replace(argument, source=lies(argument.source))
        return lies(argument) if isinstance(argument, TensorArgument) else argument

    def put(step: Step) -> Step:
        if isinstance(step, Launch):
            return replace(step, arguments=tuple(map(moved, step.arguments)))
        if isinstance(step, LibraryProduct):
            left, right, out = lies(step.left), lies(step.right), lies(step.out)
            added = None if step.added is None else lies(step.added)
            return replace(step, left=left, right=right, out=out, added=added)
        return replace(step, target=lies(step.target))

    return tuple(map(put, part.steps))


class PartedCudaRoute(CudaRoute):
    """A route whose genomes are several sources: what changes one part compiles one.

    A part may have no source: steps of the library alone.
    """

    @abstractmethod
    def parts(self, workload: Workload, genome: Genome, arch: str) -> list[Prepared]:
        """Return the parts of a genome in the order of their launches."""

    def prepared(self, workload: Workload, genome: Genome, arch: str) -> Prepared:
        """Return all parts as one source."""
        return joined(self.parts(workload, genome, arch))

    def build(self, workload: Workload, genome: Genome, arch: str) -> Build:
        """Compile a genome's parts, each alone.

        Raises:
            BuildError: One does not compile.
        """
        binaries: dict[str, bytes] = {}
        steps: list[Step] = []
        reports: list[KernelReport] = []
        parts = self.parts(workload, genome, arch)
        for part in parts:
            if not part.launches:  # the library's
                steps += part.steps
                continue
            code = compile_cuda(part.text, arch, self.options())
            binary = code_hash(code.cubin)
            binaries[binary] = code.cubin
            steps += part.named(binary)
            reports += [
                code.report(x.symbol, threads=x.block[0], shared_bytes=x.shared_bytes)
                for x in part.launches
            ]
        whole = joined(parts)
        return Build(
            plan=LaunchPlan(steps=tuple(steps), scratch=whole.scratch),
            binaries=binaries,
            kernels=tuple(reports),
            arch=arch,
            source=whole.text,
        )


# Genes of a part in a space of several


def prefixed(prefix: str, space: Space) -> tuple[tuple[Gene, ...], list[str]]:
    """Return a part's genes with a prefix before their names, and its constraints as text.

    Raises:
        InputError: A constraint is no text.
    """
    genes = tuple(
        replace(
            gene,
            name=f"{prefix}_{gene.name}",
            when=gene.when and replace(gene.when, gene=f"{prefix}_{gene.when.gene}"),
        )
        for gene in space.genes
    )
    return genes, [_renamed(prefix, each, space.names) for each in space.constraints]


def _renamed(prefix: str, constraint: Constraint, names: Sequence[str]) -> str:
    if not isinstance(constraint, ExpressionConstraint):
        raise InputError(f"constraint {constraint.text!r} of part {prefix!r} is no text")

    def word(found: re.Match[str]) -> str:
        return f"{prefix}_{found[0]}" if found[0] in names else found[0]

    return _WORD.sub(word, constraint.text)


def part_genome(prefix: str, genome: Genome, *, without: Sequence[str] = ()) -> Genome:
    """Return a part's own genome: the genes with its prefix, by their plain names."""
    start = f"{prefix}_"
    alleles = {n.removeprefix(start): a for n, a in genome.items() if n.startswith(start)}
    return Genome(genome.route, {n: a for n, a in alleles.items() if n not in without})


def part_alleles(prefix: str, genome: Genome) -> Mapping[str, Allele]:
    """Return the alleles of a part's genome by the names that they have in the whole."""
    return {f"{prefix}_{name}": allele for name, allele in genome.items()}
