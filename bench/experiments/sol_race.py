"""Our solution and torch's variants in turn, by the clock of SOL-ExecBench's own harness.

    python -m kernelarc.bench.experiments.sol_race PROBLEM --ours solution.json -o FILE

Needs an NVIDIA GPU, and the harness's ``src`` on PYTHONPATH: its inputs, its comparison, its
CUPTI clock (cold L2, shifted pointers). PROBLEM is a folder. All that compute one workload are
timed in one process, one after the other, in as many short rounds as ``--seconds`` has room for;
what is far behind after the first few sits the others out. Only those that are right by the
harness's comparison count as a baseline. FlashInfer's own kernels run along where it is installed
and serves the problem. ``--warm`` only runs each variant once, so that ``torch.compile`` finds its
cache filled. Rows are written as they come.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from kernelarc.bench._scoring import datasheet, limit_us, score
from kernelarc.bench.experiments._flashinfer import flashinfer_peers
from kernelarc.bench.experiments._machine import write
from kernelarc.bench.experiments.sol_baselines import variants
from kernelarc.genomes import (
    Problem,
    Solution,
    Workload,
    bytes_of,
    flops_of,
    load_problem,
    load_solution,
    tensor_bytes,
)

OURS, EAGER = "ours", "eager"
_DEVICE, _REPEATS = "cuda:0", 5
_FIRST_WARMUP, _WARMUP = 10, 2
_FIRST_ROUNDS, _MOST_ROUNDS, _BEHIND = 3, 100, 2.0


@dataclass(frozen=True, slots=True)
class Runner:
    """Something to be timed.

    Attributes:
        run: Takes the inputs, and the outputs where it is handed them.
        passing: Whether it is.
        inputs: Its own, where they are not the problem's: then it is a yardstick, not compared.
        outputs: Likewise.
        prepare: Takes the inputs before anything is run on them; its time is not counted.
    """

    run: Callable[..., Any]
    passing: bool
    inputs: Sequence[Any] | None = None
    outputs: Sequence[Any] = ()
    prepare: Callable[..., Any] | None = None


class Harness:
    """The harness's functions, and one problem in its own form.

    Args:
        folder: The problem's.
    """

    def __init__(self, folder: Path) -> None:
        core = importlib.import_module("sol_execbench.core")
        self._io = importlib.import_module("sol_execbench.core.bench.io")
        self._correct = importlib.import_module("sol_execbench.core.bench.correctness")
        self._timing = importlib.import_module("sol_execbench.core.bench.timing")
        self.torch = importlib.import_module("torch")
        self._definition = core.Definition(**json.loads((folder / "definition.json").read_text()))
        lines = (folder / "workload.jsonl").read_text().splitlines()
        self.workloads = [core.Workload(**json.loads(line)) for line in lines if line.strip()]
        dtypes = importlib.import_module("sol_execbench.core.data.dtypes")
        self._dtypes = {
            name: dtypes.dtype_str_to_torch_dtype(spec.dtype)
            for name, spec in self._definition.outputs.items()
        }
        self.reference = _module("reference_of_the_problem", self._definition.reference)
        self._correct.set_seed(200)

    def inputs(self, workload: Any) -> list[Any]:
        """Return fresh inputs."""
        name = self._definition.custom_inputs_entrypoint
        maker = getattr(self.reference, name) if name else None
        made: list[Any] = self._io.gen_inputs(
            self._definition, workload, device=_DEVICE, safe_tensors=None, custom_inputs_fn=maker
        )
        return made

    def outputs(self, workload: Any) -> list[Any]:
        """Return zeroed outputs."""
        axes = self._definition.get_resolved_axes_values(workload.axes)
        made: list[Any] = self._io.allocate_outputs(self._definition, axes, _DEVICE)
        return made

    def called(self, runner: Runner, workload: Any, inputs: Sequence[Any]) -> list[Any]:
        """Return what a runner computes."""
        if runner.passing:
            outputs = self.outputs(workload)
            runner.run(*inputs, *outputs)
        else:
            named = self._io.normalize_outputs(
                runner.run(*inputs),
                device=self.torch.device(_DEVICE),
                output_names=list(self._dtypes),
                output_dtypes=self._dtypes,
            )
            outputs = [named[name] for name in self._dtypes]
        self.torch.cuda.synchronize()
        return outputs

    def fault(self, found: Sequence[Any], wanted: Sequence[Any], workload: Any) -> str | None:
        """Say what is wrong with outputs, None where nothing is."""
        for name, own, right in zip(self._dtypes, found, wanted, strict=True):
            if own.shape != right.shape or own.dtype != right.dtype:
                return f"{name}: {tuple(own.shape)} {own.dtype}"
            seen, exceeds = self._correct.compute_error_stats(own, right, workload.tolerance)
            if exceeds:
                return f"{name}: error up to {seen.max_absolute_error:.3g}"
        return None

    def time_us(
        self, runner: Runner, workload: Any, inputs: Sequence[Any], warmup: int = _FIRST_WARMUP
    ) -> float:
        """Return the median microseconds of a runner."""
        given = list(inputs if runner.inputs is None else runner.inputs)
        own = list(runner.outputs) or (self.outputs(workload) if runner.passing else [])
        taken_ms = self._timing.time_runnable(
            runner.run, given, own, _DEVICE, warmup=warmup, rep=_REPEATS
        )
        return 1e3 * float(taken_ms)


def _module(name: str, source: str) -> Any:
    """Return a module of its own file: Triton and torch read sources back."""
    path = Path(tempfile.mkdtemp()) / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def entry_of(solution: Solution) -> Callable[..., Any]:
    """Return the entry of a solution of one file."""
    ((file, source),) = solution.sources.items()
    named, _, function = solution.entry_point.partition("::")
    assert named == file
    entry: Callable[..., Any] = getattr(_module(solution.name, source), function)
    return entry


def ours(solution: Solution) -> Runner:
    """Return a solution of several files; its own modules find each other."""
    folder = Path(tempfile.mkdtemp())
    for name, text in solution.sources.items():
        (folder / name).write_text(text)
    sys.path.insert(0, str(folder))
    file, _, function = solution.entry_point.partition("::")
    module = importlib.import_module(file.removesuffix(".py"))
    return Runner(getattr(module, function), solution.destination_passing)


def yardsticks(problem: Problem, workload: Workload, torch: Any) -> dict[str, Runner]:
    """Return what some tasks' aims are said in: not baselines, since they do other work."""
    name, axes = problem.operator.name, workload.axes
    if name == "add_rmsnorm_bf16":
        count = 3 * axes["rows"] * axes["hidden"]  # bytes: half of what is read and written
        source = torch.randint(0, 255, (count,), dtype=torch.uint8, device=_DEVICE)
        target = torch.empty_like(source)
        return {"copy": Runner(lambda a, b: b.copy_(a), True, (source,), (target,))}
    if name == "nvfp4_gqa":
        batch, seq = axes["batch_size"], axes["seq_len"]
        weights = torch.empty((batch, 40, seq, seq), dtype=torch.bfloat16, device=_DEVICE)
        heads = [
            torch.randn((batch, n, seq, 128), dtype=torch.bfloat16, device=_DEVICE)
            for n in (40, 8, 8)
        ]
        attend = torch.nn.functional.scaled_dot_product_attention
        return {
            "weights_write": Runner(lambda out: out.fill_(1.0), True, (), (weights,)),
            "bf16_sdpa": Runner(lambda q, k, v: attend(q, k, v, enable_gqa=True), False, heads),
        }
    return {}


