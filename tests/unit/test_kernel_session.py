"""Sessions of compiled kernels: real processes, with a formula in the place of the GPU."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.compiling_routes import MEETS, PlantedRoute

from kernelarc.bench import DeviceLock
from kernelarc.bench.kernels import KernelSession, _line, _rivals, _session
from kernelarc.bench.kernels._flow import TIME_WAS_UP
from kernelarc.genomes import (
    BaselineAttempt,
    Candidate,
    Evaluation,
    Genome,
    InputError,
    Status,
    builtin_problem,
)

PROBLEM = builtin_problem("gemm")
(WORKLOAD,) = PROBLEM.workloads


@pytest.fixture(autouse=True)
def _formula(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELARC_LOCK_DIR", str(tmp_path))
    monkeypatch.setattr(_line, "_BENCH", "tests.unit.formula_bench:FormulaBench")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))


def _opened(folder: Path, ordinal: int = 7) -> KernelSession:
    lock = DeviceLock(f"cuda:{ordinal}").acquire()
    return KernelSession(
        f"cuda:{ordinal}",
        ordinal,
        PROBLEM,
        [PlantedRoute(PROBLEM.operator)],
        seed=1,
        lock=lock,
        artefacts=folder / "artefacts",
        processes=2,
        library=False,
    )


@pytest.fixture
def session(tmp_path: Path) -> Iterator[KernelSession]:
    with _opened(tmp_path) as opened:
        yield opened


def _genome(session: KernelSession, way: str) -> Genome:
    return session.spaces(WORKLOAD)["planted"].genome({"way": way})


def _candidates(session: KernelSession, ways: Sequence[str], first: int = 0) -> list[Candidate]:
    return [
        Candidate(
            number=first + i,
            round=0,
            workload=WORKLOAD.fingerprint,
            island="user",
            mutation="seed",
            genome=_genome(session, way),
        )
        for i, way in enumerate(ways)
    ]


def _evaluated(session: KernelSession, ways: Sequence[str], first: int = 0) -> list[Evaluation]:
    session.submit(_candidates(session, ways, first), limit={WORKLOAD.fingerprint: 10.0})
    found = {e.candidate.number: e for e in session.collect()}
    return [found[first + i] for i in range(len(ways))]


def _reference_s(folder: Path) -> float:
    """Return what a slow reference took, by the worker's own clock: ours hears of it late."""
    return float((folder / "slow reference").read_text())


def test_only_the_culprit_is_blamed(session: KernelSession) -> None:
    begun = time.monotonic()
    ways = ["good", "dies", "slow", "takes the context", "wrong", "never returns", "too wide"]
    found = dict(zip(ways, _evaluated(session, ways), strict=True))
    assert found["good"].status is found["slow"].status is Status.OK
    assert found["good"].measurement is not None
    assert found["good"].measurement.objective == 10.0
    failures = {way: (one.status, one.failure) for way, one in found.items() if one.failure}
    assert failures == {
        "dies": (Status.LAUNCH_ERROR, "worker died"),
        "takes the context": (Status.LAUNCH_ERROR, "device fault"),
        "wrong": (Status.WRONG_RESULT, "error above the cap"),
        "never returns": (Status.TIMEOUT, "timeout"),
        "too wide": (Status.COMPILE_ERROR, "too many threads"),
    }
    assert time.monotonic() - begun < 30
    assert _evaluated(session, ["slow"], first=20)[0].status is Status.OK


def test_large_binaries_behind_one_that_never_returns_arrive(session: KernelSession) -> None:
    begun = time.monotonic()
    ways = ["never returns", "large 1", "large 2", "large 3"]
    hung, *rest = _evaluated(session, ways)
    assert (hung.status, hung.failure) == (Status.TIMEOUT, "timeout")
    assert [one.status for one in rest] == [Status.OK] * 3
    assert time.monotonic() - begun < 30


def test_a_contest_of_large_binaries_waits_for_nobody_who_hangs(session: KernelSession) -> None:
    large = [_genome(session, way) for way in ("large 1", "large 2")]
    assert session.contest(WORKLOAD, large, rounds=2).column(large[0].fingerprint) == (30.0,) * 2
    session.submit(_candidates(session, ["never returns"]), limit={WORKLOAD.fingerprint: 10.0})
    while not session._moving()._line.flying:
        time.sleep(0.01)
    contest = session.contest(WORKLOAD, large, rounds=2)
    assert set(contest.failures.values()) <= {"worker died"}
    (hung,) = session.collect()
    assert hung.status is Status.TIMEOUT


