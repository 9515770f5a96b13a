"""Whole campaigns over compiled kernels: a formula stands for the GPU, everything else is real."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.unit.compiling_routes import PlantedRoute

from kernelarc.bench.kernels import KernelDevice, _device, _line
from kernelarc.engine import CampaignSettings, result_of, resume, run
from kernelarc.genomes import ConclusionKind, Environment, Status, Verdict, builtin_problem
from kernelarc.storage import open_reader

PROBLEM = builtin_problem("gemm")
WAYS = (
    "good",
    "twin",
    "slow",
    "wrong",
    "dies",
    "takes the context",
    "too wide",
    "refuses",
    "aborts",
    "raises",
)


class FormulaDevice(KernelDevice):
    """The device itself, but for what it needs installed."""

    def environment(self) -> Environment:
        return Environment(identity={"device": "formula"})


@pytest.fixture(autouse=True)
def _formula(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELARC_LOCK_DIR", str(tmp_path))
    monkeypatch.setattr(_line, "_BENCH", "tests.unit.formula_bench:FormulaBench")
    monkeypatch.setattr(_device, "demand_parts", lambda: None)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))


def _device_of(ways: tuple[str, ...], idle: int = 1, ordinal: int = 5) -> FormulaDevice:
    route = PlantedRoute(PROBLEM.operator, ways=ways, idle=idle)
    return FormulaDevice(f"cuda:{ordinal}", [route], processes=2)


def _settings(folder: Path, **more: int) -> CampaignSettings:
    store = str(folder / "store.db")
    return CampaignSettings(target="gemm", device="cuda:5", store=store, **more)  # type: ignore[arg-type]


def test_a_campaign_survives_everything_and_names_what_failed(tmp_path: Path) -> None:
    result = run(_settings(tmp_path, budget=50), device=_device_of(WAYS), problem=PROBLEM)
    assert (result.status, result.reason) == ("finished", "exhausted")
    assert result.evaluations.unique == len(WAYS)
    assert (result.evaluations.measured, result.evaluations.failed) == (3, 7)
    assert result.best is not None
    assert result.best.genome["way"] in {"good", "twin"}
    assert result.best.audited
    with open_reader(result.store) as reader:
        judged = {
            one.evaluation.candidate.genome["way"]: one.evaluation for one in reader.evaluations(1)
        }
    failures = {way: one.failure for way, one in judged.items() if one.failure}
    assert failures == {
        "wrong": "error above the cap",
        "dies": "worker died",
        "takes the context": "device fault",
        "too wide": "too many threads",
        "refuses": "compile error",
        "aborts": "compiler crashed",
        "raises": "compile error",
    }


def test_a_busy_device_fails_no_genome_and_teaches_no_trap(tmp_path: Path) -> None:
    """Row 18: what met other work on the GPU comes again, and is given up without blame."""
    ways = ("good", "busy", *(f"busy once {i}" for i in range(3)))
    result = run(_settings(tmp_path, budget=60), device=_device_of(ways, idle=12), problem=PROBLEM)
    assert (result.status, result.reason) == ("finished", "budget") and result.best is not None
    assert result.evaluations.failed == 0
    with open_reader(result.store) as reader:
        judged = [one for one in reader.evaluations(1) if one.evaluation.failure is not None]
        assert not reader.conclusions(campaign=1)
        spoken = {one.evaluation.message for one in judged}
    assert {str(one.evaluation.candidate.genome["way"]) for one in judged} == {"busy"}
    assert len(judged) > 5, "as many would close a region"
    assert {(one.evaluation.status, one.verdict) for one in judged} == {
        (Status.INTERRUPTED, Verdict.REJECT)
    }
    assert spoken == {"other work runs on this GPU"}
    (remark,) = (text for text in result.remarks if "other work ran on the device" in text)
    assert remark.startswith(f"{len(judged)} candidates")


def test_what_fails_again_and_again_becomes_a_trap_that_names_it(tmp_path: Path) -> None:
    device = _device_of(("good", "slow", "wrong", "aborts"), idle=12)
    result = run(_settings(tmp_path, budget=48), device=device, problem=PROBLEM)
    assert result.status == "finished"
    with open_reader(result.store) as reader:
        traps = [
            (dict(conclusion.region), conclusion.failure)
            for _, conclusion in reader.conclusions(campaign=1)
            if conclusion.kind is ConclusionKind.TRAP
        ]
    assert ({"way": "wrong"}, "error above the cap") in traps
    assert ({"way": "aborts"}, "compiler crashed") in traps


def test_a_kernel_that_ignores_its_genes_is_named(tmp_path: Path) -> None:
    result = run(
        _settings(tmp_path, budget=10), device=_device_of(("good", "twin")), problem=PROBLEM
    )
    assert any("one and the same code" in remark for remark in result.remarks)


def test_a_reference_that_everybody_contradicts_is_suspected(tmp_path: Path) -> None:
    ways = ("wrong", "wrong too", "wrong as well")
    result = run(_settings(tmp_path, budget=10), device=_device_of(ways), problem=PROBLEM)
    assert result.best is None
    assert result.exit_code == 1
    assert any("the reference may be wrong" in remark for remark in result.remarks)


def test_a_finished_campaign_is_resumed(tmp_path: Path) -> None:
    first = run(_settings(tmp_path, budget=3), device=_device_of(WAYS[:4]), problem=PROBLEM)
    assert first.evaluations.unique == 3
    again = resume(first.store, budget=5, device=_device_of(WAYS[:4]))
    assert again.status == "finished"
    assert again.evaluations.unique == 4


def test_an_audit_says_where_its_seconds_went(tmp_path: Path) -> None:
    begun = time.monotonic()
    result = run(_settings(tmp_path, budget=4), device=_device_of(WAYS[:4]), problem=PROBLEM)
    most = time.monotonic() - begun
    with open_reader(result.store) as reader:
        (event,) = [each for each in reader.events(1) if each.kind == "audited"]
    parts = {name: value for name, value in event.payload.items() if name.endswith("_s")}
    assert set(parts) == {"opening_s", "first_visits_s", "later_visits_s", "closing_s"}
    assert parts["opening_s"] > 0 and parts["first_visits_s"] > 0
    assert sum(parts.values()) <= most


@pytest.mark.parametrize(
    ("ordinal", "against", "compiled"),
    [
        (20, "torch compile", {"us": 15.0}),
        (22, None, {"failed": "launch refused"}),
        (25, "torch eager", {"failed": "wrong: mismatch"}),
    ],
)
def test_what_a_speed_up_rests_on_and_what_could_not_be_a_baseline_is_said(
    tmp_path: Path, ordinal: int, against: str | None, compiled: dict[str, object]
) -> None:
    device = _device_of(("good", "slow"), ordinal=ordinal)
    first = run(_settings(tmp_path, budget=2), device=device, problem=PROBLEM)
    with open_reader(first.store) as reader:
        again = result_of(reader, None, store=first.store)
    for result in (first, again):
        assert result.best is not None
        told = result.best.to_json()
        assert told.get("against") == against
        assert told["baselines"]["torch compile"] == compiled
        assert result.best.only_eager is (ordinal == 25)
        named = [text for text in result.remarks if text.startswith("no baseline for ")]
        causes = {each["failed"] for each in told["baselines"].values() if "failed" in each}
        assert {text.rpartition("torch compile: ")[2] for text in named if "compile" in text} == (
            causes
        )
