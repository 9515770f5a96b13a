"""What the packaged CUDA kernels reach on this GPU, beside what one would run without them.

Run it from a checkout on a machine with a GPU and torch: ``python -m
kernelarc.bench.experiments.cuda_kernels [--only product,norm] [--rounds N] [-o FILE]``. Every case
builds the seeds of its route, checks them, takes the fastest, and times it in turn with its
baselines: graphs of one call each, cold L2 before every replay, events around it, ratios paired
round by round.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from kernelarc.bench.cuda import Matmul, Side, load_lt
from kernelarc.bench.experiments._machine import output_option, write
from kernelarc.bench.kernels._library_steps import LibrarySteps
from kernelarc.bench.kernels._program import Addresses, Loader, Program
from kernelarc.genomes import (
    Genome,
    MatmulForm,
    MatmulJob,
    Operator,
    Problem,
    Workload,
    matmul_operator,
    matmul_problem,
    packaged_problem,
)
from kernelarc.genomes.kernels import Build, BuildError, DeviceLimits, KernelRoute, kernel_routes
from kernelarc.genomes.routes._nvrtc import nvrtc_version

Call = Callable[[], Any]
FLUSH_BYTES = 192 << 20  # three times the L2 cache
WORKSPACE_BYTES = 64 << 20
FIRST_ROUNDS = 6


@dataclass(kw_only=True)
class Case:
    """One workload with its tensors, its baselines and what counts as right.

    Attributes:
        name: For the report.
        operator: What is computed.
        workload: On which sizes.
        amount: FLOPs (``TFLOP/s``) or bytes (``TB/s``) of one call, and that unit.
        tensors: All inputs and outputs, by name.
        scalars: Python-scalar inputs.
        expected: Right outputs by name, float32.
        baselines: What else is timed.
    """

    name: str
    operator: Operator
    workload: Workload
    amount: tuple[float, str]
    tensors: dict[str, Any] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)
    baselines: dict[str, Call] = field(default_factory=dict)


class Machine:
    """Launches builds on torch's tensors and times calls with events."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415
        from cuda.bindings import driver  # noqa: PLC0415

        self.torch = torch
        self._stream = torch.cuda.Stream()
        torch.cuda.set_stream(self._stream)
        self._loader = Loader(driver)
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        self._lt = load_lt()
        self._handle = int(self._lt.create())
        self._library = LibrarySteps(self._lt, self._handle)
        self._workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")

    def call(self, build: Build, case: Case) -> Call:
        """Return what launches a build on the case's tensors."""

        class _Stream:
            ptr = self._stream.cuda_stream

        scratch = {
            part.name: self.torch.empty(part.nbytes, dtype=self.torch.uint8, device="cuda")
            for part in build.plan.scratch
        }
        addresses = Addresses(
            tensors={name: t.data_ptr() for name, t in case.tensors.items()},
            scratch={name: t.data_ptr() for name, t in scratch.items()},
            scalars=case.scalars,
            maps=_no_maps,
        )
        bound = Program(self._loader, build, _Stream, self._library).bound(addresses)
        return lambda _held=scratch: bound()  # type: ignore[misc]

    def first_heuristic(self, job: MatmulJob, names: Sequence[str], case: Case) -> Call:
        """Return cuBLASLt's own choice for a product: names of A, B, residual or output, output."""
        matmul = Matmul(self._lt, self._handle, job, Side())
        algorithm = matmul.algorithm(matmul.heuristics(WORKSPACE_BYTES)[0])
        assert algorithm is not None
        places = [case.tensors[name].data_ptr() for name in names]
        out = self.torch.empty_like(case.tensors[names[-1]])
        launch = matmul.launcher(algorithm, WORKSPACE_BYTES)
        a, b, c = places[:3]
        third = c if job.residual else out.data_ptr()
        scratch, stream = self._workspace.data_ptr(), self._stream.cuda_stream
        return lambda: launch(a, b, third, out.data_ptr(), scratch, stream)

    def right(self, case: Case, call: Call) -> bool:
        """Poison the outputs, run once, compare."""
        for name in case.expected:
            case.tensors[name].fill_(float("nan"))
        call()
        self.torch.cuda.synchronize()
        return all(
            self._error(case.tensors[name].float(), expected) < 1e-2
            for name, expected in case.expected.items()
        )

    def _error(self, found: Any, expected: Any) -> float:
        return float((found - expected).norm() / expected.norm())

    def _captured(self, call: Call) -> Call:
        """Return the replay of a graph of one call: the host's launches take no part."""
        call()
        self.torch.cuda.synchronize()
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=self._stream):
            call()
        graph.replay()
        replay: Call = graph.replay
        return replay

    def race(self, calls: Mapping[str, Call], rounds: int) -> dict[str, list[float]]:
        """Return microseconds of every call, by name and round."""
        replays = {name: self._captured(call) for name, call in calls.items()}
        marks = []
        for _ in range(rounds):
            for name, call in replays.items():
                self._flush.zero_()
                self._flush.zero_()
                begun, ended = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
                begun.record(self._stream)
                call()
                ended.record(self._stream)
                marks.append((name, begun, ended))
        self.torch.cuda.synchronize()
        found: dict[str, list[float]] = {name: [] for name in calls}
        for name, begun, ended in marks:
            found[name].append(1e3 * begun.elapsed_time(ended))
        return found


