"""The source that a genome stands for: what would be compiled, and with which options."""

from __future__ import annotations

from pathlib import Path

from kernelarc.bench.kernelfile import names_kernel_file
from kernelarc.genomes import Genome, InputError
from kernelarc.genomes.routes import cpu_routes
from kernelarc.genomes.triton import content_of
from kernelarc.storage import CampaignRow

_CONTENT = "triton.kernel_file"


def source_of(row: CampaignRow, genome: Genome) -> str | None:
    """Return the source of a genome of a campaign with its options and macros written in.

    Returns:
        Text that a C compiler takes as it is, given the options in its first comment; for a
        kernel file its text with the genome in a comment; None where the route has no source
        here (a recorded space, a route of one's own).
    """
    target = str(row.spec.settings.get("target", row.spec.target))
    if names_kernel_file(target):
        return _kernel_file(row, target, genome)
    problem = row.spec.problem
    route = cpu_routes(problem.operator).get(genome.route)
    if route is None:
        return None
    macros = route.macros(genome)
    options = [option for option in route.options(genome) if not option.startswith("-D")]
    lines = [
        f"/* {problem.operator.name}, route {genome.route}, genome {genome.fingerprint} */",
        f"/* cc {' '.join(options)} */",
        *(f"#define {name} {text}" for name, text in macros.items()),
        "",
        route.source,
    ]
    return "\n".join(lines)


def _kernel_file(row: CampaignRow, target: str, genome: Genome) -> str | None:
    """Return a kernel file's text, where the file is still the one that was measured."""
    path = Path(target if target.endswith(".py") else target.rpartition(":")[0])
    try:
        if content_of(path) != row.environment.identity.get(_CONTENT):
            return None
    except InputError:
        return None
    alleles = ", ".join(f"{name}={value!r}" for name, value in genome.items())
    return f"# {path}, genome {genome.fingerprint}\n# {alleles}\n\n{path.read_text('utf-8')}"
