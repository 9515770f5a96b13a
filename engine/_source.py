"""The C source that a genome stands for: what would be compiled, and with which options."""

from __future__ import annotations

from kernelarc.genomes import Genome, Problem
from kernelarc.genomes.routes import cpu_routes


def source_of(problem: Problem, genome: Genome) -> str | None:
    """Return the source of a genome with its options and macros written in.

    Returns:
        Text that a C compiler takes as it is, given the options in its first comment; None where
        the route has no source here (a recorded space, a route of one's own).
    """
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
