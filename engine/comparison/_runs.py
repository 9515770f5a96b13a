"""Running every method on every space with every seed, in parallel, and no run twice."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from threadpoolctl import threadpool_limits

from kernelarc.engine.comparison._methods import METHODS, Method
from kernelarc.engine.comparison._play import Trajectory
from kernelarc.engine.comparison._table import Table, load_table

Run: TypeAlias = "tuple[str, str, int]"
"""Space, method, seed."""


@dataclass(frozen=True, slots=True)
class Task:
    """One run.

    Attributes:
        path: The recorded space.
        permute_seed: As for ``load_table``.
        key: What the result depends on, as text.
        until_optimum: Cut the run off once it stands at the optimum; for our own search only.
    """

    run: Run
    path: Path
    permute_seed: int | None
    budget: int
    key: str
    until_optimum: bool = False

    def play(self) -> Trajectory:
        """Run it in this process."""
        _, method, seed = self.run
        table = _table(self.path, self.permute_seed)
        playing: Callable[..., list[float]] = METHODS[method].play
        cut = {"until": table.optimum} if self.until_optimum else {}
        with threadpool_limits(1):  # runs share the cores among processes, not among threads
            return Trajectory.of(playing(table, self.budget, seed, **cut))


_tables: dict[tuple[Path, int | None], Table] = {}


def _table(path: Path, permute_seed: int | None) -> Table:
    """Return a table, kept for the next run: only the newest, they are large."""
    key = (path, permute_seed)
    if key not in _tables:
        _tables.clear()
        _tables[key] = load_table(path, permute_seed=permute_seed)
    return _tables[key]


def tasks_of(
    tables: Sequence[Table],
    methods: Sequence[Method],
    seeds: Sequence[int],
    budget: int,
    permute_seed: int | None,
    *,
    until_optimum: bool = False,
) -> list[Task]:
    """Return every run that is wanted, space by space.

    Raises:
        MissingPartError: A method's package is not installed.
    """
    versions = {method.name: method.version() for method in methods}
    cut = "/until optimum" if until_optimum else ""
    return [
        Task(
            run=(table.name, method.name, seed),
            path=table.device.recording.path,
            permute_seed=permute_seed,
            budget=budget,
            key=f"{table.digest}/{method.name}/{versions[method.name]}/{seed}/{budget}{cut}",
            until_optimum=until_optimum,
        )
        for table in tables
        for method in methods
        for seed in seeds
    ]


class RunLog:
    """Finished runs in a file, one line each: an interrupted comparison goes on where it was."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Trajectory] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                self._read(line)

    def _read(self, line: str) -> None:
        try:
            row = json.loads(line)
            steps = tuple((int(count), float(best)) for count, best in row["steps"])
            found = Trajectory(int(row["evaluations"]), int(row["failed"]), steps)
            self._known[str(row["key"])] = found
        except (ValueError, KeyError, TypeError):
            return  # a line that an interruption cut; the run is made again

    def find(self, task: Task) -> Trajectory | None:
        """Return a run's result, or None where it was not made."""
        return self._known.get(task.key)

    def add(self, task: Task, found: Trajectory) -> None:
        """Write a finished run down."""
        row = {
            "key": task.key,
            "evaluations": found.evaluations,
            "failed": found.failed,
            "steps": found.steps,
        }
        self._known[task.key] = found
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def run_all(
    tasks: Sequence[Task], log: RunLog, *, jobs: int, telling: Callable[[int, int], None]
) -> Mapping[Run, Trajectory]:
    """Make the runs that the log does not hold; return all of them.

    Args:
        tasks: What is wanted.
        log: Where finished runs stand and are added.
        jobs: Processes; 1 runs here.
        telling: Told of runs done and wanted.
    """
    waiting = [task for task in tasks if log.find(task) is None]
    done = len(tasks) - len(waiting)
    telling(done, len(tasks))
    for task, found in _results(waiting, jobs):
        log.add(task, found)
        done += 1
        telling(done, len(tasks))
    results = {task.run: log.find(task) for task in tasks}
    return {run: found for run, found in results.items() if found is not None}


def _results(waiting: Sequence[Task], jobs: int) -> Iterator[tuple[Task, Trajectory]]:
    if jobs == 1:
        yield from ((task, task.play()) for task in waiting)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        try:
            yield from _collected(pool, waiting, 2 * jobs)
        finally:
            pool.shutdown(cancel_futures=True)


def _collected(
    pool: ProcessPoolExecutor, waiting: Sequence[Task], most: int
) -> Iterator[tuple[Task, Trajectory]]:
    """Hand tasks out in order, a few ahead, and yield results as they come."""
    ahead = iter(waiting)
    running: dict[Future[Trajectory], Task] = {}
    while True:
        while len(running) < most and (task := next(ahead, None)) is not None:
            running[pool.submit(task.play)] = task
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            yield running.pop(future), future.result()
