"""Which tensors a kernel writes, from TTIR text and from kernels that are compiled here."""

from __future__ import annotations

import importlib.util
import textwrap
from pathlib import Path
from typing import Any

import pytest

from kernelarc.genomes.triton import StandIn, call_of, imported, written_parameters
from kernelarc.genomes.triton._written import written_in

KERNELS = """
import triton
import triton.language as tl

@triton.jit
def inner(p, v):
    tl.store(p, v)

@triton.jit
def calls(x, y, z, n, B: tl.constexpr):
    at = tl.arange(0, B)
    inner(y + at, tl.load(x + at))

@triton.jit
def swaps(x, y, z, n, B: tl.constexpr):
    at = tl.arange(0, B)
    p, q = x + at, y + at
    for i in range(n):
        tl.store(p, tl.load(z + at))
        p, q = q + B, p + B

@triton.jit
def atomics(x, y, z, n, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.atomic_add(z + tl.load(x + at), tl.load(y + at), mask=at < n)

@triton.jit
def chooses(x, y, z, n, B: tl.constexpr):
    at = tl.arange(0, B)
    if n > 5:
        p = x + at
    else:
        p = y + at
    tl.store(p, tl.load(z + at))

@triton.jit
def described(x, y, z, n, B: tl.constexpr):
    out = tl.make_tensor_descriptor(y, [n, B], [B, 1], [16, B])
    source = tl.make_tensor_descriptor(x, [n, B], [B, 1], [16, B])
    out.store([0, 0], source.load([0, 0]))
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("calls", {"y"}),
        ("swaps", {"x", "y"}),
        ("atomics", {"z"}),
        ("chooses", {"x", "y"}),
        ("described", {"y"}),
    ],
)
def test_what_a_kernel_writes(tmp_path: Path, name: str, written: set[str]) -> None:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    kernel = vars(imported(path, "kernels_for_writing"))[name]
    index = "int32" if name == "atomics" else "float32"
    arguments: dict[str, Any] = {
        "x": StandIn("x", index, (4096,), (1,), []),
        "y": StandIn("y", "float32", (4096,), (1,), []),
        "z": StandIn("z", "float32", (4096,), (1,), []),
        "n": 20,
    }
    call = call_of(kernel, arguments, {"B": 64, "num_warps": 4}, (1,))
    assert written_parameters(call, "sm_90a") == written


def test_text_with_places_and_loops() -> None:
    text = textwrap.dedent(
        """\
        module {
          tt.func public @k(%a: !tt.ptr<f32> loc("a"(#loc)), %n: i32, %b: !tt.ptr<f32>) {
            %0 = tt.splat %a : !tt.ptr<f32> -> tensor<4x!tt.ptr<f32>> loc(#loc1)
            %1 = tt.splat %b : !tt.ptr<f32> -> tensor<4x!tt.ptr<f32>> loc(#loc1)
            %2 = scf.for %i = %c0 to %n step %c1 iter_args(%p = %0) -> (!tt.ptr<f32>) : i32 {
              %3 = tt.load %1 : tensor<4x!tt.ptr<f32>> loc(#loc1)
              tt.store %p, %3 : tensor<4x!tt.ptr<f32>> loc(#loc1)
              scf.yield %p : tensor<4x!tt.ptr<f32>> loc(#loc1)
            } loc(#loc1)
            tt.return
          }
        }
        """
    )
    assert written_in(text, ["a", "n", "b"]) == {"a"}
    assert written_in(text.replace("scf.yield %p", "scf.yield %1"), ["a", "n", "b"]) == {"a", "b"}
    assert written_in("no function", ["a", "b"]) == {"a", "b"}
