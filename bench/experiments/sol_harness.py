"""Problems end to end on a GPU: search, export, SOL-ExecBench's own harness, torch beside ours.

    python -m kernelarc.bench.experiments.sol_harness --harness SRC -o FOLDER TASK [TASK ...]

TASK is ``PROBLEM[=SECONDS[=LINE,LINE,...]]``: a packaged problem, the seconds of its search, and
which lines of its workloads take part, counted from 0. SRC is the ``src`` of a clone of the
harness; what it needs (pydantic, cupti-python) must be importable. Each step is a process of its
own with a time limit; what it leaves is in ``FOLDER/results.tar.gz`` before the next begins, and
``FOLDER/steps.jsonl`` says how each went. Tasks that would begin after ``--until`` are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

_AUDIT_S, _EXPORT_S, _HARNESS_S, _WARM_S = 100.0, 40.0, 110.0, 70.0
_LOADING_S = 45.0  # of a race: torch, compiled variants, references
_MOST_BYTES = 15 << 20
_CLI = "from sol_execbench.cli import cli; cli()"
_HERE = "kernelarc.bench.experiments"


@dataclass(frozen=True, slots=True)
class Task:
    """A problem to be searched, and for how long.

    Attributes:
        problem: A packaged problem.
        seconds: Of its search.
        lines: Workloads that take part; empty is all.
    """

    problem: str
    seconds: float
    lines: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> Task:
        """Return a task as it is written on the command line."""
        problem, seconds, lines = (*text.split("="), "", "")[:3]
        chosen = tuple(int(part) for part in lines.split(",") if part)
        return cls(problem, float(seconds or 20.0), chosen)

    def write(self, folder: Path) -> None:
        """Write the problem's folder with the workloads that take part."""
        held = files("kernelarc.genomes").joinpath("operators", self.problem)
        workloads = held.joinpath("workload.jsonl").read_text("utf-8").splitlines()
        chosen = [workloads[i] for i in self.lines] if self.lines else workloads
        folder.mkdir(parents=True)
        definition = held.joinpath("definition.json").read_text("utf-8")
        (folder / "definition.json").write_text(definition, "utf-8")
        (folder / "workload.jsonl").write_text("\n".join(chosen) + "\n", "utf-8")


class Steps:
    """Runs steps one after another and keeps what they leave.

    Args:
        work: Where the tasks' folders are.
        kept: Where the results go.
        harness: The harness's ``src``.
        until: No step may last beyond so many seconds from now.
    """

    def __init__(self, work: Path, kept: Path, harness: Path, until: float) -> None:
        self.work, self._kept = work, kept
        self._begun, self._until = time.monotonic(), until
        paths = [str(harness.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"),
            "TRITON_CACHE_DIR": str(work / "triton"),
        }

    def left_s(self) -> float:
        """Return the seconds that are left."""
        return self._until - (time.monotonic() - self._begun)

    def start(self, arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own."""
        with log.open("wb") as out:
            return subprocess.Popen(
                [sys.executable, *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )

    def await_(self, name: str, process: subprocess.Popen[bytes], limit_s: float) -> bool:
        """Wait for a process, end it with its group at the limit; tell whether it did well."""
        begun = time.monotonic()
        try:
            code = process.wait(max(1.0, min(limit_s, self.left_s())))
        except subprocess.TimeoutExpired:
            code = 124
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        row = {"step": name, "rc": code, "seconds": round(time.monotonic() - begun, 1)}
        self.note({**row, "left_s": round(self.left_s(), 1)})
        return code == 0

    def run(self, name: str, arguments: Sequence[str], log: Path, limit_s: float) -> bool:
        """Run one step to its end."""
        done = self.await_(name, self.start(arguments, log), limit_s)
        self.keep()
        return done

    def note(self, row: Mapping[str, object]) -> None:
        """Say how a step went."""
        print(json.dumps(row), flush=True)
        with (self._kept / "steps.jsonl").open("a") as out:
            out.write(json.dumps(row) + "\n")

    def keep(self) -> None:
        """Pack what there is; the stores only where they leave it small enough to be carried."""
        for stores in (True, False):
            aside = self._kept / "results.part"
            with tarfile.open(aside, "w:gz") as packed:
                for path in sorted(self.work.glob("*/*")):
                    if path.is_file() and (stores or path.suffix != ".db"):
                        packed.add(path, str(path.relative_to(self.work)))
            if aside.stat().st_size <= _MOST_BYTES:
                break
        aside.replace(self._kept / "results.tar.gz")


def warmed(steps: Steps, tasks: Sequence[Task]) -> None:
    """Fill torch.compile's cache for all tasks at once: nothing is timed meanwhile."""
    begun = {}
    for task in tasks:
        folder = steps.work / task.problem
        asked = ["-m", f"{_HERE}.sol_race", str(folder), "--warm", "-o", str(folder / "warm.json")]
        begun[task.problem] = steps.start(asked, folder / "warm.log")
    end = time.monotonic() + _WARM_S
    for name, process in begun.items():
        steps.await_(f"{name} warm", process, end - time.monotonic())
    steps.keep()


def end_to_end(steps: Steps, task: Task, race_s: float) -> None:
    """Search one problem, export it, and have it timed by others.

    Args:
        steps: Run what there is to do.
        task: What is searched.
        race_s: Seconds of a race beside torch; without any there is none.
    """
    folder, store = steps.work / task.problem, steps.work / task.problem / "campaign.db"
    solution = folder / "solution.json"
    search = ["-m", "kernelarc", "run", str(folder), "--device", "cuda:0", "--json"]
    search += ["--seconds", str(task.seconds), "--seed", "1", "--store", str(store)]
    steps.run(f"{task.problem} run", search, folder / "run.log", task.seconds + _AUDIT_S)
    export = ["-m", "kernelarc", "export", str(store), "--format", "sol", "-o", str(solution)]
    if not steps.run(f"{task.problem} export", export, folder / "export.log", _EXPORT_S):
        return
    shutil.rmtree(f"{store}-artefacts", ignore_errors=True)
    judge = ["-c", _CLI, str(folder), "--solution", str(solution), "-o"]
    judge += [str(folder / "traces.jsonl"), "--timeout", str(int(_HARNESS_S) - 5)]
    steps.run(f"{task.problem} harness", judge, folder / "harness.log", _HARNESS_S)
    if race_s <= 0:
        return
    race = ["-m", f"{_HERE}.sol_race", str(folder), "--ours", str(solution)]
    race += ["--seconds", str(race_s), "-o", str(folder / "race.json")]
    steps.run(f"{task.problem} race", race, folder / "race.log", race_s + _LOADING_S)


def main() -> None:
    """Run the tasks in order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="+", type=Task.of, metavar="TASK")
    parser.add_argument("--harness", type=Path, required=True)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--until", type=float, default=3600.0, help="seconds in all")
    parser.add_argument("--race-seconds", type=float, default=65.0, help="of each race; 0: none")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    steps = Steps(Path(tempfile.mkdtemp()), given.output, given.harness, given.until)
    for task in given.tasks:
        task.write(steps.work / task.problem)
    if given.race_seconds > 0:
        warmed(steps, given.tasks)
    for task in given.tasks:
        if steps.left_s() < task.seconds + _EXPORT_S:
            steps.note({"step": f"{task.problem} left out", "left_s": round(steps.left_s(), 1)})
            continue
        end_to_end(steps, task, given.race_seconds)


if __name__ == "__main__":
    main()
