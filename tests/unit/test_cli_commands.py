"""What the commands print and exit with, over one small recorded campaign."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.store_records import win

from kernelarc.cli import COMMANDS, exit_code
from kernelarc.cli._lessons import gather, lesson_text
from kernelarc.cli._text import quantity
from kernelarc.genomes import GeneChange, Judged
from kernelarc.storage import open_reader

ROOT = Path(__file__).resolve().parent.parent.parent
Call = Callable[..., str]


@pytest.fixture
def call(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Call:
    """Run a command that must succeed and return its standard output."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path, code: int = 0) -> str:
        capfd.readouterr()
        found = exit_code([str(word) for word in arguments])
        printed = capfd.readouterr()
        assert found == code, printed.err
        return printed.out

    return run


@pytest.fixture
def store(call: Call, small_space: Path) -> Path:
    """Run a campaign over the whole small space."""
    call("run", small_space, "--budget", "28", "--seed", "3", "--log", "run.log")
    return small_space.with_name("kernelarc.db")


def test_run_prints_the_contract_s_object_and_nothing_else(call: Call, small_space: Path) -> None:
    result = json.loads(call("run", small_space, "--budget", "28", "--json"))
    assert result["schema"] == 1
    assert result["status"] == "finished"
    assert result["reason"] in {"budget", "exhausted"}
    counts = result["evaluations"]
    assert counts["unique"] == counts["failed"] + counts["measured"] == 28
    best = result["best"]
    assert best == result["bests"][0]
    assert best["genome"] == {"tile": 16, "unroll": 4}
    assert best["objective"] == 1.0
    assert best["latency_us"] == 1000.0
    assert best["speedup"] is None
    assert best["audited"] is True


def test_equal_runs_give_equal_objects(call: Call, small_space: Path) -> None:
    found = []
    for name in ("a.db", "b.db"):
        result = json.loads(
            call("run", small_space, "--budget", "12", "--seed", "5", "--json", "--store", name)
        )
        found.append({k: v for k, v in result.items() if k not in {"seconds", "store"}})
    assert found[0] == found[1]


def test_the_report_is_in_words(call: Call, small_space: Path) -> None:
    printed = call("run", small_space, "--budget", "28")
    assert "campaign 1 finished" in printed
    assert "28 evaluated" in printed
    assert re.search(r"1 ms +- +- +yes", printed)
    assert "tile=16 unroll=4" in printed


def test_a_best_that_equals_the_start_is_said_in_words(call: Call, small_space: Path) -> None:
    printed = call("run", small_space, "--pin", "tile=16", "--pin", "unroll=4")
    assert "campaign 1 finished" in printed
    assert "every legal genome was tried" in printed
    content = json.loads(small_space.read_text())
    for row in content["cache"].values():
        row["time"], row["times"] = 2.0, [2.0]
    small_space.write_text(json.dumps(content))
    printed = call("run", small_space, "--store", "flat.db")
    assert "the best equals the starting genome" in printed


def test_dry_run_writes_nothing(call: Call, small_space: Path) -> None:
    plan = json.loads(call("run", small_space, "--dry-run", "--json"))
    assert plan["spaces"]
    assert set(plan["genes"]["recorded"]) == {"tile", "unroll"}
    assert "Nothing was written." in call("run", small_space, "--dry-run")
    assert [path.name for path in small_space.parent.iterdir()] == ["small.json"]


def test_flags_override_a_campaign_file(call: Call, small_space: Path) -> None:
    file = small_space.with_name("c.toml")
    file.write_text('target = "small.json"\nbudget = 20\nseed = 4\njson = true\n')
    assert json.loads(call("run", file, "--budget", "5"))["evaluations"]["unique"] == 5


def test_the_log_has_a_line_per_verdict(store: Path) -> None:
    lines = store.with_name("run.log").read_text().splitlines()
    kinds = [line.split()[1] for line in lines]
    assert kinds[:2] == ["started", "start"]
    assert kinds[-1] == "finished"
    assert sum(kind in {"KEEP", "ACCEPT", "REVERT", "FAIL"} for kind in kinds) == 28
    assert "FAIL" in kinds


def test_status_shows_islands_and_failures(call: Call, store: Path) -> None:
    printed = call("status", store)
    assert "28 of 28 evaluated" in printed
    assert "failures:" in printed
    assert re.search(r"asleep: fusion: \w+", printed)
    assert "controller: began without credit; now: first 50, " in printed
    assert re.search(r"island +proposals .* credit +next share", printed)
    (campaign,) = json.loads(call("status", store, "--json"))["campaigns"]
    awake = [part for part in campaign["islands"].values() if part["asleep"] is None]
    assert abs(sum(part["proposal_share"] for part in awake) - 1) < 0.01
    assert abs(sum(part.get("next_share", 0.0) for part in awake) - 1) < 0.01