def _row(
    harness: Harness,
    runners: Mapping[str, Runner],
    asked: tuple[Problem, Workload, Any],
    seconds: float | None,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Compare all runners on one workload and, unless ``seconds`` is None, time them."""
    problem, workload, theirs = asked
    inputs = harness.inputs(theirs)
    wanted = harness.called(runners[EAGER], theirs, inputs)
    faults: dict[str, str] = {}
    for name, runner in runners.items():
        try:
            if runner.prepare is not None:
                runner.prepare(*inputs)
            fault = harness.fault(harness.called(runner, theirs, inputs), wanted, theirs)
        except Exception as error:
            traceback.print_exc()
            fault = f"{type(error).__name__}: {error}"[:300]
        if fault is not None:
            faults[name] = fault
    row: dict[str, Any] = {"workload": workload.label, "uuid": workload.uuid, "faults": faults}
    if seconds is None:
        return row
    del wanted
    timed = {name: one for name, one in runners.items() if name not in faults}
    timed |= yardsticks(problem, workload, harness.torch)

    def measure(name: str, done: int) -> float | None:
        warmup = _WARMUP if done else _FIRST_WARMUP
        try:
            return harness.time_us(timed[name], theirs, inputs, warmup)
        except Exception as error:
            traceback.print_exc()
            faults[name] = f"{type(error).__name__}: {error}"[:300]
            return None

    samples = raced(list(timed), measure, seconds, rng, staying=set(timed) - set(runners) | {OURS})
    row["samples_us"] = {n: [round(us, 3) for us in each] for n, each in samples.items()}
    return {**row, **_judged(problem, workload, harness, row["samples_us"], runners)}


def raced(
    names: Sequence[str],
    measure: Callable[[str, int], float | None],
    seconds: float,
    rng: np.random.Generator,
    *,
    staying: AbstractSet[str] = frozenset(),
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, list[float]]:
    """Return microseconds of each by round: round i stands at place i of all that took part in it.

    Args:
        names: Of what is timed.
        measure: Takes a name and the number of its rounds so far; None once it has failed, then it
            takes no further part.
        seconds: After which no further round begins; at least two are made.
        rng: For the order within a round.
        staying: Those that are timed to the end however slow they are.
        clock: Seconds.
    """
    begun, samples = clock(), {name: list[float]() for name in names}
    going, done = list(names), 0
    while going and done < _MOST_ROUNDS:
        spent = clock() - begun
        if done >= 2 and spent * (done + 1) / done > seconds:
            break
        for name in [str(each) for each in rng.permutation(going)]:
            found = measure(name, done)
            if found is None:
                going.remove(name)
            else:
                samples[name].append(found)
        done += 1
        if done == _FIRST_ROUNDS:
            best = min((median(samples[n]) for n in going if n not in staying), default=0.0)
            going = [n for n in going if n in staying or median(samples[n]) <= _BEHIND * best]
    return samples


def _judged(
    problem: Problem,
    workload: Workload,
    harness: Harness,
    samples: Mapping[str, Sequence[float]],
    runners: Mapping[str, Runner],
) -> dict[str, Any]:
    """Return the speed-up over the fastest baseline, and the score against it."""
    times = {name: median(each) for name, each in samples.items() if each}
    rivals = {name: us for name, us in times.items() if name in runners and name != OURS}
    if OURS not in times or not rivals:
        return {}
    best = min(rivals, key=lambda name: rivals[name])
    found: dict[str, Any] = {"baseline": best, "speedup": round(rivals[best] / times[OURS], 4)}
    paired = [theirs / own for theirs, own in zip(samples[best], samples[OURS], strict=False)]
    found["speedup_quartiles"] = [round(float(q), 4) for q in np.quantile(paired, (0.25, 0.75))]
    sheet = datasheet(harness.torch.cuda.get_device_name(0))
    moved = bytes_of(problem.operator, workload) or tensor_bytes(problem.operator, workload)
    flops = flops_of(problem.operator, workload)
    least = sheet and limit_us(sheet, flops=flops, bytes_moved=moved, dtype="bfloat16")
    if least:
        result = score(times[OURS], rivals[best], least)
        found |= {"limit_us": round(least, 3), "score": round(result.value, 4)}
        found["clamped"] = result.clamped
    return found


def main() -> None:
    """Time everything on every workload."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem", type=Path)
    parser.add_argument("--ours", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0, help="for all workloads together")
    parser.add_argument("--warm", action="store_true", help="run each variant once, time nothing")
    given = parser.parse_args()
    problem, harness = load_problem(str(given.problem)), Harness(given.problem)
    runners = {EAGER: Runner(harness.reference.run, False)}
    for kind, solution in variants(problem).items():
        runners[kind] = Runner(entry_of(solution), solution.destination_passing)
    runners |= {
        name: Runner(peer.run, False, prepare=peer.prepare)
        for name, peer in flashinfer_peers(problem.operator, harness.torch).items()
    }
    if given.ours is not None:
        runners[OURS] = ours(load_solution(given.ours))
    figures: dict[str, Any] = {
        "problem": problem.operator.name,
        "device": harness.torch.cuda.get_device_name(0),
        "torch": str(harness.torch.__version__),
        "note": "figures of this device; not comparable with the public board's",
        "workloads": [],
    }
    rng = np.random.default_rng(0)
    until, count = time.monotonic() + given.seconds, len(problem.workloads)
    pairs = zip(problem.workloads, harness.workloads, strict=True)
    for place, (workload, theirs) in enumerate(pairs):
        share = max(0.0, until - time.monotonic()) / (count - place)
        try:
            seconds = None if given.warm else share
            row = _row(harness, runners, (problem, workload, theirs), seconds, rng)
        except Exception as error:
            traceback.print_exc()
            row = {"workload": workload.label, "error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(row), flush=True)
        figures["workloads"].append(row)
        write(figures, given.output)
        gc.collect()
        harness.torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
