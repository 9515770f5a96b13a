"""The parts of ``triton_beside``: our search, others' tuners, and the judge of what they answer.

Each writes its figures into a file as it goes along: whoever is stopped has said what he knew.
"""

from __future__ import annotations

import ast
import csv
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from kernelarc.bench.experiments import _torch_launch
from kernelarc.bench.experiments._machine import write
from kernelarc.bench.experiments.triton_search import (
    ROUTE,
    WatchedDevice,
    campaign,
    random_search,
)
from kernelarc.engine import CampaignSettings, StopRequest, record, resolve_target
from kernelarc.genomes import Allele, Candidate, Genome, Problem, Space, bytes_of
from kernelarc.genomes.kernels import DeviceLimits, kernel_routes
from kernelarc.genomes.triton import Descriptor, TritonCall

ARCH = "sm_90a"
# One space for everybody: tensor descriptors, k in one piece. 8,706 legal genomes at 4096 cubed.
PINS: Mapping[str, Allele] = MappingProxyType(
    {
        "load": "descriptor",
        "store_descriptor": True,
        "num_ctas": 1,
        "split_k": 1,
        "sm_multiple": 1,
        "loop_stages": 0,
        "maxnreg": 0,
        "warp_specialize": False,
    }
)
# A smaller one with a register cap, measured whole: what the bandit is compared on.
_SWEPT: Mapping[str, Allele] = MappingProxyType(
    {
        **{name: allele for name, allele in PINS.items() if name not in {"maxnreg", "sm_multiple"}},
        "group": 8,
        "persistent": False,
        "epilogue_parts": 2,
    }
)
_CONTEST_ROUNDS, _MARKED = 24, "kernelarc beside"
_WHOLE = 4000  # more than such a space holds


def _axes(size: Sequence[int]) -> dict[str, int]:
    return dict(zip(("M", "N", "K"), size, strict=True))


def _pins(pins: Mapping[str, Allele]) -> dict[str, str]:
    return {name: str(allele).lower() if isinstance(allele, bool) else str(allele)
            for name, allele in pins.items()}  # fmt: skip


def _problem(size: Sequence[int]) -> Problem:
    settings = CampaignSettings(target="matmul", device="cuda:0", axes=_axes(size), routes=ROUTE)
    return resolve_target(settings).problem


# Ours


def ours(file: Path, *, size: Sequence[int], seconds: float, seed: int) -> None:
    """Search for so many seconds, audit against the library's first heuristic."""
    more = {"seed": seed, "pins": _pins(PINS)}
    write(campaign("matmul", _axes(size), {}, seconds, file=file, **more), file)


def random(file: Path, *, size: Sequence[int], seconds: float, seed: int) -> None:
    """Draw evenly from the same space, through the same pool and worker."""
    write(random_search("matmul", _axes(size), seconds, seed=seed, pins=PINS), file)


def sweep(file: Path, *, sizes: Sequence[Sequence[int]], seconds: float, folder: str) -> None:
    """Record a small space, whole where time allows, for one shape after another.

    When the seconds are over, what was measured until then is written. The shapes share their
    binaries: only the first one's are compiled.
    """
    stop, begun = StopRequest(), time.monotonic()
    settings = CampaignSettings(
        target="matmul",
        device="cuda:0",
        workloads=tuple(map(_axes, sizes)),
        routes=ROUTE,
        pins=_pins(_SWEPT),
    )
    clock = threading.Timer(seconds, stop.ask, ("the time is over",))
    clock.daemon = True
    clock.start()
    found = record(
        settings, Path(folder, "h200_triton.json.gz"), measure=_WHOLE, check=1, stop=stop
    )
    clock.cancel()
    for one, size in zip(found.recordings, sizes, strict=False):  # names without axes
        Path(one.path).rename(Path(folder, f"h200_triton_{'x'.join(map(str, size))}.json.gz"))
    write({**found.to_json(), "seconds": round(time.monotonic() - begun, 1)}, file)


def norm(file: Path, *, seconds: float) -> None:
    """Search add_rmsnorm, a row of 8192, and compare with the measured copy."""
    axes = {"rows": 8192, "hidden": 8192}
    found = campaign("add_rmsnorm_bf16", axes, {}, seconds, file=file)
    settings = CampaignSettings(target="add_rmsnorm_bf16", device="cuda:0", axes=axes, routes=ROUTE)
    problem = resolve_target(settings).problem
    moved = bytes_of(problem.operator, problem.workloads[0])
    copied, best = found["roofline"].get("copy_bytes_per_s"), found["best"]
    if moved and copied and best:
        rate = moved / (best["latency_us"] * 1e-6)
        found |= {"bytes": moved, "share_of_copy": round(rate / copied, 4)}
    write(found, file)