def test_best_repeats_the_result(call: Call, store: Path) -> None:
    assert json.loads(call("best", store, "--json"))["best"]["genome"]["tile"] == 16
    assert "tile=16 unroll=4" in call("best", store)


def test_one_time_is_shown_in_one_way(call: Call, store: Path) -> None:
    fingerprint = json.loads(call("best", store, "--json"))["best"]["fingerprint"]
    assert re.search(r" 1 ms ", call("best", store))
    assert re.search(r"best .*: 1 ms, ", call("status", store))
    assert re.search(r" 1 ms, ", call("show", store, fingerprint))


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (11.4832, "ms", "11.48 ms"),
        (11483.2, "us", "11.48 ms"),
        (999.4, "us", "999.4 us"),
        (250.0, "ns", "0.25 us"),
        (1.5, "s", "1.5 s"),
        (0.0, "us", "0 us"),
        (1523.0, "GFLOP/s", "1523 GFLOP/s"),
        (3.0, "", "3"),
    ],
)
def test_a_time_is_in_the_unit_that_suits_it(value: float, unit: str, shown: str) -> None:
    assert quantity(value, unit) == shown


def test_show_finds_a_genome_by_the_beginning_of_its_fingerprint(call: Call, store: Path) -> None:
    fingerprint = json.loads(call("best", store, "--json"))["best"]["fingerprint"]
    printed = call("show", store, fingerprint[:8])
    assert fingerprint in printed
    assert "KEEP" in printed or "ACCEPT" in printed
    shown = json.loads(call("show", store, fingerprint, "--rerun", "--json"))
    assert shown["genome"] == {"tile": 16, "unroll": 4}
    assert [one["objective"] for one in shown["rerun"]] == [1.0]
    assert shown["evaluations"][0]["objective"] == 1.0
    call("show", store, fingerprint, "--source", code=2)


def test_a_header_of_a_recorded_space_claims_no_audit(call: Call, store: Path) -> None:
    call("export", store, "--format", "c-header", "-o", "best.h")
    header = store.with_name("best.h").read_text()
    assert "every number below is a recording's: nothing was run." in header
    assert "every number below was audited" not in header


def test_conclusions_name_gene_changes_with_gains(call: Call, store: Path) -> None:
    lessons = json.loads(call("conclusions", store, "--json"))
    assert lessons["wins"]
    first = lessons["wins"][0]
    assert first["changes"]
    assert first["speedup"]["low"] > 1.0
    said = " ".join(call("conclusions", store).split())
    assert "what made a genome faster than the one that it is compared with, its parent" in said


def test_campaigns_and_resume(call: Call, store: Path, small_space: Path) -> None:
    call("run", small_space, "--budget", "4", "--store", store, "--seed", "9")
    listed = json.loads(call("campaigns", store, "--json"))["campaigns"]
    assert [(c["id"], c["state"]) for c in listed] == [(1, "finished"), (2, "finished")]
    before = json.loads(call("best", store, "--campaign", "1", "--json"))
    assert json.loads(call("resume", store, "1", "--json")) == before
    assert "finished" in call("campaigns", store)


def test_resume_extends_a_finished_campaign(call: Call, small_space: Path) -> None:
    call("run", small_space, "--budget", "6")
    result = json.loads(call("resume", "kernelarc.db", "--budget", "5", "--json"))
    assert result["evaluations"]["unique"] == 11


def test_verify_says_that_the_claim_holds(call: Call, store: Path) -> None:
    assert json.loads(call("verify", store, "--json"))["holds"] is True
    said = call("verify", store)
    assert "holds" in said and "recorded 1 ms, now 1 ms" in said


@pytest.mark.parametrize(
    "form", ["json", "c-header", "kernel_tuner-cache", "kernel_tuner-t4", "optuna"]
)
def test_every_export_is_written(call: Call, store: Path, form: str) -> None:
    call("export", store, "--format", form, "-o", "out")
    assert Path("out").stat().st_size > 100


def test_an_export_seeds_another_campaign(call: Call, store: Path, small_space: Path) -> None:
    call("export", store, "--format", "json", "-o", "best.json")
    arguments = ("run", small_space, "--budget", "1", "--store", "s.db", "--json")
    result = json.loads(call(*arguments, "--seed-genome", "best.json"))
    assert result["best"]["objective"] == 1.0
    assert "no island: user: seed genomes that were given" in call("status", "s.db")
    assert "have concluded nothing yet" in call("conclusions", "s.db")


