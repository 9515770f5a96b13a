"""Exports: what each format holds, that it is read back, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import optuna
import pytest

from kernelarc.bench import ReplayDevice
from kernelarc.genomes import (
    Allele,
    Candidate,
    Contest,
    Environment,
    Estimate,
    Evaluation,
    Genome,
    InputError,
    Judged,
    Measurement,
    Problem,
    Status,
    Verdict,
    Workload,
    builtin_operators,
)
from kernelarc.storage import (
    EXPORTERS,
    FORMATS,
    CampaignSpec,
    ContestRecord,
    Entry,
    Round,
    StoreReader,
    StoreWriter,
    export,
    open_reader,
    open_writer,
)

GEMM = builtin_operators()["gemm"]
# The others hold genomes of one route, or solutions of problems that state their reference:
# tests/unit/test_cublaslt_table.py, test_export_triton.py, test_solutions.py
OF_SOME = {"cublaslt", "npy", "triton", "vllm-moe", "vllm-fp8", "helion", "inductor", "sol"}
OF_ANY_ROUTE = sorted(set(EXPORTERS) - OF_SOME)
SMALL, LARGE = (
    Workload(operator=GEMM.fingerprint, axes={"M": n, "N": n, "K": n}) for n in (64, 128)
)
ENVIRONMENT = Environment(
    identity={"device": "cpu", "cpu": "Some Processor 9000 (family 6)"}, observations={}
)
TIMES: dict[tuple[int, bool], float | Status] = {
    (16, False): 90.0,
    (16, True): 80.0,
    (32, False): Status.COMPILE_ERROR,
    (32, True): 70.0,
    (64, False): Status.TIMEOUT,
    (64, True): 75.0,
}


def genome(block: int, packed: bool) -> Genome:
    alleles: dict[str, Allele] = {"block": block, "packed": packed, "order": ("m", "n")}
    if packed:
        alleles["ahead"] = block // 8
    return Genome("demo", alleles)


BEST, REFUTED = genome(32, True), genome(64, True)


def judged(
    number: int, workload: Workload, subject: Genome, outcome: float | Status, verdict: Verdict
) -> list[Entry]:
    candidate = Candidate(
        number=number,
        round=0,
        workload=workload.fingerprint,
        island="memory",
        mutation="step",
        genome=subject,
    )
    if isinstance(outcome, Status):
        evaluation = Evaluation(
            candidate=candidate, status=outcome, failure="it failed", message="why", cost_s=0.5
        )
    else:
        timed = Measurement(samples=(outcome, outcome + 1, outcome - 1), objective=outcome)
        evaluation = Evaluation(
            candidate=candidate, status=Status.OK, measurement=timed, cost_s=0.25
        )
    return [candidate, Judged(evaluation=evaluation, verdict=verdict)]


def audit(workload: Workload, subject: Genome, *, upheld: bool, time: float) -> ContestRecord:
    contest = Contest(
        names=(subject.fingerprint, "baseline:numpy"), samples=((time, 140.0), (time, 140.0))
    )
    value = 140.0 / time
    return ContestRecord(
        purpose="audit",
        workload=workload.fingerprint,
        subject=subject.fingerprint,
        against="baseline:numpy",
        contest=contest,
        speedup=Estimate(value=value, low=value - 0.1, high=value + 0.1, n=2),
        upheld=upheld,
    )


def search(workload: Workload, first: int = 0) -> list[Entry]:
    entries: list[Entry] = []
    lowest = float("inf")
    for number, (point, outcome) in enumerate(TIMES.items(), start=first):
        verdict = Verdict.FAIL
        if isinstance(outcome, float):
            verdict = Verdict.KEEP if outcome < lowest else Verdict.REVERT
            lowest = min(lowest, outcome)
        entries += judged(number, workload, genome(*point), outcome, verdict)
    return entries


def campaign(
    writer: StoreWriter, entries: Sequence[Entry], workloads: tuple[Workload, ...] = (SMALL,)
) -> int:
    spec = CampaignSpec(
        target="gemm",
        device="cpu",
        seed=1,
        problem=Problem(operator=GEMM, workloads=workloads),
        settings={"budget": 6},
    )
    number = writer.begin(spec, ENVIRONMENT)
    writer.append(number, [Round(number=0, counts={"memory": {"asked": 6}}), *entries])
    return number


@pytest.fixture(scope="module")
def store_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Campaigns: 1 audited, 2 not audited, 3 best refuted, 4 nothing valid, 5 two workloads."""
    path = tmp_path_factory.mktemp("exported") / "store.db"
    with open_writer(path, create=True, synchronous="NORMAL") as writer:
        found = search(SMALL)
        campaign(writer, [*found, audit(SMALL, BEST, upheld=True, time=70.0)])
        campaign(writer, found)
        lucky = judged(6, SMALL, genome(128, True), 50.0, Verdict.KEEP)
        campaign(
            writer,
            [
                *found,
                *lucky,
                audit(SMALL, genome(128, True), upheld=False, time=95.0),
                audit(SMALL, BEST, upheld=True, time=70.0),
            ],
        )
        failed = judged(0, SMALL, genome(16, False), Status.COMPILE_ERROR, Verdict.FAIL)
        campaign(writer, failed)
        campaign(
            writer,
            [
                *found,
                *search(LARGE, first=6),
                audit(SMALL, BEST, upheld=True, time=70.0),
                audit(LARGE, BEST, upheld=True, time=70.0),
            ],
            (SMALL, LARGE),
        )
    return path


