"""Which genomes of elsewhere are tried first."""

from __future__ import annotations

from kernelarc.engine._firsts import _unlike
from kernelarc.genomes import Choice, Genome, Space

TILES = (8, 16, 32, 64, 128, 256)
SPACES = {
    name: Space(name, [Choice(name=gene, options=TILES) for gene in ("m", "n")])
    for name in ("here", "there")
}


def genome(m: int, n: int, route: str = "here") -> Genome:
    return SPACES[route].genome({"m": m, "n": n})


def test_the_best_comes_first_and_then_what_is_unlike_all_before() -> None:
    ranked = [genome(8, 8), genome(8, 16), genome(16, 8), genome(256, 256), genome(8, 256)]
    assert _unlike(ranked, SPACES, 3) == [ranked[0], ranked[3], ranked[4]]


def test_of_equally_far_ones_the_better_is_taken() -> None:
    ranked = [genome(8, 8), genome(8, 256), genome(256, 8)]
    assert _unlike(ranked, SPACES, 2) == ranked[:2]


def test_another_route_is_farthest_of_all() -> None:
    ranked = [genome(8, 8), genome(256, 256), genome(8, 8, "there")]
    assert _unlike(ranked, SPACES, 2) == [ranked[0], ranked[2]]


def test_few_are_all_taken() -> None:
    assert _unlike([], SPACES, 4) == []
    assert _unlike([genome(8, 8)], SPACES, 4) == [genome(8, 8)]
