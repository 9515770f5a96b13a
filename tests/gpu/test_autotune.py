"""kernelarc.autotune in real programs: shared searches, indices, in-place kernels, fallbacks."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kernelarc

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(part) is None for part in ("torch", "triton")),
    reason="PyTorch or Triton is not installed",
)

HEAD = """
import json, logging, sys, torch, triton, triton.language as tl, kernelarc
logging.basicConfig(level="WARNING")

def say(**values):
    print(json.dumps(values), flush=True)

def config(kernel):
    return {k: v for k, v in kernel.best_config.all_kwargs().items()}
"""
GATHER = """
FACTOR = tl.constexpr(2)

@triton.jit
def scaled(x):
    return x * FACTOR

@kernelarc.autotune(
    configs=[triton.Config({"BLOCK": 256}, num_warps=4)], key=["n"], budget=8, store="one.db",
    space={"BLOCK": [128, 256, 512], "num_warps": [2, 4], "num_stages": [3], "maxnreg": [0]},
)
@triton.heuristics({"EVEN": lambda call: call["n"] % call["BLOCK"] == 0})
@triton.jit
def gather_add(x, index, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    i = tl.load(index + at, mask=inside, other=0)
    tl.store(out + at, tl.load(out + at, mask=inside) + scaled(tl.load(x + i, mask=inside)),
             mask=inside)

n = 1 << 22
both = torch.randn(2 * n, device="cuda")
x, out = both[:n], both[n:]
before = out.clone()
index = torch.randperm(n, device="cuda", dtype=torch.int32)
gather_add[lambda call: (triton.cdiv(n, call["BLOCK"]),)](x, index, out, n)
right = torch.allclose(out, before + 2 * x[index.long()])
say(right=bool(right), config=config(gather_add), fallback=gather_add.fallback)
"""
FALLBACKS = """
calls = []

@kernelarc.autotune(configs=[triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 512})],
                    key=["n"], pre_hook=lambda *a, **k: calls.append(1), store="none.db")
@triton.jit
def hooked(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 1.0, mask=at < n)

@kernelarc.autotune(configs=[triton.Config({"BLOCK": 256})], key=["n"], store="none.db")
@triton.jit
def captured(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 3.0, mask=at < n)

x = torch.zeros(5000, device="cuda")
grid = lambda call: (triton.cdiv(5000, call["BLOCK"]),)
hooked[grid](x, 5000)
say(right=bool((x == 1).all()), fallback=hooked.fallback, hooks=len(calls) > 0)
captured.fn[(20,)](x, 5000, BLOCK=256)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    captured[grid](x, 5000)
x.zero_()
graph.replay()
torch.cuda.synchronize()
say(right=bool((x == 3).all()), keys=len(captured.cache))
"""
FULL = """
@kernelarc.autotune(configs=[triton.Config({"BLOCK": 1024}, num_warps=4)], key=["n"], budget=4,
                    store="full.db")
@triton.jit
def fill(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 2.0, mask=at < n)

free, _ = torch.cuda.mem_get_info()
x = torch.zeros((free - (256 << 20)) // 4, device="cuda")
fill[lambda call: (triton.cdiv(1 << 20, call["BLOCK"]),)](x, 1 << 20)
say(right=bool((x[: 1 << 20] == 2).all()) and float(x[1 << 20]) == 0.0, fallback=fill.fallback)
"""


def start(folder: Path, program: str, **environment: str) -> subprocess.Popen[str]:
    path = folder / "program.py"
    path.write_text(HEAD + program)
    return subprocess.Popen(
        [sys.executable, str(path)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def said(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors[-3000:]
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.timeout(300)
def test_two_programs_share_one_search_and_a_third_reads(tmp_path: Path) -> None:
    answers = [said(p)[0] for p in [start(tmp_path, GATHER), start(tmp_path, GATHER)]]
    answers += said(start(tmp_path, GATHER, KERNELARC_AUTOTUNE="read"))
    for answer in answers:
        assert answer["right"]
        assert answer["fallback"] is None, answer
    assert answers[0]["config"] == answers[1]["config"] == answers[2]["config"]
    with kernelarc.open_store(tmp_path / "one.db") as store:
        (campaign,) = store.campaigns()
        assert store.bests(campaign.id)[0].audited
        evaluations = [judged.evaluation for judged in store.evaluations(campaign.id)]
    assert sum(e.status is kernelarc.Status.OK for e in evaluations) >= 5, evaluations


@pytest.mark.timeout(300)
def test_what_cannot_be_searched_elsewhere_is_tuned_here_and_says_why(tmp_path: Path) -> None:
    hooked, captured = said(start(tmp_path, FALLBACKS))
    assert hooked == {"right": True, "fallback": "pre_hook is code of this program", "hooks": True}
    assert captured == {"right": True, "keys": 0}


@pytest.mark.timeout(300)
def test_a_program_that_fills_the_memory_goes_on(tmp_path: Path) -> None:
    (answer,) = said(start(tmp_path, FULL))
    assert answer["right"]
    assert answer["fallback"], "the search cannot have found memory"