def test_operators_says_what_serves_each(call: Call) -> None:
    listed = json.loads(call("operators", "--json"))["operators"]
    routes = {one["target"]: one["routes"] for one in listed}
    assert routes["gemm"] == {"cpu": ["cpu"], "cuda:N": ["cublaslt"]}
    assert routes["add_rmsnorm"] == {"cpu": ["cpu"], "cuda:N": ["triton", "cuda"]}
    assert routes["matmul"] == {"cuda:N": ["cublaslt", "triton", "cuda"]}
    assert all(routes.values())
    assert re.search(r"^gemm +cpu, cuda:N \(cublaslt\) +M N K", call("operators"), re.MULTILINE)
    folder = json.loads(call("operators", ROOT / "examples", "--json"))["operators"]
    names = {Path(one["target"]).name for one in folder}
    assert names == {"cuda_kernel", "triton_problem"}
    assert all(one["routes"] == {"cuda:N": ["kernel.toml"]} for one in folder)


def test_operators_devices_and_doctor_speak_json(call: Call) -> None:
    targets = [one["target"] for one in json.loads(call("operators", "--json"))["operators"]]
    assert targets[:4] == ["gemm", "add_rmsnorm", "matmul", "gemm_residual"]
    assert "gemm" in call("operators")
    devices = [one["name"] for one in json.loads(call("devices", "--json"))["devices"]]
    assert devices[0] == "cpu" and devices[-1] == "replay"
    assert set(devices[1:-1]) >= {"cuda:0"}
    assert "replay" in call("devices")
    parts = json.loads(call("doctor", "--json"))
    assert parts["ready"] is True
    assert "Ready to search" in call("doctor")


def test_help_comes_at_once() -> None:
    times = []
    for _ in range(3):
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "kernelarc", "--help"],
            cwd=ROOT / "src",
            capture_output=True,
            text=True,
            check=True,
        )
        times.append(time.perf_counter() - began)
    assert all(name in done.stdout for name in COMMANDS)
    # 0.3 s on a quiet machine; the tests run two at a time on a busy one.
    assert min(times) < 1.0


def test_version(call: Call) -> None:
    assert re.fullmatch(r"kernelarc, version \d+\.\d+\.\d+\n", call("--version"))


def test_conclusions_say_which_genes_were_changed_most() -> None:
    told = [(1, win(n)) for n in (8, 16, 32)]
    said = lesson_text(gather(told), {})
    assert "Genes that were changed most: block in 3." in said
    again = [*told, (1, replace(win(8), changes=(GeneChange(gene="block", before=4, after=8),)))]
    assert "block in 4 (2 times to 8)" in lesson_text(gather(again), {})
    assert "changed most" not in lesson_text(gather(told[:2]), {})


def test_a_campaign_goes_on_without_its_seed_file_and_from_elsewhere(
    call: Call, small_space: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seed = small_space.with_name("seed.json")
    seed.write_text('{"genome": {"tile": 16, "unroll": 4}}')
    call("run", small_space.name, "--budget", "4", "--store", "s.db", "--seed-genome", seed.name)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = json.loads(call("resume", small_space.with_name("s.db"), "--budget", "2", "--json"))
    assert again["evaluations"]["unique"] == 6
    seed.unlink()
    again = json.loads(call("resume", small_space.with_name("s.db"), "--budget", "2", "--json"))
    assert again["evaluations"]["unique"] == 8


def test_a_changed_environment_needs_no_seed_file(call: Call, small_space: Path) -> None:
    """Seeds are kept by content: tried first also where nothing of them was tried before."""
    seed = small_space.with_name("seed.json")
    seed.write_text('{"genome": {"tile": 16, "unroll": 4}}')
    call("run", small_space, "--budget", "4", "--seed-genome", seed)
    seed.unlink()
    before = small_space.read_text()
    small_space.write_text(before.replace('"time": 2.0,', '"time": 2.01,'))
    assert small_space.read_text() != before
    again = json.loads(call("resume", "kernelarc.db", "--budget", "1", "--json"))
    assert again["campaign_id"] == 2
    assert any("in a changed environment" in said for said in again["remarks"])
    assert again["evaluations"]["unique"] == 1
    assert again["best"]["genome"] == {"tile": 16, "unroll": 4}
    with open_reader("kernelarc.db") as reader:
        kept = [reader.campaign(n).spec.settings["seeds"] for n in (1, 2)]
        (judged,) = [e for _, e in reader.log(2) if isinstance(e, Judged)]
    assert (
        kept[0]
        == kept[1]
        == [{"file": str(seed), "route": None, "genome": {"tile": 16, "unroll": 4}}]
    )
    assert judged.evaluation.candidate.mutation == "seed"


def test_a_changed_recording_is_said_in_the_result(call: Call, store: Path) -> None:
    space = store.with_name("small.json")
    before = space.read_text()
    space.write_text(before.replace('"time": 1.0,', '"time": 1.01,'))
    assert space.read_text() != before
    again = json.loads(call("resume", store, "--budget", "3", "--json"))
    assert any("in a changed environment (recording: " in said for said in again["remarks"])