def test_equal_binaries_are_measured_once(session: KernelSession) -> None:
    good, twin = _evaluated(session, ["good", "twin"])
    assert {good.status, twin.status} == {Status.OK}
    same = {one.properties.get("same_as") for one in (good, twin)} - {None}
    assert len(same) == 1
    assert good.properties["binary"] == twin.properties["binary"]
    measured = next(one for one in (good, twin) if "same_as" not in one.properties)
    way = str(measured.candidate.genome["way"])
    other = {"good": "twin", "twin": "good"}[way]
    (again,) = _evaluated(session, [other], first=5)
    assert {again.properties["same_as"]} == same


def test_a_genome_that_is_asked_for_again_is_measured_again(session: KernelSession) -> None:
    (first,) = _evaluated(session, ["good"])
    (again,) = _evaluated(session, ["good"], first=5)
    assert first.measurement is not None
    assert again.measurement is not None
    assert "same_as" not in again.properties
    assert again.measurement is not first.measurement


def test_contests_name_what_cannot_be_built(session: KernelSession) -> None:
    genomes = [_genome(session, way) for way in ("good", "refuses", "slow")]
    contest = session.contest(WORKLOAD, genomes, rounds=3, baseline=True)
    names = tuple(genome.fingerprint for genome in genomes)
    assert contest.names == names
    assert contest.failures == {names[1]: "compile error"}
    assert contest.column(names[0]) == (10.0,) * 3
    assert all(math.isnan(value) for value in contest.column(names[1]))
    assert contest.column(names[2]) == (30.0,) * 3


def test_genomes_of_other_routes_are_illegal(session: KernelSession) -> None:
    foreign = Genome("elsewhere", {"way": "good"})
    reasons = session.check(WORKLOAD, [_genome(session, "good"), foreign])
    assert reasons[0] is None
    assert "'elsewhere' is not one of this device's" in str(reasons[1])


def test_the_environment_names_what_built(session: KernelSession) -> None:
    assert session.environment.identity == {"device": "formula", "planted.version": "1"}
    assert session.observe()["clock_mhz"] == "1"
    assert float(session.observe()["compile_processes_busy"]) <= 1.0


def test_an_older_device_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cuda:80 is of sm_80: compiled routes are for sm_90a"):
        _opened(tmp_path, ordinal=80)


def test_closing_does_not_wait_for_who_hangs(session: KernelSession) -> None:
    ways = ["never returns", "large 1", "large 2", "large 3"]
    session.submit(_candidates(session, ways), limit={WORKLOAD.fingerprint: 10.0})
    while not session._moving()._line.flying:
        time.sleep(0.01)
    begun = time.monotonic()
    session.close()
    assert time.monotonic() - begun < 10


def test_what_nobody_has_begun_to_build_can_be_withdrawn(session: KernelSession) -> None:
    """Both compilers are taken, for as long as it takes."""
    ways = ["hangs", "hangs", "good", "twin", "wrong"]
    session.submit(_candidates(session, ways), limit={})
    begun = time.monotonic()
    session.withdraw()
    session.withdraw()
    coming = session.collect()
    found = [next(coming) for _ in ways[2:]]
    assert time.monotonic() - begun < 10
    assert [e.candidate.number for e in found] == [2, 3, 4]
    assert {e.status for e in found} == {Status.INTERRUPTED}
    assert {e.failure for e in found} == {TIME_WAS_UP}


def test_what_was_stopped_early_is_measured_where_it_must_be(session: KernelSession) -> None:
    (early,) = _evaluated(session, ["slow"])
    assert early.measurement is not None
    assert early.measurement.censored
    (again,) = _evaluated(session, ["slow"], first=1)  # as late as before: the bound answers
    assert again.measurement is not None
    assert again.measurement.censored
    session.submit(_candidates(session, ["slow"], first=2), limit={})
    (whole,) = session.collect()
    assert whole.measurement is not None
    assert not whole.measurement.censored


def test_a_contest_that_takes_the_context_blames_no_candidate(session: KernelSession) -> None:
    genomes = [_genome(session, way) for way in ("good", "takes the context")]
    session.submit(_candidates(session, ["good", "wrong"]), limit={})
    contest = session.contest(WORKLOAD, genomes, rounds=2)
    assert set(contest.failures.values()) == {"worker died"}
    statuses = {e.candidate.number: e.status for e in session.collect()}
    assert statuses == {0: Status.OK, 1: Status.WRONG_RESULT}


