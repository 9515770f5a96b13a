"""The session's side of the conversation, with a scripted worker and no GPU."""

from __future__ import annotations

import importlib.util
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelarc.bench import DeviceLock
from kernelarc.bench.cuda import CudaSession, _session
from kernelarc.bench.cuda._binding import numbering
from kernelarc.bench.cuda._escapes import DeviceBusyError, given_up
from kernelarc.bench.cuda._library import Matmul, Side
from kernelarc.bench.cuda._offer import library_domain
from kernelarc.bench.cuda._protocol import (
    ContestReply,
    Fault,
    Outcome,
    Request,
    WorkerGoneError,
)
from kernelarc.genomes import (
    Candidate,
    Environment,
    Genome,
    InputError,
    MatmulForm,
    Operator,
    Problem,
    Status,
    StoppedError,
    Workload,
    matmul_operator,
    matmul_problem,
)

PROBLEM = matmul_problem(matmul_operator(MatmulForm()), [{"M": 96, "N": 64, "K": 512}])


def _fake_lt() -> Any:
    name = "lt_fake_for_tests"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("lt_fake.py"))
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name].FakeLt()


class Script:
    """What happens at which candidate: ``"gone"``, ``"hang"`` or ``"fatal"``; once each."""

    def __init__(self) -> None:
        self.at: dict[int, str] = {}
        self.at_verb: dict[str, list[str]] = {}
        self.made = 0
        self.limits: dict[int, float | None] = {}


class Scripted:
    """A worker that answers at once, from a fake library."""

    def __init__(self, script: Script) -> None:
        self._script, self.channel, self.pid = script, self, 1
        self._tasks: Any = ()
        self._answers: deque[Any] = deque()
        self._dead = False
        script.made += 1

    def ask(self, verb: str, *, timeout_s: float, **arguments: Any) -> Any:
        self.send(Request(verb=verb, arguments=arguments))
        return self.receive(timeout_s)

    def send(self, request: Request) -> None:
        if self._dead:
            raise WorkerGoneError("dead")
        if request.verb == "evaluate":
            self._answers.extend(request.arguments["items"])
            return
        event = self._script.at_verb.get(request.verb)
        if event:
            self._answers.appendleft(event.pop(0))
            return
        self._answers.appendleft(getattr(self, request.verb)(**request.arguments))

    def receive(self, timeout_s: float | None = None) -> Any:
        del timeout_s
        if self._dead or not self._answers:
            raise WorkerGoneError("dead")
        answer = self._answers.popleft()
        if answer == "gone":
            self._dead = True
            raise WorkerGoneError("dead")
        is_item = type(answer) is tuple and len(answer) == 4
        return self._evaluated(answer) if is_item else answer

    def _evaluated(self, item: tuple[Any, ...]) -> Outcome:
        _, number, _, limit = item
        self._script.limits[number] = limit
        event = self._script.at.pop(number, "")
        if event == "gone":
            self._dead = True
            raise WorkerGoneError("dead")
        if event == "hang":
            self._dead = True
            raise TimeoutError
        if event.startswith("busy"):
            self._script.at |= {number: event.removeprefix("busy ")} if " " in event else {}
            return given_up(number, DeviceBusyError("other work runs on this GPU"), 0.5)
        if event == "fatal":
            self._dead = True
            return Outcome(
                number=number, status=Status.LAUNCH_ERROR, failure="device fault", fatal=True
            )
        return Outcome(number=number, status=Status.OK, samples=(5.0, 6.0, 7.0), launches=9)

    def open(self, tasks: Any, seed: int) -> None:
        self._tasks = tasks

    def environment(self) -> Environment:
        return Environment(identity={"device": "scripted"})

    def _matmul(self) -> Matmul:
        return Matmul(_fake_lt(), 1, self._tasks[0].job, Side())

    def domain(self, workload: int) -> Any:
        matmul = self._matmul()
        return library_domain(matmul, numbering(matmul.lt), np.random.default_rng(workload))

    def check(self, workload: int, rows: Any) -> Any:
        return self._matmul().check(rows)

    def contest(self, rows: Any, rounds: int, **_: Any) -> ContestReply:
        return ContestReply(
            samples=tuple(tuple(float(i + 1) for i in range(len(rows))) for _ in range(rounds)),
            failures={},
            launches=3,
        )

    def observe(self) -> dict[str, str]:
        return {"clock_mhz": "1"}

    def last_words(self) -> str:
        return "segmentation fault"

    def kill(self) -> None:
        self._dead = True

    close = kill


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    made = Script()
    monkeypatch.setattr(_session, "WorkerProcess", lambda *_: Scripted(made))
    return made


def opened(problem: Problem = PROBLEM) -> CudaSession:
    lock = DeviceLock("cuda:7").acquire()
    try:
        return CudaSession("cuda:7", 7, problem, seed=1, lock=lock)
    except BaseException:
        lock.release()
        raise


@pytest.fixture
def session(script: Script) -> Iterator[CudaSession]:
    with opened() as made:
        yield made


def legal(session: CudaSession, count: int) -> list[Genome]:
    workload = PROBLEM.workloads[0]
    space, rng = session.spaces(workload)["cublaslt"], np.random.default_rng(0)
    found: dict[Genome, None] = {}
    while len(found) < count:
        drawn = [space.sample(rng) for _ in range(100)]
        answers = session.check(workload, drawn)
        found |= {g: None for g, a in zip(drawn, answers, strict=True) if a is None}
    return list(found)[:count]


