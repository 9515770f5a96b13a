"""Programs over cuBLASLt's space, on a library and a clock that need no GPU."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.lt_scripted import FormulaWorker, ScriptedDevice

from kernelarc.bench import ReplayDevice
from kernelarc.bench.cuda import _session
from kernelarc.bench.experiments import (
    _library_live,
    _paced_bench,
    _products,
    l1_030,
    library_shapes,
    warm_campaigns,
)
from kernelarc.bench.experiments._library_methods import METHODS, Play
from kernelarc.bench.experiments._machine import write
from kernelarc.engine import CampaignResult, CampaignSettings, StopRequest, _targets, run
from kernelarc.genomes import CublasLtSpace, Genome, Space


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_session, "WorkerProcess", lambda ordinal, *_: FormulaWorker(ordinal))
    monkeypatch.setattr(_targets, "KernelDevice", ScriptedDevice)
    for module in (_products, _library_live):
        monkeypatch.setattr(module, "CudaDevice", ScriptedDevice)


def counted(shapes: Any, options: Any, store: Path, *, seconds: float, seed: int) -> Any:
    """Search by count: how much half a second a shape is depends on the machine."""
    assert seconds == 0.5 * len(shapes)
    return _products.search(shapes, options, store, budget=60 * len(shapes), seed=seed)


def test_a_campaign_is_verified_and_timed_warm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(l1_030, "TOKENS", (256, 1024))
    monkeypatch.setattr(l1_030, "search", counted)
    figures = l1_030.measure(0.5, 0, tmp_path / "s.db", tmp_path / "o.json")
    assert figures["geometric_mean"] > 1.0 and not figures["never_slower"]["not_surely_faster"]
    assert [row["holds"] for row in figures["verify"]["verified"]] == [True, True]
    assert len(figures["warm"]["speedups"]) == 2
    kept = json.loads((tmp_path / "o.json").read_text())
    assert kept["geometric_mean"] == figures["geometric_mean"] and "verify" in kept


def test_a_campaign_that_was_stopped_has_no_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(settings: CampaignSettings) -> CampaignResult:
        stop = StopRequest()
        stop.ask("SIGTERM")
        return run(settings, stop=stop)

    monkeypatch.setattr(_products, "run", stopped)
    monkeypatch.setattr(library_shapes, "SHAPES", library_shapes.SHAPES[:2])
    with pytest.raises(SystemExit, match="the campaign over 2 products was stopped"):
        library_shapes.measure(0.5, 0, tmp_path / "o.json")
    assert not (tmp_path / "o.json").exists()


def test_plain_and_residual_products_have_a_campaign_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_shapes, "SHAPES", library_shapes.SHAPES[:2])
    monkeypatch.setattr(library_shapes, "search", counted)
    figures = library_shapes.measure(0.5, 0, tmp_path / "o.json")
    plain, residual = figures["campaigns"].values()
    assert len(plain["campaign"]["bests"]) == len(residual["uses"]) == 2
    assert "in_place=True" in residual["campaign"]["bests"][0]["workload"]
    assert plain["geometric_mean"] > 1.0 and not plain["never_slower"]["not_surely_faster"]
    assert json.loads((tmp_path / "o.json").read_text())["campaigns"].keys() == {
        "plain",
        "with residual in place",
    }
    only = library_shapes.measure(0.5, 0, None, library_shapes.KINDS[1:])
    assert list(only["campaigns"]) == ["with residual in place"]


def test_a_warm_campaign_has_a_third_and_is_timed_beside_the_cold_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_campaigns, "TOKENS", (256, 512))
    monkeypatch.setattr(warm_campaigns, "NEIGHBOURS", (384,))
    figures = warm_campaigns.measure(None, 90, 1, tmp_path, tmp_path / "o.json")
    spent = [figures[name]["campaign"]["evaluations"]["unique"] for name in ("warm", "cold")]
    assert spent == [30, 90]
    (row,) = figures["side_by_side"].values()
    assert row["warm_over_cold"]["low"] <= row["warm_over_cold"]["estimate"]
    assert figures["of"] == 1
    (standing,) = figures["warm"]["standing"].values()
    assert standing[0][0] == 1


def test_live_searches_end_after_whole_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        _library_live, "LIVE", ((True, 586, 64, 512), (False, 384, 64, 512), (False, 96, 64, 512))
    )
    output = tmp_path / "o.json"
    written: list[dict[str, Any]] = []

    def watched(figures: Any, path: Path | None) -> None:
        write(figures, path)
        written.append(json.loads(output.read_text()))

    monkeypatch.setattr(_library_live, "write", watched)
    figures = _library_live.live(25, 3, 0.01, output)
    assert [shape["repeats"] for shape in figures["shapes"]] == [1, 1, 1]
    assert [len(then["shapes"]) for then in written] == [1, 2, 3]
    ours = figures["shapes"][0]["methods"]["islands with conclusions"]
    assert ours["speedup_at"]["25"][0] > 0.99
    assert ours["evaluations"] == [25]
    assert figures["means"].keys() == METHODS.keys()


def test_means_are_of_as_many_repeats_of_each_product() -> None:
    once, twice = (_library_live._LiveRow((False, m, 64, 512), 25) for m in (96, 384))
    for row, found in ((once, [1.1]), (twice, [1.1, 4.0])):
        row.repeats = len(found)
        row.speedups = {name: {25: found} for name in METHODS}
    means, repeats = _library_live.means_of([once, twice])
    assert repeats == 1
    assert {mark for row in means.values() for mark in row.values()} == {1.1}


def test_the_second_kind_gets_no_more_repeats_than_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counted_repeats(session: Any, rows: Any, repeats: int, until: float, told: Any) -> int:
        asked.append(repeats)
        return _repeated(session, rows, 1, until, told)

    _repeated = _library_live._repeated
    monkeypatch.setattr(_library_live, "LIVE", ((True, 586, 64, 512), (False, 96, 64, 512)))
    monkeypatch.setattr(_library_live, "_repeated", counted_repeats)
    figures = _library_live.live(25, 3, 1e9, tmp_path / "o.json")
    assert asked == [3, 1]
    assert figures["repeats_in_means"] == 1


def test_a_writer_that_is_stopped_leaves_the_file_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "o.json"
    write({"figure": 1}, output)

    def stopped(self: Path, text: str) -> int:
        with self.open("w") as file:
            file.write(text[:5])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", stopped)
    with pytest.raises(KeyboardInterrupt):
        write({"figure": 2}, output)
    assert json.loads(output.read_text()) == {"figure": 1}


def test_a_sampler_is_asked_so_often_and_no_more() -> None:
    class Nothing:
        """A source whose library refuses all but the heuristic."""

        def __init__(self) -> None:
            self.space: Space = space
            self.seeds: Sequence[Genome] = [first]
            self.asked = 0

        def times(self, genomes: Any) -> list[float | None]:
            self.asked += len(genomes)
            return [1.0 if genome == first else None for genome in genomes]

        def device(self) -> Any:
            raise AssertionError("no device is needed where nothing is legal")

    space = CublasLtSpace(_paced_bench.offer()[0]).space
    first = next(iter(ReplayDevice(_paced_bench.RECORDING).recording.seeds)).genome
    source = Nothing()
    play = Play(source, 10, most_asks=2)
    METHODS["Optuna TPE alone"](play, 0)
    assert len(play.best) == 1
    assert 1 < source.asked <= 1 + 2 * 10
