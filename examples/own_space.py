"""Define a space of one's own: genes, a conditional gene, constraints."""

import numpy as np

from kernelarc import (
    Boolean,
    Choice,
    ExpressionConstraint,
    IntegerRange,
    Permutation,
    PowerOfTwo,
    PredicateConstraint,
    Space,
    When,
)


def fits_into_cache(block_m: int, block_k: int) -> bool:
    """Tell whether a block of float32 fits into 32 KiB."""
    return block_m * block_k * 4 <= 32 * 1024


def make_space() -> Space:
    """Return the space of a blocked kernel."""
    genes = (
        PowerOfTwo(name="block_m", low=8, high=256),
        PowerOfTwo(name="block_k", low=8, high=256),
        IntegerRange(name="unroll", low=1, high=8),
        Choice(name="store", options=("plain", "streaming")),
        Boolean(name="prefetch"),
        IntegerRange(name="distance", low=1, high=16, when=When("prefetch", (True,))),
        Permutation(name="loops", items=("i", "j", "k")),
    )
    constraints = (
        PredicateConstraint(fits_into_cache),
        ExpressionConstraint("block_k % unroll == 0", [gene.name for gene in genes]),
    )
    return Space("blocked", genes, constraints)


def main() -> None:
    """Sample a genome, step from it, and encode it for a model."""
    space = make_space()
    size = space.size()
    print(f"{size.raw:,} combinations, {size.legal:,} legal")

    rng = np.random.default_rng(1)
    genome = space.sample(rng)
    print(f"a legal genome, drawn evenly: {dict(genome)}")
    assert space.contains(genome)

    steps = space.neighbours(genome)
    changed = space.diff(genome, steps[0])[0]
    print(f"{len(steps)} legal steps; the first: {changed.gene} to {changed.after}")
    print(f"why not: {space.violation({**genome.alleles(), 'block_m': 256, 'block_k': 256})}")
    assert space.encode(genome).shape == (space.width,)


if __name__ == "__main__":
    main()
