"""Programs over cuBLASLt's space, on a library and a clock that need no GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.lt_scripted import FormulaWorker, ScriptedDevice

from kernelarc.bench.cuda import _session
from kernelarc.bench.experiments import (
    _library_live,
    _products,
    l1_030,
    library_shapes,
    warm_campaigns,
)
from kernelarc.bench.experiments._library_methods import METHODS
from kernelarc.bench.experiments._machine import write
from kernelarc.engine import _targets


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
    assert figures["means"].keys() == METHODS.keys()