def candidates(session: CudaSession, count: int) -> list[Candidate]:
    return [
        Candidate(
            number=i,
            round=0,
            workload=PROBLEM.workloads[0].fingerprint,
            island="engine",
            mutation="sample",
            genome=genome,
        )
        for i, genome in enumerate(legal(session, count))
    ]


def test_evaluations_arrive_in_order_with_their_limits(
    session: CudaSession, script: Script
) -> None:
    asked = candidates(session, 5)
    session.submit(asked[:3], limit={})
    session.submit(asked[3:], limit={asked[0].workload: 5.5})
    seen = list(session.collect())
    assert [e.candidate for e in seen] == asked
    assert all(e.measurement is not None and e.measurement.objective == 6.0 for e in seen)
    assert seen[0].measurement is not None and seen[0].measurement.launches == 9
    assert [script.limits[i] for i in range(5)] == [None, None, None, 5.5, 5.5]


@pytest.mark.parametrize(
    ("event", "status", "failure"),
    [
        ("gone", Status.LAUNCH_ERROR, "worker died"),
        ("hang", Status.TIMEOUT, "timeout"),
        ("fatal", Status.LAUNCH_ERROR, "device fault"),
    ],
)
def test_only_the_culprit_fails(
    session: CudaSession, script: Script, event: str, status: Status, failure: str
) -> None:
    asked = candidates(session, 6)
    before = script.made
    script.at[2] = event
    session.submit(asked, limit={})
    seen = list(session.collect())
    assert [e.candidate.number for e in seen] == list(range(6))
    assert [e.status for e in seen] == [status if i == 2 else Status.OK for i in range(6)]
    assert seen[2].failure == failure
    assert script.made == before + 1  # the one that stood by took over; another stands by now


def test_who_meets_a_busy_device_comes_again_and_is_never_called_wrong(
    session: CudaSession, script: Script
) -> None:
    """Row 18: an honest candidate on a GPU that somebody else uses too."""
    script.at |= {1: "busy", 2: "busy busy"}
    session.submit(candidates(session, 4), limit={})
    seen = list(session.collect())
    assert [e.candidate.number for e in seen] == [0, 3, 1, 2]
    assert [e.status for e in seen] == [Status.OK] * 3 + [Status.INTERRUPTED]
    assert (seen[3].failure, seen[3].message) == ("device busy", "other work runs on this GPU")


def test_a_check_between_evaluations_loses_none(session: CudaSession) -> None:
    asked = candidates(session, 4)
    session.submit(asked, limit={})
    genomes = [c.genome for c in asked]
    assert session.check(PROBLEM.workloads[0], genomes) == [None] * 4
    assert len(list(session.collect())) == 4


def test_illegal_genomes_get_one_line_each(session: CudaSession) -> None:
    genome = legal(session, 1)[0]
    others = [
        Genome("triton", {"tile": 1}),
        Genome("cublaslt", {**genome.alleles(), "tile_m": 4096}),
        Genome("cublaslt", {**genome.alleles(), "algo": "5"}),
    ]
    answers = session.check(PROBLEM.workloads[0], [genome, *others])
    assert answers[0] is None
    for answer in answers[1:]:
        assert answer and "\n" not in answer


def test_contest_names_the_baseline_last(session: CudaSession) -> None:
    workload = PROBLEM.workloads[0]
    genomes = legal(session, 2)
    contest = session.contest(workload, genomes, rounds=4, baseline=True)
    assert contest.names == (*(g.fingerprint for g in genomes), "baseline:first heuristic")
    assert contest.column(contest.names[-1]) == (3.0,) * 4
    assert session.baseline_name(workload) == "first heuristic"


def test_a_contest_that_kills_the_worker_fails_its_contenders(
    session: CudaSession, script: Script
) -> None:
    workload = PROBLEM.workloads[0]
    genomes = legal(session, 2)
    script.at_verb["contest"] = ["gone"]
    contest = session.contest(workload, genomes, rounds=3)
    assert set(contest.failures) == set(contest.names)
    again = session.contest(workload, genomes, rounds=3)
    assert not again.failures


def test_a_device_that_keeps_failing_stops_resumably(session: CudaSession, script: Script) -> None:
    script.at_verb["observe"] = ["gone"] * 5
    with pytest.raises(StoppedError, match="again and again"):
        session.observe()


def test_what_the_worker_refuses_is_raised_here(session: CudaSession, script: Script) -> None:
    script.at_verb["observe"] = [Fault(kind="InputError", message="no")]  # type: ignore[list-item]
    with pytest.raises(InputError, match="no"):
        session.observe()


def test_a_problem_that_is_no_product_is_refused(script: Script) -> None:
    operator = Operator(name="norm", axes={}, inputs=(), outputs=())
    problem = Problem(operator=operator, workloads=(Workload(operator=operator.fingerprint),))
    with pytest.raises(InputError, match="'norm' is no matrix product"):
        opened(problem)
    DeviceLock("cuda:7").acquire().release()


def test_closing_twice_releases_once(script: Script) -> None:
    session = opened()
    session.close()
    session.close()
    DeviceLock("cuda:7").acquire().release()