@pytest.fixture
def store(store_path: Path) -> Iterator[StoreReader]:
    with open_reader(store_path) as reader:
        yield reader


def replayed_best(path: Path) -> tuple[dict[str, Allele], float]:
    """Ask a replay of an exported file for its best genome and latency."""
    recording = ReplayDevice(path).recording
    (space,) = recording.spaces.values()
    found = []
    for each in space.enumerate():
        answer = recording.answer(each)
        assert answer is not None
        if answer.status is Status.OK:
            found.append((answer.objective, each.canonical, each))
    objective, _, best = min(found)
    assert recording.unit == "ms"
    return best.alleles(), objective * 1000.0


@pytest.mark.parametrize("format", ["kernel_tuner-cache", "kernel_tuner-t4"])
def test_what_a_tuner_reads_replays_with_the_same_best(
    store: StoreReader, tmp_path: Path, format: str
) -> None:
    path = tmp_path / "out.json"
    assert export(store, 1, format, path) == (path,)
    alleles, latency_us = replayed_best(path)
    assert alleles == {"block": 32, "packed": True, "order": "m>n", "ahead": 4}
    assert latency_us == pytest.approx(70.0)
    recording = ReplayDevice(path).recording
    assert recording.counts.rows == 6
    assert recording.counts.failed == 2
    assert recording.operator.name == "gemm"
    assert recording.environment.identity["device"] == "Some Processor 9000"
    assert list(recording.workload.axes.values()) == [64, 64, 64]


@pytest.mark.parametrize("format", ["kernel_tuner-cache", "kernel_tuner-t4"])
def test_a_refused_claim_is_not_the_best_of_a_table(
    store: StoreReader, tmp_path: Path, format: str
) -> None:
    export(store, 3, format, tmp_path / "out.json")
    alleles, latency_us = replayed_best(tmp_path / "out.json")
    assert alleles["block"] == 32
    assert latency_us == pytest.approx(70.0)
    text = (tmp_path / "out.json").read_text()
    assert "0.095" in text  # what its audit measured, in milliseconds


def test_a_cache_file_says_its_failures_in_the_tuners_words(
    store: StoreReader, tmp_path: Path
) -> None:
    export(store, 1, "kernel_tuner-cache", tmp_path / "out.json")
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["tune_params_keys"] == ["block", "order", "packed", "ahead"]
    assert document["tune_params"]["ahead"] == [2, 4, 8]
    rows = document["cache"]
    assert rows["32,m>n,False,2"]["__error__"] == "CompilationFailedConfig"
    assert rows["64,m>n,False,2"]["time"] == "RuntimeFailedConfig"
    best = rows["32,m>n,True,4"]
    assert best["time"] == pytest.approx(0.07)
    assert best["times"] == pytest.approx([0.07, 0.071, 0.069])
    assert best["kernelarc"] == {
        "fingerprint": BEST.fingerprint,
        "verdict": "KEEP",
        "best": True,
        "audited": True,
    }
    assert best["benchmark_time"] == 250.0
    assert list(rows) == [
        ",".join(str(r[n]) for n in document["tune_params_keys"]) for r in rows.values()
    ]


def test_several_workloads_make_several_files(store: StoreReader, tmp_path: Path) -> None:
    files = export(store, 5, "kernel_tuner-cache", tmp_path / "out.json")
    assert [f.name for f in files] == [
        "out.M=64_N=64_K=64.json",
        "out.M=128_N=128_K=128.json",
    ]
    assert [ReplayDevice(f).recording.workload.axes["x"] for f in files] == [64, 128]


