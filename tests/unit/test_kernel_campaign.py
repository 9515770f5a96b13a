"""Whole campaigns over compiled kernels: a formula stands for the GPU, everything else is real."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest
from rich.console import Console
from tests.unit.compiling_routes import PlantedRoute

from kernelarc.bench.kernels import KernelDevice, _device, _line
from kernelarc.cli._log_file import LogFile
from kernelarc.cli._progress import LiveDisplay
from kernelarc.cli._watching import Watchers
from kernelarc.engine import CampaignSettings, Observer, result_of, resume, run, verify
from kernelarc.genomes import (
    BaselineAttempt,
    ConclusionKind,
    Environment,
    InputError,
    Status,
    Verdict,
    builtin_problem,
)
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


def _settings(folder: Path, **more: int | str) -> CampaignSettings:
    store = str(folder / "store.db")
    return CampaignSettings.from_values(
        {"target": "gemm", "device": "cuda:5", "store": store, **more}
    )


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
        assert all(one["seconds"] >= 0.0 for one in told["baselines"].values())
        assert told.get("against") == against
        assert compiled.items() <= told["baselines"]["torch compile"].items()
        assert result.best.only_eager is (ordinal == 25)
        named = [text for text in result.remarks if text.startswith("no baseline for ")]
        causes = {each["failed"] for each in told["baselines"].values() if "failed" in each}
        assert {text.rpartition("torch compile: ")[2] for text in named if "compile" in text} == (
            causes
        )


class Hearer(Observer):
    """Notes which baselines were tried."""

    def __init__(self) -> None:
        self.tried: list[str] = []

    def on_baseline(self, attempt: BaselineAttempt) -> None:
        self.tried += [attempt.name] if attempt.seconds is not None else []


def test_a_choice_of_baselines_is_remembered_and_said(tmp_path: Path) -> None:
    """Resume and verify keep to it; another choice audits again, without further searching."""
    device, hearer = _device_of(("good", "slow"), ordinal=20), Hearer()
    settings = _settings(tmp_path, budget=2, baselines="eager")
    first = run(settings, device=device, problem=PROBLEM, observer=hearer)
    assert first.best is not None and first.best.speedup is not None
    assert (first.best.against, hearer.tried) == ("baseline:torch eager", ["torch eager"])
    assert first.best.left_out == ("torch compile",)
    assert first.best.baselines["torch compile"] == {"left_out": True}
    (remark,) = [text for text in first.remarks if "--baselines" in text]
    assert remark == (
        "speed-ups are over some of the baselines: others were left out by --baselines (~): "
        "torch compile; a faster one among them would lower the speed-ups"
    )
    store = first.store
    verified = verify(store, device=device).verified[0]
    assert verified.why == "correct, faster than torch eager, as claimed"
    same = resume(store, device=device, baselines="eager", observer=hearer)
    assert same == first and hearer.tried == ["torch eager"], "nothing is to be done"

    again = resume(store, device=device, baselines="all", observer=hearer)
    assert again.best is not None and again.best.speedup is not None
    assert again.best.against == "baseline:torch compile" and not again.best.left_out
    assert again.best.speedup.value == pytest.approx(first.best.speedup.value * 15 / 25)
    assert again.evaluations.unique == first.evaluations.unique
    assert not [text for text in again.remarks if "--baselines" in text]
    assert hearer.tried == ["torch eager", "torch eager", "torch compile"]
    why = verify(store, device=device).verified[0].why
    assert why.startswith("correct, faster than torch compile")
    further = resume(store, device=device, budget=1)
    assert further.best is not None and further.best.against == "baseline:torch compile"
    with open_reader(store) as reader:
        assert reader.campaign(1).spec.settings["baselines"] == ["eager"]
        chosen = [e.payload.get("baselines") for e in reader.events(1) if e.kind == "resumed"]
    assert chosen == [["all"], None]


def test_a_baseline_that_nobody_offers_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    device = _device_of(("good", "slow"), ordinal=20)
    with pytest.raises(InputError, match="on offer here: torch eager, torch compile") as caught:
        run(_settings(tmp_path, baselines="torch flash"), device=device, problem=PROBLEM)
    assert "\n" not in str(caught.value) and not list(tmp_path.glob("store*"))
    first = run(_settings(tmp_path, budget=2), device=device, problem=PROBLEM)
    with open_reader(first.store) as reader:
        before = [event.kind for event in reader.events(1)]
    with pytest.raises(InputError, match="unknown 'torch flash'"):
        resume(first.store, device=device, baselines="torch eager,torch flash")
    with open_reader(first.store) as reader:
        assert [event.kind for event in reader.events(1)] == before


def test_display_and_log_say_which_baseline_is_tried_and_the_event_what_it_took(
    tmp_path: Path,
) -> None:
    drawn, log = io.StringIO(), tmp_path / "campaign.log"
    console = Console(file=drawn, force_terminal=True, width=200)
    device, label = _device_of(("good", "slow"), ordinal=25), PROBLEM.workloads[0].label
    with LiveDisplay(console) as display, LogFile(log) as lines:
        both = Watchers([display, lines])
        result = run(_settings(tmp_path, budget=2), device=device, problem=PROBLEM, observer=both)
    noted = [line for line in log.read_text().splitlines() if " baseline " in line[:30]]
    assert [re.sub(r"^\S+ baseline ", "", re.sub(r"took .*", "took", line)) for line in noted] == [
        f"trying the baseline torch eager for {label} (1 of 2, at most 1 min 0 s)",
        f"the baseline torch eager for {label}: 25 us; took",
        f"compiling the baseline torch compile for {label} (2 of 2, at most 1 min 30 s)",
        f"the baseline torch compile for {label}: 15 us, off by more than the workload allows "
        f"(mismatch); took",
    ]
    assert f"compiling the baseline torch compile for {label} (2 of 2" in drawn.getvalue()
    with open_reader(result.store) as reader:
        (event,) = [each for each in reader.events(1) if each.kind == "audited"]
    (told,) = event.payload["baselines"].values()
    assert {name: one["seconds"] >= 0.0 for name, one in told.items()} == {
        "torch eager": True,
        "torch compile": True,
    }
