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
    ScratchArgument,
    TensorArgument,
    TensorMap,
    code_hash,
)
from kernelarc.genomes.routes._cuda_route import CudaRoute, Prepared
from kernelarc.genomes.routes._nvrtc import compile_cuda

_DEFINED = re.compile(r"^\s*#\s*define\s+(\w+)", re.MULTILINE)
_WORD = re.compile(r"'[^']*'|[A-Za-z_]\w*")


def joined(parts: Sequence[Prepared]) -> Prepared:
    """Return one source that holds the kernels of all parts, and their launches in order.

    Equal parts stand in it once.
    """
    texts: dict[str, int] = {}
    launches: list[Launch] = []
    for part in parts:
        number = texts.setdefault(part.text, len(texts))
        launches += [replace(each, symbol=f"{each.symbol}_{number}") for each in part.launches]
    symbols = {
        number: {launch.symbol for part in parts if part.text == text for launch in part.launches}
        for text, number in texts.items()
    }
    scratch = {each.name: each for part in parts for each in part.scratch}
    return Prepared(
        source="\n".join(_enclosed(text, n, symbols[n]) for text, n in texts.items()),
        macros={},
        launches=tuple(launches),
        scratch=tuple(scratch.values()),
    )


def _enclosed(text: str, number: int, symbols: set[str]) -> str:
    for symbol in symbols:
        text = re.sub(rf"\b{symbol}\b(?=\s*\()", f"{symbol}_{number}", text)
    undone = "".join(f"#undef {name}\n" for name in dict.fromkeys(_DEFINED.findall(text)))
    return f"namespace part_{number} {{\n{text}\n}}\n{undone}"


def placed(
    part: Prepared, place: Callable[[str], TensorArgument | ScratchArgument]
) -> tuple[Launch, ...]:
    """Return a part's launches with the tensors that it names where the whole has them."""

    def moved(argument: Argument) -> Argument:
        if isinstance(argument, TensorMap) and isinstance(argument.source, TensorArgument):
            return replace(argument, source=place(argument.source.name))
        return place(argument.name) if isinstance(argument, TensorArgument) else argument

    return tuple(
        replace(launch, arguments=tuple(map(moved, launch.arguments))) for launch in part.launches
    )


class PartedCudaRoute(CudaRoute):
    """A route whose genomes are several sources: what changes one part compiles one."""

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
        launches: list[Launch] = []
        reports: list[KernelReport] = []
        parts = self.parts(workload, genome, arch)
        for part in parts:
            code = compile_cuda(part.text, arch, self.options())
            binary = code_hash(code.cubin)
            binaries[binary] = code.cubin
            launches += [replace(launch, binary=binary) for launch in part.launches]
            reports += [
                code.report(x.symbol, threads=x.block[0], shared_bytes=x.shared_bytes)
                for x in part.launches
            ]
        whole = joined(parts)
        return Build(
            plan=LaunchPlan(steps=tuple(launches), scratch=whole.scratch),
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
