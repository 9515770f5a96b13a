"""What arithmetic says of a tiled product: waves, and loads that keep memory busy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes.routes._grid_hint import GridHint

# A multiprocessor must have so many bytes on their way, or it waits: what the memory delivers to
# it in the microsecond that a load takes, doubled because most comes faster, from the cache.
_ON_THEIR_WAY = 1 << 16
# Threads that load for themselves work out addresses beside multiplying.
_OWN_ADDRESSES = 1.25
_ELEMENT_BYTES = 2


@dataclass(frozen=True, slots=True)
class TileHint:
    """Guesses a genome's time from its tile, its pipeline and how it loads. Fitted to nothing.

    Attributes:
        grid: What its tiles cost.
    """

    grid: GridHint

    @property
    def genes(self) -> tuple[str, ...]:
        """The genes it reads."""
        return ("block_m", "block_n", "block_k", "num_stages", "loop_stages", "split_k", "load")

    def __call__(self, alleles: Mapping[str, Allele]) -> float:
        """Return a relative cost; what is not given counts as the least."""
        m, n, k = (_whole(alleles, f"block_{axis}", 16) for axis in "mnk")
        splits = _whole(alleles, "split_k", 1)
        # The grid's rows are the library's, whose product is the transposed one.
        cost = self.grid({"tile_m": n, "tile_n": m, "splitk": splits})
        stages = _whole(alleles, "loop_stages", 0) or _whole(alleles, "num_stages", 2)
        flying = max(stages - 1, 1) * (m + n) * k * _ELEMENT_BYTES
        cost *= max(1.0, _ON_THEIR_WAY / flying)
        return cost * (_OWN_ADDRESSES if alleles.get("load") == "pointer" else 1.0)


def _whole(alleles: Mapping[str, Allele], gene: str, least: int) -> int:
    found = alleles.get(gene)
    return found if type(found) is int else least
