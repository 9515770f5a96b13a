"""What the formats for Triton's genomes share: which bests qualify, and their parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelarc.genomes import Allele, Genome, InputError, Workload
from kernelarc.storage._contract import Best
from kernelarc.storage.exports._subject import Subject

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Genes that Triton's compiler takes beside a kernel's constants."""

NEUTRAL: Mapping[str, Allele] = {"num_ctas": 1, "maxnreg": 0}
"""Alleles of options that say what Triton does anyway."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A workload with its audited best, a genome that Triton compiles."""

    workload: Workload
    best: Best

    @property
    def genome(self) -> Genome:
        """The genome."""
        return self.best.evaluation.candidate.genome

    @property
    def constants(self) -> dict[str, Allele]:
        """The genes that are constants of the kernel."""
        return {name: value for name, value in self.genome.items() if name not in OPTIONS}

    @property
    def options(self) -> dict[str, int]:
        """The compiler's options, without those that change nothing."""
        return {
            name: int(self.genome[name])  # type: ignore[arg-type]
            for name in OPTIONS
            if name in self.genome and self.genome[name] != NEUTRAL.get(name)
        }

    @property
    def gain(self) -> str:
        """How fast it is, in a few words."""
        timed, found = self.best.evaluation.measurement, self.best.speedup
        assert timed is not None
        text = f"{timed.objective:.6g} {timed.unit}"
        if found is None or self.best.against is None:
            return text
        against = self.best.against.removeprefix("baseline:")
        return f"{text}, {found.value:.3f} [{found.low:.3f}, {found.high:.3f}] x {against}"


def compiled_bests(subject: Subject, format: str) -> list[Compiled]:
    """Return the workloads whose audited best is a genome of Triton, in the problem's order.

    Raises:
        InputError: There is none; the message says whether none was audited or none is Triton's.
    """
    number = subject.campaign.id
    there = [Compiled(w, b) for w in subject.workloads if (b := subject.best(w)) is not None]
    triton = [each for each in there if is_triton(each.genome)]
    if not triton:
        routes = ", ".join(sorted({each.genome.route for each in there}))
        raise InputError(
            f"campaign {number}: format {format} holds Triton kernels, and its bests are of "
            f"route {routes}"
        )
    audited = [each for each in triton if each.best.audited]
    if not audited:
        raise InputError(
            f"campaign {number}: no best was audited yet, and format {format} holds nothing else; "
            f"'kernelarc resume' or 'kernelarc verify' audits it"
        )
    return audited


def is_triton(genome: Genome) -> bool:
    """Tell whether a genome is one that Triton compiles: it has a number of warps."""
    return "num_warps" in genome


def left_out(subject: Subject, kept: list[Compiled]) -> list[str]:
    """Return one line for each workload that is not exported."""
    inside = {each.workload.fingerprint for each in kept}
    lines = []
    for workload in subject.workloads:
        best = subject.best(workload)
        if workload.fingerprint not in inside:
            route = "" if best is None else best.evaluation.candidate.genome.route
            audited = best is not None and best.audited
            why = f"its best is of route {route}" if audited else "no best of it was audited"
            lines.append(f"{workload.label}: {why}")
    return lines


def renamed(each: Compiled, names: Mapping[str, tuple[str, ...]], format: str) -> dict[str, Any]:
    """Return a genome under another program's names, which it must have exactly.

    Args:
        each: The genome.
        names: What the other program calls a gene, with the names that it may have here, in
            lower case.
        format: For the message.

    Raises:
        InputError: A gene is missing, or one has no counterpart and is not neutral.
    """
    wanted = {alias: name for name, aliases in names.items() for alias in aliases}
    found: dict[str, Any] = {}
    for gene, allele in each.genome.items():
        name = wanted.get(gene.lower())
        if name is not None:
            found[name] = allele
        elif not is_neutral(gene, allele):
            raise InputError(
                f"format {format}: gene {gene!r} of genome {each.genome.fingerprint} has no "
                f"counterpart there; pin it to what changes nothing and search again"
            )
    missing = [name for name in names if name not in found]
    if missing:
        raise InputError(
            f"format {format}: genome {each.genome.fingerprint} has no gene for {missing[0]} "
            f"(it has {', '.join(each.genome)})"
        )
    return {name: found[name] for name in names}


_IDLE: Mapping[str, Allele] = {
    "split_k": 1,
    "splitk": 1,
    "sm_multiplier": 1,
    "sm_multiple": 1,
    "load": "pointer",
    "loop_stages": 0,
    "epilogue_parts": 1,
}
"""Alleles of genes that some kernels have and others lack, at which both do the same."""


def is_neutral(gene: str, allele: Allele) -> bool:
    """Tell whether an allele changes nothing for a program that has no such gene."""
    if gene in NEUTRAL:
        return allele == NEUTRAL[gene]
    # A switch that is off, a hint that is not given, where a result lies.
    return allele is False or allele == "" or allele == _IDLE.get(gene.lower()) or gene == "aliased"
