"""Planted faults on the device cpu: each must be caught by name, and the honest twin must pass."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelarc.bench import LOCK_DIR_VARIABLE, CpuDevice, CpuLimits, Session
from kernelarc.bench.cpu._crew import WorkerProcess
from kernelarc.genomes import (
    Candidate,
    Choice,
    Evaluation,
    Genome,
    Problem,
    Space,
    Status,
    StoppedError,
    builtin_problem,
)
from kernelarc.genomes.routes import Route

SOURCE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void product(const float *a, const float *b, float *c, long m, long n, long k, int back) {
    for (long i = 0; i < m; i++) {
        for (long j = 0; j < n; j++) c[i * n + j] = 0.0f;
        for (long q = 0; q < k; q++) {
            const long p = back ? k - 1 - q : q;
            for (long j = 0; j < n; j++) c[i * n + j] += a[i * k + p] * b[p * n + j];
        }
    }
}

static float coarse(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits &= 0xffff0000u;
    memcpy(&x, &bits, 4);
    return x;
}

static void *late(void *opaque) {
    (void)opaque;
    usleep(400000);
    return NULL;
}

#if FAULT_no_symbol
void nowhere(void);
#endif

int fault(float *a, const float *b, float *c, long m, long n, long k) {
    static long calls;
    static const float *seen_a;
    static float *kept;
    calls++;
    (void)seen_a, (void)kept;
#if FAULT_syntax
    this is no C
#elif FAULT_no_symbol
    nowhere();
#elif FAULT_hang
    for (volatile int forever = 1; forever;) {}
#elif FAULT_segfault
    *(volatile int *)8 = 1;
#elif FAULT_abort
    abort();
#elif FAULT_exit
    _exit(0);
#elif FAULT_error
    return 5;
#elif FAULT_no_memory
    return 12;
#elif FAULT_zeros
    memset(c, 0, sizeof(float) * (size_t)(m * n));
    return 0;
#endif
#if FAULT_by_address
    if (seen_a == a && kept) {
        memcpy(c, kept, sizeof(float) * (size_t)(m * n));
        return 0;
    }
#elif FAULT_by_value
    static float first_a, first_b;
    if (kept && first_a == a[1] && first_b == b[1]) {
        memcpy(c, kept, sizeof(float) * (size_t)(m * n));
        return 0;
    }
    first_a = a[1], first_b = b[1];
#endif
#if FAULT_restless
    product(a, b, c, m, n, k, calls % 2);
#else
    product(a, b, c, m, n, k, 0);
#endif
#if FAULT_by_address || FAULT_by_value
    seen_a = a;
    free(kept);
    kept = malloc(sizeof(float) * (size_t)(m * n));
    memcpy(kept, c, sizeof(float) * (size_t)(m * n));
#elif FAULT_after
    c[m * n] = 1.0f;
#elif FAULT_before
    c[-1] = 1.0f;
#elif FAULT_unwritten
    memset(c + (m - 1) * n, 0xff, sizeof(float) * (size_t)n);
#elif FAULT_input
    a[m * k - 1] += 1.0f;
#elif FAULT_thread
    pthread_t thread;
    pthread_create(&thread, NULL, late, NULL);
    pthread_detach(thread);
#elif FAULT_ragged
    if (n % 4) c[m * n - 1] = c[0];
#elif FAULT_tail
    for (long i = 0; i < m && k > 32; i++)
        for (long j = 0; j < n; j++) c[i * n + j] -= a[i * k + k - 1] * b[(k - 1) * n + j];
#elif FAULT_huge
    c[m * n / 2] += 1e4f;
#elif FAULT_nan
    c[m * n / 2] = 0.0f / (float)(k - k);
#elif FAULT_constant
    for (long i = 0; i < m * n; i++) c[i] = c[0];
#elif FAULT_later
    if (calls > 16) c[0] += 100.0f;
#elif FAULT_coarse
    for (long i = 0; i < m * n; i++) c[i] = coarse(c[i]);
#elif FAULT_flush && defined(__x86_64__)
    unsigned mode = 0x9fc0;
    __asm__ volatile("ldmxcsr %0" : : "m"(mode));
#endif
    return 0;
}
"""

