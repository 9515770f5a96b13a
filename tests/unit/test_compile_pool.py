"""The compile pool: a compiler that fails, however it fails, fails only its candidate."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.unit.compiling_routes import PlantedRoute, plain_build

from kernelarc.bench.kernels import BuildReply, BuildShelf, CompilePool, Order
from kernelarc.bench.kernels._compile_folder import CompileFolder
from kernelarc.genomes import InputError, Operator, Space, Workload, builtin_problem
from kernelarc.genomes.kernels import DeviceLimits

LIMITS = DeviceLimits.of_arch("sm_90a")


def _job() -> tuple[Operator, Workload]:
    problem = builtin_problem("gemm")
    return problem.operator, problem.workloads[0]


@contextmanager
def _pool(folder: Path, **options: float) -> Iterator[tuple[CompilePool, Space, Workload]]:
    operator, workload = _job()
    route = PlantedRoute(operator)
    settings = {"processes": 2, "limit_s": 20.0, "memory_mib": 2048, **options}
    pool = CompilePool([route], "sm_90a", BuildShelf(folder), **settings)  # type: ignore[arg-type]
    try:
        yield pool, route.space(workload, LIMITS), workload
    finally:
        pool.close()


def _drain(pool: CompilePool, limit_s: float = 60.0) -> dict[int, BuildReply]:
    found: dict[int, BuildReply] = {}
    until = time.monotonic() + limit_s
    while pool.pending or pool.ready():
        assert time.monotonic() < until, "the pool does not finish"
        found |= {reply.ticket: reply for reply in pool.harvest()}
        time.sleep(0.01)
    return found


def _order(space: Space, workload: Workload, ticket: int, way: str, value: float = 0.0) -> Order:
    genome = space.genome({"way": way})
    return Order(ticket=ticket, route="planted", workload=workload, genome=genome, value=value)


def test_every_way_of_failing_fails_only_its_candidate(tmp_path: Path) -> None:
    ways = ["good", "refuses", "aborts", "raises", "eats memory", "hangs", "good", "twin"]
    with _pool(tmp_path, limit_s=4.0, memory_mib=1024) as (pool, space, workload):
        for ticket, way in enumerate(ways):
            pool.submit(_order(space, workload, ticket, way))
        found = _drain(pool)
    failures = [found[i].failure for i in range(len(ways))]
    assert failures[0] is failures[6] is failures[7] is None
    assert failures[1:6] == [
        "compile error",
        "compiler crashed",
        "compile error",
        "compiler out of memory",
        "compiler timed out",
    ]
    assert found[1].message == "error: too wide"
    assert "signal 6" in found[2].message
    assert "a compiler's own bug" in found[3].message


def test_the_most_promising_is_built_first(tmp_path: Path) -> None:
    with _pool(tmp_path, processes=1) as (pool, space, workload):
        pool.submit(_order(space, workload, 0, "refuses"))  # keeps the process busy
        for ticket, value in ((1, 3.0), (2, 1.0), (3, 2.0), (99, 0.0), (98, -math.inf)):
            pool.submit(_order(space, workload, ticket, "refuses", value))
        order: list[int] = []
        until = time.monotonic() + 30
        while len(order) < 6 and time.monotonic() < until:
            order += [reply.ticket for reply in pool.harvest()]
            time.sleep(0.01)
    assert order == [0, 98, 2, 3, 1, 99]  # within a batch; nothing waits for ever


def test_builds_are_shared_through_the_folder(tmp_path: Path) -> None:
    with _pool(tmp_path) as (pool, space, workload):
        pool.submit(_order(space, workload, 0, "good"))
        assert _drain(pool)[0].build is not None
    with _pool(tmp_path) as (pool, space, workload):
        pool.submit(_order(space, workload, 5, "good"))
        assert pool.ready()  # no process was asked
        assert _drain(pool)[5].build == plain_build("sm_90a")
    binaries = list(tmp_path.rglob("*.cubin"))
    assert len(binaries) == 1
    binaries[0].write_bytes(b"damaged")
    with _pool(tmp_path) as (pool, space, workload):
        pool.submit(_order(space, workload, 5, "good"))
        assert not pool.ready()  # a damaged binary counts as absent
        assert _drain(pool)[5].build is not None


def test_a_plan_in_the_folder_runs_no_code(tmp_path: Path) -> None:
    with _pool(tmp_path) as (pool, space, workload):
        pool.submit(_order(space, workload, 0, "good"))
        _drain(pool)
    (plan,) = tmp_path.rglob("*.plan2")
    ran = tmp_path / "ran"
    plan.write_bytes(zlib.compress(f"cos\nsystem\n(S'touch {ran}'\ntR.".encode()))
    with _pool(tmp_path) as (pool, space, workload):
        pool.submit(_order(space, workload, 0, "good"))
        assert _drain(pool)[0].build is not None
    assert not ran.exists()


def test_a_route_that_cannot_travel_is_refused_in_one_line(tmp_path: Path) -> None:
    operator, _ = _job()

    class Local(PlantedRoute):
        """Defined in a function: no other process can import it."""

    with pytest.raises(InputError, match="cannot be sent to a compile process"):
        CompilePool([Local(operator)], "sm_90a", BuildShelf(tmp_path), processes=1)


def test_processes_end_with_the_pool(tmp_path: Path) -> None:
    with _pool(tmp_path) as (pool, space, workload):
        pool.submit(_order(space, workload, 0, "hangs"))
        pids = [child._process.pid for child in pool._children]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


KILLED = """
import sys, time
from pathlib import Path
from tests.unit.test_compile_pool import _order, _pool

with _pool(Path(sys.argv[1]), processes=1) as (pool, space, workload):
    pool.submit(_order(space, workload, 0, "hangs"))
    time.sleep(float(sys.argv[2]))
    print(pool._children[0]._process.pid, pool._folder.path, flush=True)
    time.sleep(60)
"""


def _alive(group: str) -> bool:
    """Tell whether any process of a group is there, zombies aside."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, pgid = stat.read_text().rpartition(")")[2].split()[:3]
            if pgid == group and state != "Z":
                return True
    return False


@pytest.mark.parametrize("later_s", [0.0, 2.0])
def test_a_killed_coordinator_leaves_neither_processes_nor_files(
    tmp_path: Path, later_s: float
) -> None:
    """Killed while the compile process is still starting, and while it waits for an assembler."""
    root = Path(__file__).resolve().parents[2]
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]),
    }
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "shelf"), str(later_s)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as coordinator:
        assert coordinator.stdout is not None
        pid, folder = coordinator.stdout.readline().split()
        coordinator.kill()
    (Path(folder) / "left.ptx").write_text("half")
    until = time.monotonic() + 10
    while _alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _alive(pid), "a compiler outlived its coordinator"
    first, second = CompileFolder(tmp_path), CompileFolder(tmp_path)
    assert not Path(folder).exists(), "the next pool removes what the killed one left"
    assert first.path.exists(), "and nothing of one that lives"
    first.close()
    second.close()
    assert not list(tmp_path.glob("kernelarc-compile-*"))


def test_a_pool_leaves_no_files_of_compilers(tmp_path: Path) -> None:
    with _pool(tmp_path) as (pool, space, workload):
        folder = pool._folder.path
        pool.submit(_order(space, workload, 0, "good"))
        _drain(pool)
        assert folder.exists()
    assert not folder.exists()
