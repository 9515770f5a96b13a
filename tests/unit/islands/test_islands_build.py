"""Which islands wake, why others sleep, and spaces too small to search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernelarc.genomes import Boolean, Choice, InputError, Space, Strategy
from kernelarc.islands import Habitat, build_islands


def habitat(space: Space, capability: int | None = None) -> Habitat:
    return Habitat(spaces={space.route: space}, workload="w", capability=capability)


def test_all_eight_are_built_in_a_fixed_order(world: Any) -> None:
    islands = build_islands(habitat(world.spaces["plain"]))
    assert [island.name for island in islands] == [strategy.value for strategy in Strategy]
    assert [island.strategy for island in islands] == list(Strategy)


def test_islands_without_genes_say_why_they_sleep(world: Any) -> None:
    asleep = {i.name: i.asleep() for i in build_islands(habitat(world.spaces["plain"]))}
    assert asleep["library"] == "No gene here belongs to library."
    assert [name for name, why in asleep.items() if why] == ["library", "blackwell"]


@pytest.mark.parametrize(("capability", "awake"), [(None, False), (90, False), (100, True)])
def test_blackwell_wakes_from_capability_ten(capability: int | None, awake: bool) -> None:
    space = Space(
        "r",
        [
            Boolean(name="two_cta", strategy=Strategy.BLACKWELL),
            Boolean(name="x", strategy=Strategy.MEMORY),
        ],
    )
    (island,) = build_islands(habitat(space, capability), only=["blackwell", "memory"])[1:]
    why = island.asleep()
    assert (why is None) == awake
    if why is not None:
        assert "10.0" in why
        assert island.ask(3, np.random.default_rng(0), _nothing()) == []


def _nothing() -> Any:
    class Empty:
        def evaluated(self, fingerprint: str) -> bool:
            return False

        def recent(self, n: int) -> list[Any]:
            return []

        def best(self, n: int) -> list[Any]:
            return []

        def count(self) -> int:
            return 0

    return Empty()


def test_only_the_named_are_built(world: Any) -> None:
    islands = build_islands(habitat(world.spaces["plain"]), only=["fusion", "memory"])
    assert [island.name for island in islands] == ["memory", "fusion"]
    assert build_islands(habitat(world.spaces["plain"]), only=[]) == []


def test_an_unknown_island_is_answered_with_the_nearest(world: Any) -> None:
    with pytest.raises(InputError, match=r"no island 'fusoin' \(did you mean 'fusion'\?\)"):
        build_islands(habitat(world.spaces["plain"]), only=["fusoin"])


def test_where_nobody_owns_a_gene_one_island_wakes_all_the_same() -> None:
    space = Space("r", [Choice(name="x", options=(1, 2, 3, 4), strategy=Strategy.BLACKWELL)])
    islands = build_islands(habitat(space))
    awake = [island for island in islands if island.asleep() is None]
    assert [island.name for island in awake] == ["library"]
    assert len(awake[0].ask(2, np.random.default_rng(0), _nothing())) == 2


@pytest.mark.parametrize(
    ("name", "legal"), [("single", 1), ("pair", 2), ("line", 41), ("pinned", 1)]
)
@pytest.mark.parametrize("models", [False, True])
def test_small_spaces_are_exhausted_without_a_crash(
    world: Any, name: str, legal: int, models: bool
) -> None:
    islands = world.islands(name, models=models)
    assert islands
    log = world.play(islands, 4 * legal + 20)
    assert log.count() == legal
    assert all(island.ask(3, np.random.default_rng(0), log) == [] for island in islands)


def test_equal_objectives_everywhere_only_restart(world: Any) -> None:
    islands = world.islands("plain", plateau=10)
    log = world.play(islands, 200, objective=lambda genome: 1.0)
    assert log.count() == 200
    assert any(j.evaluation.candidate.mutation == "plateau.restart" for j in log.judged)


def test_a_huge_space_is_searched_without_listing_it(world: Any) -> None:
    islands = world.islands("huge", models=True)
    log = world.play(islands, 40)
    assert log.count() == 40
    start = min(j.evaluation.measurement.objective for j in log.judged[:12] if j.verdict != "FAIL")
    assert log.best(1)[0].evaluation.measurement.objective < start
