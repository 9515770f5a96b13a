"""Compiler flags that the built-in routes' precision genes stand for."""

from __future__ import annotations

from kernelarc.genomes._gene import Gene
from kernelarc.genomes._genes import Boolean, Choice
from kernelarc.genomes._strategies import Strategy
from kernelarc.genomes.routes._route import FlagTable

# Without -ffast-math itself: with it, some compilers link start-up code into a shared library
# that switches denormals off in whatever process loads it.
_RELAXED = (
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-signed-zeros",
    "-fassociative-math",
    "-freciprocal-math",
)

FLAGS: dict[str, FlagTable] = {
    "optimise": {level: (f"-{level}",) for level in ("Os", "O1", "O2", "O3")},
    "contract": {"off": ("-ffp-contract=off",), "fast": ("-ffp-contract=fast",)},
    "relaxed_math": {False: (), True: _RELAXED},
}

BASE_FLAGS = ("-std=gnu11", "-march=native", "-w")
"""Of every kernel. Warnings are off: sources are ours and tested, the pool is in a hurry."""


def flag_genes() -> tuple[Gene, ...]:
    """Return the genes that become compiler flags."""
    owner = Strategy.PRECISION
    return (
        Choice(
            name="optimise",
            options=tuple(FLAGS["optimise"]),
            strategy=owner,
            description="Optimisation level of the compiler.",
        ),
        Choice(
            name="contract",
            options=tuple(FLAGS["contract"]),
            strategy=owner,
            description="Whether a multiplication and an addition may round once.",
        ),
        Boolean(
            name="relaxed_math",
            strategy=owner,
            description="Whether sums may be reordered and divisions become multiplications.",
        ),
    )
