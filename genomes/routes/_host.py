"""What a processor offers, as far as the bounds of a space depend on it."""

from __future__ import annotations

from dataclasses import dataclass

from kernelarc.genomes._gene import Gene
from kernelarc.genomes._genes import Choice, PowerOfTwo
from kernelarc.genomes._strategies import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class HostShape:
    """The few figures of a processor that decide which genomes make sense.

    They bound domains and constraints; none of them is a hint where the best genome lies.

    Attributes:
        threads: Cores that a kernel may use.
        vector_floats: float32 lanes of the widest vector register.
        vector_registers: How many vector registers there are.
        l2_bytes: Size of one core's second-level cache.
        streaming_stores: Whether the kernels know a store past the caches here.
    """

    threads: int
    vector_floats: int = 4
    vector_registers: int = 16
    l2_bytes: int = 512 << 10
    streaming_stores: bool = False

    def thread_counts(self) -> tuple[int, ...]:
        """Return the powers of two below the number of cores, and that number."""
        powers = [1 << e for e in range(self.threads.bit_length()) if 1 << e < self.threads]
        return (*powers, self.threads)


def vector_gene(host: HostShape) -> Gene:
    """Return the gene that sets how many floats a vector of a kernel has."""
    return PowerOfTwo(
        name="vec",
        low=host.vector_floats // 2,
        high=host.vector_floats,
        strategy=Strategy.MEMORY,
        description="Floats in a vector: a whole register or half of one.",
    )


def threads_gene(host: HostShape) -> Gene:
    """Return the gene that sets how many threads a kernel uses."""
    return Choice(
        name="threads",
        options=host.thread_counts(),
        strategy=Strategy.SCHEDULING,
        description="Threads, the caller's included.",
    )