def test_questions_wait_for_a_slow_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_line, "ASK_S", 1.0)
    with _opened(tmp_path, ordinal=3) as session:
        session.submit(_candidates(session, ["good"]), limit={})
        while session._moving()._line._preparing_since is None:
            time.sleep(0.01)
        asked = session._ask("observe", timeout_s=0.5)
        assert asked["clock_mhz"] == "1"
        (found,) = session.collect()
        assert found.status is Status.OK
        assert _reference_s(tmp_path) > _line.ASK_S


def test_a_first_contest_waits_for_a_slow_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an audit does, whose worker has evaluated nothing."""
    most_s = 0.5
    monkeypatch.setattr(_session, "CONTEST_S", most_s)
    with _opened(tmp_path, ordinal=3) as session:
        genomes = [_genome(session, way) for way in ("good", "slow")]
        contest = session.contest(WORKLOAD, genomes, rounds=2)
        assert not contest.failures
        assert _reference_s(tmp_path) > most_s


def test_inputs_and_reference_are_made_while_the_first_candidate_is_built(tmp_path: Path) -> None:
    """Each ends once the other has begun: one after the other, both would fail."""
    with _opened(tmp_path, ordinal=33) as session:
        (found,) = _evaluated(session, [MEETS])
        assert (found.status, found.message) == (Status.COMPILE_ERROR, "met")
        session.observe()  # comes after what the worker was told before
        assert set(session._moving()._line.prepared_s) == {0}, "and nobody came to the worker"
        assert _evaluated(session, ["good"], first=1)[0].status is Status.OK


def test_a_worker_that_dies_of_its_reference_ahead_costs_no_candidate(tmp_path: Path) -> None:
    with _opened(tmp_path, ordinal=31) as session:
        assert _evaluated(session, ["good"])[0].status is Status.OK
        assert (tmp_path / "died of its reference").exists()


def test_a_reference_that_fails_ahead_is_said_in_one_line(tmp_path: Path) -> None:
    with (
        _opened(tmp_path, ordinal=32) as session,
        pytest.raises(InputError, match="'gemm' fails on the device: no such thing"),
    ):
        _evaluated(session, ["good"])


def test_a_worker_stands_by_once_there_is_something_to_lose(session: KernelSession) -> None:
    line = session._moving()._line
    assert line._spare is None
    _evaluated(session, ["good"])
    assert line._spare is not None


def test_a_worker_that_dies_idle_costs_no_candidate(session: KernelSession) -> None:
    assert _evaluated(session, ["good"])[0].status is Status.OK
    with session._moving().asking() as line:
        line._worker.strike()
        line._worker._process.wait()
    assert _evaluated(session, ["slow"], first=1)[0].status is Status.OK


def test_a_worker_that_stands_still_costs_no_candidate(
    session: KernelSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _evaluated(session, ["good"])[0].status is Status.OK
    monkeypatch.setattr(_line, "ASK_S", 1.0)
    with session._moving().asking() as line:
        os.kill(line._worker.pid, signal.SIGSTOP)
    begun = time.monotonic()
    assert _evaluated(session, ["slow"], first=1)[0].status is Status.OK
    assert time.monotonic() - begun < 20


def test_builds_are_for_the_device_at_hand(session: KernelSession) -> None:
    pool = session._moving()._pool
    limits = replace(session._reply.limits, multiprocessors=7)
    pool.target(limits)
    assert pool._routes["planted"].limits("sm_90a").multiprocessors == 7
    assert pool._routes["planted"].limits("sm_100a").multiprocessors == 148
    assert pool._identities["planted"]["multiprocessors"] == "7"


def test_the_fastest_baseline_takes_part(tmp_path: Path) -> None:
    with _opened(tmp_path, 20) as session:
        named = session.baseline_name(WORKLOAD)
        assert named == "the fastest of torch eager, torch compile"
        contest = session.contest(WORKLOAD, [_genome(session, "good")], rounds=3, baseline=True)
        assert contest.names[1:] == ("baseline:torch compile",)
        assert contest.samples == ((10.0, 15.0),) * 3
        assert session.baseline_name(WORKLOAD) == "torch compile"


@pytest.mark.parametrize(
    ("ordinal", "cause"),
    [(21, "RuntimeError: a reference that nobody can run"), (22, "launch refused")],
)
def test_baselines_that_fail_cost_no_claim(tmp_path: Path, ordinal: int, cause: str) -> None:
    with _opened(tmp_path, ordinal) as session:
        contest = session.contest(WORKLOAD, [_genome(session, "good")], rounds=3, baseline=True)
        assert contest.names == (_genome(session, "good").fingerprint,)
        assert contest.samples == ((10.0,),) * 3 and not contest.failures
        assert session.baseline_name(WORKLOAD) is None
        told = session.baselines_tried(WORKLOAD)
        assert set(told) == {"torch eager", "torch compile"}
        assert all(cause in one["failed"] for one in told.values())


@pytest.mark.parametrize(
    ("ordinal", "cause"),
    [
        (23, "no answer within 1 s"),
        (24, "the device worker died of it"),
        (25, "wrong: mismatch"),
    ],
)
def test_a_baseline_that_hangs_dies_or_is_wrong_is_named_and_another_stands(
    tmp_path: Path, ordinal: int, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_rivals, "COMPILE_S", 1.0)
    with _opened(tmp_path, ordinal) as session:
        assert session.baselines_tried(WORKLOAD) == {}
        contest = session.contest(WORKLOAD, [_genome(session, "good")], rounds=3, baseline=True)
        assert contest.names[1:] == ("baseline:torch eager",) and contest.failures == {}
        assert contest.samples == ((10.0, 25.0),) * 3
        told = {name: dict(one) for name, one in session.baselines_tried(WORKLOAD).items()}
        assert all(one.pop("seconds") >= 0.0 for one in told.values())
        assert told == {"torch eager": {"us": 25.0}, "torch compile": {"failed": cause}}


@pytest.mark.parametrize("choice", [("eager",), ("torch eager",)])
def test_only_what_is_wanted_is_tried_and_the_rest_is_said_to_be_left_out(
    tmp_path: Path, choice: tuple[str, ...]
) -> None:
    heard: list[BaselineAttempt] = []
    with _opened(tmp_path, 23) as session:  # whose torch.compile hangs
        session.limit_baselines(choice)
        session.follow_baselines(heard.append)
        assert session.baseline_name(WORKLOAD) == "torch eager"
        assert session.baselines_left_out(WORKLOAD) == ("torch compile",)
        contest = session.contest(WORKLOAD, [_genome(session, "good")], rounds=3, baseline=True)
        assert contest.names[1:] == ("baseline:torch eager",)
        told = session.baselines_tried(WORKLOAD)
        assert told["torch compile"] == {"left_out": True}
        assert told["torch eager"]["us"] == 25.0
    assert [one.name for one in heard] == ["torch eager"] * 2


def test_what_is_not_on_offer_is_refused_with_what_is(tmp_path: Path) -> None:
    with _opened(tmp_path, 20) as session:
        with pytest.raises(InputError) as caught:
            session.limit_baselines(["torch eager", "torch compiled"])
        assert str(caught.value) == (
            "baselines: unknown 'torch compiled'; "
            "on offer here: torch eager, torch compile (or say all, or eager)"
        )
        session.limit_baselines(None)
        assert session.baseline_name(WORKLOAD) == "the fastest of torch eager, torch compile"
        assert session.baselines_left_out(WORKLOAD) == ()
    with _opened(tmp_path, 7) as session:
        session.limit_baselines(["eager"])
        with pytest.raises(InputError, match="on offer here: none to choose"):
            session.limit_baselines(["torch eager"])


def test_whoever_follows_hears_what_is_tried_and_what_it_took(tmp_path: Path) -> None:
    heard: list[BaselineAttempt] = []
    with _opened(tmp_path, 25) as session:
        session.follow_baselines(heard.append)
        for _ in range(2):
            session.contest(WORKLOAD, [_genome(session, "good")], rounds=3, baseline=True)
    assert [(one.name, one.number, one.seconds is None) for one in heard] == [
        ("torch eager", 1, True),
        ("torch eager", 1, False),
        ("torch compile", 2, True),
        ("torch compile", 2, False),
    ]
    assert {one.workload for one in heard} == {WORKLOAD.label}
    assert [one.compiles for one in heard] == [False, False, True, True]
    assert [one.wrong for one in heard] == ["", "", "", "mismatch"]
    assert [one.latency_us for one in heard] == [None, 25.0, None, 15.0]
    assert [one.limit_s for one in heard] == [_rivals.TRY_S] * 2 + [_rivals.COMPILE_S] * 2