def _no_maps(_content: bytes) -> int:
    raise RuntimeError("no packaged kernel reads its tensor maps from memory")


# Cases


def product_case(machine: Machine, shape: tuple[int, int, int], *, residual: bool) -> Case:
    """A product of bfloat16, with cuBLASLt's first heuristic beside it."""
    torch = machine.torch
    m, n, k = shape
    operator = matmul_operator(MatmulForm(residual=residual))
    (workload,) = matmul_problem(operator, [{"M": m, "N": n, "K": k}]).workloads
    case = Case(
        name=f"product {m}x{n}x{k}" + (" + residual" if residual else ""),
        operator=operator,
        workload=workload,
        amount=(2.0 * m * n * k, "TFLOP/s"),
    )
    case.tensors = {
        "a": _normal(torch, m, k),
        "weight": _normal(torch, n, k) * k**-0.5,
        "out": _normal(torch, m, n),
    }
    names = ["a", "weight", "out"]
    wanted = torch.mm(case.tensors["a"], case.tensors["weight"].T).float()
    if residual:
        case.tensors["residual"] = _normal(torch, m, n)
        wanted += case.tensors["residual"].float()
        names.insert(2, "residual")
    case.expected = {"out": wanted}
    job = MatmulJob(
        m=m, n=n, k=k, dtype="bfloat16", out_dtype="bfloat16", residual=residual,
        workspace_bytes=WORKSPACE_BYTES,
    )  # fmt: skip
    case.baselines = {"cuBLASLt first heuristic": machine.first_heuristic(job, names, case)}
    return case


def _normal(torch: Any, *shape: int) -> Any:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def _reference(operator: Operator) -> dict[str, Any]:
    """Run the definition's own source; it comes with the package."""
    names: dict[str, Any] = {}
    exec(compile(operator.reference or "", operator.name, "exec"), names)
    return names


def packaged_case(name: str, axes: Mapping[str, int]) -> tuple[Case, dict[str, Any]]:
    """A packaged problem on some sizes, tensors still to be filled; and its reference's names."""
    problem: Problem = packaged_problem(name, [axes])
    (workload,) = problem.workloads
    label = " ".join(f"{axis}={size}" for axis, size in axes.items())
    case = Case(
        name=f"{name} {label}", operator=problem.operator, workload=workload, amount=(0.0, "")
    )
    return case, _reference(problem.operator)


def _compiled(machine: Machine, run: Callable[..., Any], arguments: Sequence[Any]) -> Call:
    """Return torch.compile's version, compiled for these shapes alone."""
    machine.torch._dynamo.reset()
    compiled = machine.torch.compile(run, dynamic=False)
    compiled(*arguments)
    return lambda: compiled(*arguments)