def test_json_holds_everything_with_its_evidence(store: StoreReader, tmp_path: Path) -> None:
    export(store, 3, "json", tmp_path / "out.json")
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["schema"] == 1
    assert document["operator"]["fingerprint"] == GEMM.fingerprint
    assert document["workloads"][0]["label"] == "M=64 N=64 K=64"
    (best,) = document["bests"]
    assert best["fingerprint"] == BEST.fingerprint
    assert (best["latency_us"], best["audited"]) == (70.0, True)
    assert best["speedup"]["estimate"] == pytest.approx(2.0)
    assert len(document["evaluations"]) == 7
    assert [c["upheld"] for c in document["contests"]] == [False, True]
    assert document["evaluations"][3]["genome"] == {
        "block": 32,
        "packed": True,
        "order": ["m", "n"],
        "ahead": 4,
    }


def test_only_an_audited_best_is_called_audited(store: StoreReader, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    for number, audited in ((1, True), (2, False)):
        export(store, number, "json", path)
        assert json.loads(path.read_text())["bests"][0]["audited"] is audited
        export(store, number, "kernel_tuner-cache", path)
        assert ('"audited": true' in path.read_text()) is audited
    with pytest.raises(InputError, match="no best was audited yet"):
        export(store, 2, "c-header", tmp_path / "out.h")
    assert not (tmp_path / "out.h").exists()


@pytest.mark.parametrize("name", ["study.db", "study.log"])
def test_optuna_opens_one_study_per_workload(store: StoreReader, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert export(store, 5, "optuna", path) == (path,)
    storage: Any = f"sqlite:///{path}"
    if name.endswith(".log"):
        from optuna.storages.journal import JournalFileBackend

        storage = optuna.storages.JournalStorage(JournalFileBackend(str(path)))
    names = {s.study_name for s in optuna.get_all_study_summaries(storage)}
    assert names == {"gemm M=64 N=64 K=64", "gemm M=128 N=128 K=128"}
    study = optuna.load_study(study_name="gemm M=64 N=64 K=64", storage=storage)
    assert study.direction is optuna.study.StudyDirection.MINIMIZE
    assert study.best_value == 70.0
    assert study.best_params == {"block": 32, "packed": True, "order": "m>n", "ahead": 4}
    assert study.best_trial.user_attrs["audited"] is True
    states = [trial.state for trial in study.trials]
    assert states.count(optuna.trial.TrialState.COMPLETE) == 4
    assert states.count(optuna.trial.TrialState.FAIL) == 2
    assert study.trials[0].params == {"block": 16, "packed": False, "order": "m>n"}
    assert study.user_attrs["best"] == BEST.fingerprint


def test_a_refused_claim_is_not_the_best_trial(store: StoreReader, tmp_path: Path) -> None:
    export(store, 3, "optuna", tmp_path / "study.db")
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert study.best_value == 70.0
    (refused,) = [t for t in study.trials if "refused_claim_measured" in t.user_attrs]
    assert (refused.user_attrs["refused_claim_measured"], refused.value) == (50.0, 95.0)


def test_the_listed_formats_are_those_that_can_be_written() -> None:
    assert tuple(EXPORTERS) == FORMATS


@pytest.mark.parametrize("format", sorted(EXPORTERS))
def test_nothing_valid_is_one_clear_line_and_no_file(
    store: StoreReader, tmp_path: Path, format: str
) -> None:
    with pytest.raises(InputError, match="campaign 4 has nothing to export") as caught:
        export(store, 4, format, tmp_path / "out.file")
    assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_unknown_formats_and_campaigns_are_answered(store: StoreReader, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'kernel_tuner-cache'"):
        export(store, 1, "kernel-tuner-cache", tmp_path / "out")
    with pytest.raises(InputError):
        export(store, 99, "json", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("format", OF_ANY_ROUTE)
def test_places_that_cannot_be_written(store: StoreReader, tmp_path: Path, format: str) -> None:
    before = sorted(tmp_path.iterdir())
    for path in (tmp_path, tmp_path / "absent" / "out.json", Path("/dev/null")):
        with pytest.raises(InputError, match=r"folder|regular"):
            export(store, 1, format, path)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("format", OF_ANY_ROUTE)
def test_a_store_is_not_overwritten_but_an_export_is(
    store: StoreReader, store_path: Path, tmp_path: Path, format: str
) -> None:
    target = tmp_path / "mine.db"
    shutil.copy(store_path, target)
    with pytest.raises(InputError, match="is a database"):
        export(store, 1, format, target)
    assert target.read_bytes() == store_path.read_bytes()
    again = tmp_path / "out.file"
    for _ in range(2):
        assert export(store, 1, format, again) == (again,)
    assert sorted(tmp_path.iterdir()) == [target, again]


def test_a_failing_writer_leaves_the_earlier_file(
    store: StoreReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.json"
    path.write_text("earlier")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json, "dump", full)
    with pytest.raises(InputError, match="No space left on device"):
        export(store, 1, "kernel_tuner-t4", path)
    assert path.read_text() == "earlier"
    assert not list(tmp_path.glob(".kernelarc-export-*"))