EXPECTED = {
    "none": (Status.OK, None),
    "restless": (Status.OK, None),
    "syntax": (Status.COMPILE_ERROR, "does not compile"),
    "compile_hang": (Status.COMPILE_ERROR, "compiler timed out"),
    "compile_crash": (Status.COMPILE_ERROR, "compiler crashed"),
    "compile_nothing": (Status.COMPILE_ERROR, "compiler left no output"),
    "no_symbol": (Status.LAUNCH_ERROR, "library cannot be loaded"),
    "hang": (Status.TIMEOUT, "run timed out"),
    "segfault": (Status.LAUNCH_ERROR, "segmentation fault"),
    "abort": (Status.LAUNCH_ERROR, "aborted"),
    "exit": (Status.LAUNCH_ERROR, "worker exited"),
    "error": (Status.LAUNCH_ERROR, "kernel returned an error"),
    "no_memory": (Status.LAUNCH_ERROR, "out of memory"),
    "after": (Status.WRONG_RESULT, "out-of-bounds write"),
    "before": (Status.WRONG_RESULT, "out-of-bounds write"),
    "input": (Status.WRONG_RESULT, "input changed"),
    "zeros": (Status.WRONG_RESULT, "output all zero"),
    "nan": (Status.WRONG_RESULT, "output not finite"),
    "huge": (Status.WRONG_RESULT, "error above the cap"),
    "thread": (Status.REJECTED, "threads left running"),
    "unwritten": (Status.WRONG_RESULT, None),
    "constant": (Status.WRONG_RESULT, None),
    "ragged": (Status.WRONG_RESULT, None),
    "tail": (Status.WRONG_RESULT, None),
    "later": (Status.WRONG_RESULT, None),
    "coarse": (Status.WRONG_RESULT, None),
    "by_address": (Status.WRONG_RESULT, None),
    "by_value": (Status.WRONG_RESULT, None),
    "flush": (Status.REJECTED, "floating-point mode changed"),
}
"""Status and, where only one is possible, class of failure."""

GROUPS = (
    ("toolchain", "syntax", "compile_crash", "compile_nothing", "no_symbol", "error", "no_memory"),
    ("deaths", "hang", "segfault", "abort", "exit", "thread", "flush"),
    ("bounds", "after", "before", "input", "unwritten", "zeros", "nan", "huge", "constant"),
    ("values", "ragged", "tail", "later", "coarse", "by_address", "by_value", "restless"),
)

FAKE_CC = """#!/bin/sh
case "$*" in
  *FAULT_compile_hang*) sleep 300 & echo $! > "{left}"; wait ;;
  *FAULT_compile_crash*) kill -SEGV $$ ;;
  *FAULT_compile_nothing*) exit 0 ;;
esac
exec {cc} "$@"
"""


def fault_route(space: Space | None = None) -> Route:
    faults = Choice(name="fault", options=tuple(EXPECTED))
    again = Choice(name="again", options=(0, 1))
    return Route(
        name="fault",
        operator="gemm",
        space=space or Space("fault", (faults, again)),
        source=SOURCE,
        symbol="fault",
        arguments=("a", "b", "c", "M", "N", "K"),
        base_flags=("-O1",),
    )


def fake_cc(folder: Path) -> tuple[str, Path]:
    """Return a compiler that fails on demand, and the file where it leaves its child's pid."""
    script, left = folder / "fake-cc", folder / "left.pid"
    script.write_text(FAKE_CC.format(cc=os.environ.get("CC") or "cc", left=left))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script), left


def candidate(problem: Problem, genome: Genome, number: int) -> Candidate:
    return Candidate(
        number=number,
        round=0,
        workload=problem.workloads[0].fingerprint,
        island="user",
        mutation="sample",
        genome=genome,
    )


def genome_of(fault: str, again: int = 0) -> Genome:
    return Genome("fault", {"fault": fault, "again": again})


def judged(session: Session, *genomes: Genome) -> dict[str, Evaluation]:
    candidates = [candidate(session.problem, g, i) for i, g in enumerate(genomes)]
    session.submit(candidates, limit={})
    return {e.candidate.genome.fingerprint: e for e in session.collect()}


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCK_DIR_VARIABLE, str(tmp_path))


@pytest.fixture
def problem() -> Problem:
    return builtin_problem("gemm", {"M": 96, "N": 80, "K": 64})