def norm_case(machine: Machine, shape: tuple[int, int]) -> Case:
    """Residual add and RMS norm, beside a copy of as many bytes and torch.compile."""
    torch = machine.torch
    rows, hidden = shape
    case, names = packaged_case("add_rmsnorm_bf16", {"rows": rows, "hidden": hidden})
    x, residual = _normal(torch, rows, hidden), _normal(torch, rows, hidden)
    weight = torch.ones(hidden, device="cuda", dtype=torch.bfloat16)
    case.tensors = {
        "hidden_states": x, "residual": residual, "weight": weight,
        "output": torch.empty_like(x),
    }  # fmt: skip
    case.scalars = {"eps": 1e-5}
    case.expected = {"output": names["run"](x, residual, weight, 1e-5).float()}
    nbytes = 3 * x.nbytes
    source, target = (
        torch.empty(nbytes // 2, device="cuda", dtype=torch.uint8).random_() for _ in range(2)
    )
    case.amount = (float(nbytes), "TB/s")
    case.baselines = {
        "device copy of equal bytes": lambda: target.copy_(source),
        "torch.compile": _compiled(machine, names["run"], (x, residual, weight, 1e-5)),
    }
    return case


def gated_case(machine: Machine, tokens: int) -> Case:
    """GEGLU's two products and its gate, beside two torch products and a compiled gate."""
    torch = machine.torch
    case, names = packaged_case("geglu", {"batch": 1, "seq": tokens})
    hidden, width = 3072, 24576
    x = _normal(torch, 1, tokens, hidden)
    gate, up = (_normal(torch, width, hidden) * hidden**-0.5 for _ in range(2))
    out = torch.empty(1, tokens, width, device="cuda", dtype=torch.bfloat16)
    case.tensors = {"x": x, "gate_proj": gate, "up_proj": up, "out": out}
    case.expected = {"out": names["run"](x, gate, up).float()}
    case.amount = (4.0 * tokens * hidden * width, "TFLOP/s")
    case.baselines = {"torch.compile": _compiled(machine, names["run"], (x, gate, up))}
    return case


def paged_case(machine: Machine, axes: Mapping[str, int]) -> Case:
    """Paged prefill, beside a gather and scaled_dot_product_attention of each sequence."""
    torch = machine.torch
    case, names = packaged_case("gqa_paged_prefill", axes)
    sizes = {n: a.value for n, a in case.operator.axes.items() if a.value is not None}
    inputs = names["make_inputs"]({**sizes, **axes}, "cuda")
    case.scalars = {"sm_scale": inputs.pop("sm_scale")}
    q = inputs["q"]
    lse = torch.empty(q.shape[:2], device="cuda", dtype=torch.float32)
    case.tensors = {**inputs, "output": torch.empty_like(q), "lse": lse}
    queries, pages = inputs["qo_indptr"].tolist(), inputs["kv_indptr"].tolist()
    lengths = list(zip(np.diff(queries), np.diff(pages), strict=True))
    pairs = sum(int(a) * int(b) - int(a) * (int(a) - 1) / 2 for a, b in lengths)
    case.amount = (4.0 * q.shape[1] * q.shape[2] * pairs, "TFLOP/s")
    gathered = _gathered(torch, inputs, queries, pages)
    case.expected = {"output": gathered().float()}
    case.baselines = {"gather + scaled_dot_product_attention": gathered}
    return case


def _gathered(
    torch: Any, inputs: Mapping[str, Any], queries: Sequence[int], pages: Sequence[int]
) -> Call:
    attend = torch.nn.functional.scaled_dot_product_attention
    index = inputs["kv_indices"].long()
    spans = list(zip(queries, queries[1:], pages, pages[1:], strict=False))
    masks = [
        None if b - a == d - c
        else torch.ones(b - a, d - c, dtype=torch.bool, device="cuda").tril(d - c - (b - a))
        for a, b, c, d in spans
    ]  # fmt: skip

    def run() -> Any:
        out = torch.empty_like(inputs["q"])
        for (a, b, c, d), mask in zip(spans, masks, strict=True):
            keys, values = (inputs[n][index[c:d], 0].transpose(0, 1)[None] for n in _CACHES)
            rows = inputs["q"][a:b].transpose(0, 1)[None]
            found = attend(
                rows, keys, values, attn_mask=mask, is_causal=mask is None, enable_gqa=True
            )
            out[a:b] = found[0].transpose(0, 1)
        return out

    return run


_CACHES = ("k_cache", "v_cache")


def quantised_case(machine: Machine, shape: tuple[int, int]) -> Case:
    """Attention over 4-bit floats, beside torch.compile, a write of the weights and bf16 SDPA."""
    torch = machine.torch
    batch, length = shape
    axes = {"batch_size": batch, "seq_len": length}
    case, names = packaged_case("nvfp4_gqa", axes)
    inputs = names["make_inputs"](
        {**axes, "query_heads": 40, "kv_heads": 8, "head_dim": 128}, "cuda"
    )
    arguments = [inputs[t.name] for t in case.operator.inputs]
    out, weights = names["run"](*arguments)
    case.tensors = {**inputs, "output": torch.empty_like(out), "weights": torch.empty_like(weights)}
    case.expected = {"output": out.float(), "weights": weights.float()}
    case.amount = (float(weights.nbytes + out.nbytes), "TB/s")
    q, k, v = (_normal(torch, batch, heads, length, 128) for heads in (40, 8, 8))
    attend = torch.nn.functional.scaled_dot_product_attention
    case.baselines = {
        "torch.compile": _compiled(machine, names["run"], arguments),
        "writing the weights": lambda: weights.fill_(1.0),
        "bf16 scaled_dot_product_attention": lambda: attend(q, k, v, enable_gqa=True),
    }
    return case


_NORMS = ((8192, 8192), (4096, 8192), (2048, 8192), (16254, 7168), (16254, 4096), (16254, 2048),
          (1024, 8192), (131, 8192), (64, 2048))  # fmt: skip
_PAGED = (
    {"total_q": 16384, "num_pages": 20000, "len_indptr": 2, "num_kv_indices": 16384},
    {"total_q": 8192, "num_pages": 16384, "len_indptr": 5, "num_kv_indices": 12000},
    {"total_q": 128, "num_pages": 1024, "len_indptr": 5, "num_kv_indices": 900},
    {"total_q": 16, "num_pages": 512, "len_indptr": 2, "num_kv_indices": 400},
)
_TOKENS = (256, 1024, 2048, 4096, 8192)
Maker = Callable[[Machine], Case]
KINDS: Mapping[str, tuple[Maker, ...]] = {
    "product": (
        partial(product_case, shape=(8192, 8192, 8192), residual=False),
        partial(product_case, shape=(4096, 4096, 4096), residual=False),
        *(partial(product_case, shape=(m, 2560, 2560), residual=True) for m in _TOKENS),
    ),
    "norm": tuple(partial(norm_case, shape=shape) for shape in _NORMS),
    "gated": tuple(partial(gated_case, tokens=tokens) for tokens in (4096, 512)),
    "paged": tuple(partial(paged_case, axes=axes) for axes in _PAGED),
    "quantised": tuple(
        partial(quantised_case, shape=shape) for shape in ((64, 256), (8, 128), (2, 2048))
    ),
}


# Measuring


def cuda_route(operator: Operator) -> KernelRoute:
    """Return the packaged CUDA route of an operator."""
    (route,) = (r for r in kernel_routes(operator) if r.name == "cuda")
    return route


def build_one(order: tuple[KernelRoute, Workload, Genome]) -> Build | str:
    """Build in a process of its own; a refusal comes back as text."""
    route, workload, genome = order
    try:
        return route.build(workload, genome, "sm_90a")
    except BuildError as error:
        return error.message


def measured(machine: Machine, case: Case, pool: Any, rounds: int) -> dict[str, Any]:
    """Return what is reported of one case."""
    route = cuda_route(case.operator)
    seeds = route.seeds(case.workload, DeviceLimits.of_arch("sm_90a"))
    orders = [(route, case.workload, seed.genome) for seed in seeds]
    built = pool.map(build_one, orders, chunksize=1)
    calls = {
        str(i): machine.call(build, case)
        for i, build in enumerate(built)
        if isinstance(build, Build)
    }
    wrong = [i for i, call in calls.items() if not machine.right(case, call)]
    first = machine.race({i: c for i, c in calls.items() if i not in wrong}, FIRST_ROUNDS)
    best = min(first, key=lambda i: statistics.median(first[i]))
    samples = machine.race({"ours": calls[best], **case.baselines}, rounds)
    genome = seeds[int(best)].genome
    return {
        "case": case.name,
        "genome": dict(genome.items()),
        "seeds": {"built": len(calls), "wrong": len(wrong)},
        **_figures(samples, case.amount),
    }


def _figures(samples: Mapping[str, list[float]], amount: tuple[float, str]) -> dict[str, Any]:
    medians = {name: statistics.median(times) for name, times in samples.items()}
    ratios = {
        name: np.quantile(np.array(times) / np.array(samples["ours"]), [0.25, 0.5, 0.75])
        for name, times in samples.items()
        if name != "ours"
    }
    return {
        "median_us": {name: round(value, 2) for name, value in medians.items()},
        "speedup_quartiles": {n: [round(float(v), 4) for v in q] for n, q in ratios.items()},
        "rate": {amount[1]: round(amount[0] / medians["ours"] / 1e6, 2)},
    }


def environment(torch: Any) -> dict[str, str]:
    """Return where and when this was measured."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "multiprocessors": str(properties.multi_processor_count),
        "torch": str(torch.__version__),
        "nvrtc": nvrtc_version(),
        "date": datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cold": f"{2 * FLUSH_BYTES >> 20} MiB written before each call",
    }


def main() -> None:
    """Measure the cases asked for and write one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(KINDS), help="kinds, separated by commas")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--processes", type=int, default=16)
    output_option(parser)
    given = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        machine = Machine()
        report: dict[str, Any] = {"environment": environment(machine.torch), "cases": []}
        for kind in given.only.split(","):
            for make in KINDS[kind]:
                row = measured(machine, make(machine), pool, given.rounds)
                report["cases"].append(row)
                print(json.dumps(row), flush=True)
                write(report, given.output)  # each case, so that none is lost with a later one
    if given.output is None:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