def judge(file: Path, *, size: Sequence[int], of: Mapping[str, Mapping[str, Any] | None]) -> None:
    """Measure what each tuner answered: alone, and interleaved with the library's choice."""
    problem = _problem(size)
    (workload,) = problem.workloads
    genomes = {name: Genome("triton", alleles) for name, alleles in of.items() if alleles}
    figures: dict[str, Any] = {"judged_us": {}, "over_baseline": {}}
    with WatchedDevice().open(problem, seed=7, artefacts=file.parent) as session:
        batch = [
            Candidate(
                number=i,
                round=0,
                workload=workload.fingerprint,
                island="user",
                mutation="seed",
                genome=genome,
            )
            for i, genome in enumerate(genomes.values())
        ]
        session.submit(batch, limit={})
        for evaluation in session.collect():
            name, measured = list(genomes)[evaluation.candidate.number], evaluation.measurement
            figures["judged_us"][name] = None if measured is None else measured.objective
            write(figures, file)
        contest = session.contest(
            workload, list(genomes.values()), rounds=_CONTEST_ROUNDS, baseline=True
        )
    times = np.array(contest.samples)
    for column, name in enumerate(genomes):
        ratio = times[:, -1] / times[:, column]
        figures["over_baseline"][name] = round(float(np.median(ratio)), 4)
    figures["contest_names"], figures["failures"] = contest.names, dict(contest.failures)
    write(figures, file)


# Others'


class _Torch:
    """The product on torch's tensors, of one size."""

    def __init__(self, size: Sequence[int]) -> None:
        import torch  # noqa: PLC0415

        self.problem = _problem(size)
        (self.workload,) = self.problem.workloads
        operator = self.problem.operator
        route = next(r for r in kernel_routes(operator) if r.name == "triton")
        limits = DeviceLimits.of_arch(ARCH)
        self.route, self.space = route.on(limits), route.space(self.workload, limits).pin(PINS)
        m, n, k = size
        left, right = (spec.name for spec in operator.inputs[:2])
        made = torch.Generator(device="cuda").manual_seed(1)
        kind = {"device": "cuda", "dtype": torch.bfloat16}
        self.a = torch.randn(m, k, generator=made, **kind)
        self.b = torch.randn(n, k, generator=made, **kind) * k**-0.5
        self.out, self.shape = operator.outputs[0].name, (m, n)
        self.names, self.torch, self._kind = (left, right), torch, kind

    def call(self, alleles: Mapping[str, Allele]) -> TritonCall:
        """Return the launch of a genome, legal or not."""
        genome = Genome("triton", alleles)
        calls: list[TritonCall] = self.route.calls(self.workload, genome, ARCH)  # type: ignore[attr-defined]
        return calls[0]  # k is in one piece

    def tensors(self, a: Any, b: Any) -> dict[str, Any]:
        """Return the tensors by the operator's names; the output is new."""
        out = self.torch.empty(self.shape, **self._kind)
        return {self.names[0]: a, self.names[1]: b, self.out: out}

    def runner(self, alleles: Mapping[str, Allele]) -> Callable[..., Any]:
        """Return a function of the factors that returns their product."""
        call = self.call(alleles)

        def run(a: Any, b: Any) -> Any:
            tensors = self.tensors(a, b)
            _torch_launch.launch(call, tensors)
            return tensors[self.out]

        return run


def whole_alleles(space: Space, chosen: Mapping[str, Allele]) -> dict[str, Allele]:
    """Return a genome's alleles: chosen and pinned ones, without those that are inactive."""
    alleles = {**PINS, **chosen}
    if not alleles["persistent"]:
        alleles = {n: v for n, v in alleles.items() if n not in {"flatten", "sm_multiple"}}
    return {name: alleles[name] for name in space.names if name in alleles}


def helion(file: Path, *, size: Sequence[int]) -> None:
    """Let Helion tune the same kernel, its tuner of a callable with all its defaults."""
    _complete_torch()
    from helion import autotuner  # noqa: PLC0415

    given, log = _Torch(size), file.with_name("helion")
    tunables = {
        name: _fragment(autotuner, given.space.gene(name).values()) for name in _free(given.space)
    }
    begun = time.monotonic()

    def figures() -> dict[str, Any]:
        return helion_figures(file, log.with_suffix(".csv"), given.space)

    _followed(figures, file)
    best = autotuner.autotune(
        tunables,
        lambda config: given.runner(whole_alleles(given.space, dict(config))),
        (given.a, given.b),
        baseline_fn=lambda a, b: a @ b.T,
        autotune_log=str(log),
    )
    seconds = round(time.monotonic() - begun, 2)
    found = figures()
    genome = whole_alleles(given.space, dict(best))
    write({**found, "seconds": seconds, "best": {"genome": genome}, "finished": True}, file)


def _free(space: Space) -> list[str]:
    """Return the genes that vary: an even sample of so many shows every allele."""
    rng = np.random.default_rng(0)
    seen = [space.sample(rng) for _ in range(256)]
    return [n for n in space.names if len({genome.get(n) for genome in seen} - {None}) > 1]