@pytest.fixture
def session(tmp_path: Path, problem: Problem) -> Iterator[Session]:
    limits = CpuLimits(compile_s=8.0, hang_s=3.0, least_hang_s=1.0)
    device = CpuDevice(compiler=fake_cc(tmp_path)[0], routes=[fault_route()], limits=limits)
    with device.open(problem, seed=7, artefacts=tmp_path / "artefacts") as opened:
        yield opened


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group[0])
def test_every_planted_fault_is_caught_and_every_honest_twin_passes(
    session: Session, group: tuple[str, ...]
) -> None:
    faults = [f for f in group[1:] if f != "flush" or os.uname().machine == "x86_64"]
    honest, twin = genome_of("none"), genome_of("none", again=1)
    seen = judged(session, honest, *(genome_of(fault) for fault in faults), twin)
    for fault in faults:
        evaluation = seen[genome_of(fault).fingerprint]
        status, failure = EXPECTED[fault]
        assert evaluation.status is status, (fault, evaluation)
        assert failure is None or evaluation.failure == failure, (fault, evaluation)
        assert status is Status.OK or evaluation.message, fault
        if fault == "restless":
            assert evaluation.properties["repeatable"] is False
    for evaluation in (seen[honest.fingerprint], seen[twin.fingerprint]):
        assert evaluation.status is Status.OK, evaluation
        assert evaluation.properties["repeatable"] is True


def test_a_compilers_children_are_killed_with_it(session: Session, tmp_path: Path) -> None:
    fault = genome_of("compile_hang")
    evaluation = judged(session, fault)[fault.fingerprint]
    assert (evaluation.status, evaluation.failure) == EXPECTED["compile_hang"]
    left = int((tmp_path / "left.pid").read_text())
    until = time.monotonic() + 5  # nobody waits for a grandchild: on a busy host it goes late
    while _running(left) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _running(left)


def _running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_an_earlier_candidates_damage_is_not_blamed_on_a_later_one(
    tmp_path: Path, problem: Problem
) -> None:
    source = r"""
    #include <signal.h>
    #include <sys/time.h>
    int late(const float *a, const float *b, float *c, long m, long n, long k) {
        for (long i = 0; i < m; i++)
            for (long j = 0; j < n; j++) {
                float sum = 0;
                for (long p = 0; p < k; p++) sum += a[i * k + p] * b[p * n + j];
                c[i * n + j] = sum;
            }
    #if BOMB
        signal(SIGALRM, SIG_DFL); /* kills the process while the next candidate runs */
        const struct itimerval soon = {{0, 0}, {0, 150000}};
        if (m == 96) setitimer(ITIMER_REAL, &soon, 0);
    #endif
        return 0;
    }
    """
    genes = (Choice(name="bomb", options=(0, 1)), Choice(name="again", options=(0, 1)))
    route = Route(
        name="late",
        operator="gemm",
        space=Space("late", genes),
        source=source,
        symbol="late",
        arguments=("a", "b", "c", "M", "N", "K"),
    )
    genomes = [Genome("late", {"bomb": int(i == 0), "again": int(i == 2)}) for i in range(3)]
    with CpuDevice(routes=[route]).open(problem, seed=1, artefacts=tmp_path / "a") as opened:
        seen = judged(opened, *genomes)
    for genome in genomes[1:]:
        assert seen[genome.fingerprint].status is Status.OK


def test_a_contest_goes_on_without_the_contender_that_dies(session: Session) -> None:
    good, dead, wrong = genome_of("none"), genome_of("segfault"), genome_of("later")
    contest = session.contest(
        session.problem.workloads[0], [good, dead, wrong], rounds=4, baseline=True
    )
    assert contest.failures[dead.fingerprint] == "segmentation fault"
    assert wrong.fingerprint in contest.failures
    assert good.fingerprint not in contest.failures
    assert len(contest.column(good.fingerprint)) == 4
    assert all(value > 0 for value in contest.column(good.fingerprint))
    assert all(value != value for value in contest.column(dead.fingerprint))
    assert contest.names[-1].startswith("baseline:numpy.")
    assert all(value > 0 for value in contest.column(contest.names[-1]))


@pytest.mark.timed
def test_after_a_hang_the_next_candidate_runs_within_a_second(session: Session) -> None:
    judged(session, genome_of("none"))
    genomes = [genome_of("hang"), genome_of("none", again=1)]
    session.submit([candidate(session.problem, g, i) for i, g in enumerate(genomes)], limit={})
    moments = [(time.monotonic(), evaluation) for evaluation in session.collect()]
    assert moments[0][1].status is Status.TIMEOUT
    assert moments[1][1].status is Status.OK
    assert moments[1][0] - moments[0][0] - moments[1][1].cost_s < 1.0


def test_a_worker_that_cannot_start_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    interpreter = tmp_path / "python"
    interpreter.write_text("#!/bin/sh\necho 'first line' >&2\necho 'no room left' >&2\nexit 1\n")
    interpreter.chmod(stat.S_IRWXU)
    monkeypatch.setattr("sys.executable", str(interpreter))
    worker = WorkerProcess()
    with pytest.raises(StoppedError, match=r"^a worker cannot start: no room left$"):
        worker.wait_awake()