def _complete_torch() -> None:
    """Define what this Helion imports and this torch lacks: an error of another maker's GPUs."""
    from torch._inductor.runtime import triton_compat  # noqa: PLC0415

    if not hasattr(triton_compat, "IntelGPUError"):
        triton_compat.IntelGPUError = type("IntelGPUError", (Exception,), {})


def _fragment(autotuner: Any, domain: Sequence[Allele]) -> Any:
    first = domain[0]
    if type(first) is int and first and [first << i for i in range(len(domain))] == list(domain):
        return autotuner.PowerOfTwoFragment(domain[0], domain[-1])
    if set(domain) == {False, True} and all(type(value) is bool for value in domain):
        return autotuner.BooleanFragment()
    return autotuner.EnumFragment(tuple(domain))


def _followed(figures: Callable[[], dict[str, Any]], file: Path) -> None:
    """Write the figures every second from a thread: the tuner does not give control back."""

    def follow() -> None:
        while True:
            time.sleep(1.0)
            if (found := figures()) and "finished" not in found:
                write(found, file)

    threading.Thread(target=follow, name=_MARKED, daemon=True).start()


def helion_figures(file: Path, log: Path, space: Space) -> dict[str, Any]:
    """Read Helion's own log: when which configuration was measured, and how good it was."""
    if file.exists() and json.loads(file.read_text()).get("finished"):
        return {"finished": True}
    if not log.exists():
        return {}
    with log.open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["status"] != "started"]
    steps: list[tuple[float, float]] = []
    least, best = float("inf"), None
    statuses: dict[str, int] = {}
    for row in rows:
        statuses[row["status"]] = statuses.get(row["status"], 0) + 1
        if row["perf_ms"] and float(row["perf_ms"]) * 1e3 < least:
            least, best = float(row["perf_ms"]) * 1e3, row["config"]
            steps.append((float(row["timestamp_s"]), round(least, 2)))
    return {
        "best_so_far": steps,
        "answer_after_s": steps[-1][0] if steps else None,
        "configurations": len(rows),
        "statuses": statuses,
        "best": None if best is None else {"genome": whole_alleles(space, written_choice(best))},
        "best_us": least if steps else None,
    }


def written_choice(text: str) -> dict[str, Allele]:
    """Return the values of a configuration as Helion prints it: ``Config(a=1, b='x')``."""
    call = ast.parse(text, mode="eval").body
    if isinstance(call, ast.Call):
        return {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    return dict(ast.literal_eval(text))


def autotune(file: Path, *, size: Sequence[int], seconds: float, seed: int = 3) -> None:
    """Time ``triton.autotune`` on an even sample of the space, and extrapolate to all of it."""
    given, rng = _Torch(size), np.random.default_rng(seed)
    legal, spent_s, done, turns = given.space.size().legal, 0.0, 0, 4
    while spent_s < seconds:
        genomes = [dict(given.space.sample(rng).items()) for _ in range(turns)]
        begun = time.monotonic()
        tune(given, genomes)
        spent_s, done = spent_s + time.monotonic() - begun, done + turns
        each_s = spent_s / done
        figures = {
            "timed_configurations": done,
            "timed_s": round(spent_s, 2),
            "legal": legal,
            "extrapolated_s": round(each_s * legal, 1),
            "note": "the whole space is extrapolated from the timed part",
        }
        write(figures, file)


def tune(given: Any, genomes: Sequence[Mapping[str, Allele]]) -> None:
    """Have ``triton.autotune`` choose among genomes."""
    import triton  # noqa: PLC0415

    calls = [given.call(alleles) for alleles in genomes]
    first = calls[0]
    varied = [n for n in first.constants if len({str(c.constants[n]) for c in calls}) > 1]
    configs = [_choice(triton, call, varied) for call in calls]
    constants = {n: value for n, value in first.constants.items() if n not in varied}
    tensors = given.tensors(given.a, given.b)
    arguments = {n: _torch_launch.argument(v, tensors) for n, v in first.arguments.items()}
    m, n = given.shape

    def grid(meta: Mapping[str, int]) -> tuple[int]:
        tiles = -(-m // meta["BLOCK_M"]) * -(-n // meta["BLOCK_N"])
        return (meta["PROGRAMS"] or tiles,)

    tuned = triton.autotune(configs=configs, key=["M", "N", "K"])(first.function)
    tuned[grid](**arguments, **constants)


def _choice(triton: Any, call: TritonCall, varied: Sequence[str]) -> Any:
    blocks = {n: list(v.block) for n, v in call.arguments.items() if isinstance(v, Descriptor)}

    def set_blocks(named: Mapping[str, Any]) -> None:
        for name, block in blocks.items():
            named[name].block_shape = block

    constants = {name: call.constants[name] for name in varied}
    return triton.Config(constants, **_torch_launch.options(call), pre_hook=set_blocks)


PARTS: Mapping[str, Callable[..., None]] = MappingProxyType(
    {
        "ours": ours,
        "random": random,
        "sweep": sweep,
        "norm": norm,
        "judge": judge,
        "helion": helion,
        "autotune": autotune,
    }
)
