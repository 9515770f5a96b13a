"""A CUDA kernel's own text on this machine's processor: see ``cuda_host.hpp``.

``asm`` statements become calls; everything else is compiled as it stands.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelarc.genomes.kernels import (
    InputArgument,
    Launch,
    ScalarArgument,
    ScratchArgument,
    TensorArgument,
)
from kernelarc.genomes.routes._cuda_route import Prepared

_SUPPORT = Path(__file__).with_name("cuda_host.hpp")
_NOTHING = (
    "griddepcontrol", "fence.", "setmaxnreg", "wgmma.fence", "cp.async.wait_all",
)  # fmt: skip
_CALLS = {
    r"mbarrier\.init": "host::barrier_init(%0, %1)",
    r"mbarrier\.arrive\.shared::cta\.b64 _": "host::barrier_arrive(%0)",
    r"\{\s*\.reg \.pred done;.*try_wait\.parity": "host::barrier_wait(%0, %1)",
    r"bar\.sync %0, %1": "host::bar_sync(%0, %1)",
    r"bar\.arrive %0, (\d+)": r"host::bar_arrive(%0, \1)",
    r"cp\.async\.cg\.shared\.global": "host::fetch(%0, %1, %2)",
    r"cp\.async\.mbarrier\.arrive\.noinc": "host::arrive_after_fetches(%0)",
    r"barrier\.cluster\.arrive": "host::cluster_arrive()",
    r"barrier\.cluster\.wait": "host::cluster_wait()",
    r"mapa\.shared::cluster": "%0 = host::mapped(%1, %2)",
    r"ld\.shared::cluster\.f32": "%0 = host::load<float>(%1)",
    r"ld\.shared::cluster\.v2\.f32":
        "{ float2 host_pair = host::load<float2>(%2); %0 = host_pair.x; %1 = host_pair.y; }",
    r"mov\.u32 %0, %%cluster_ctarank": "%0 = host::block().rank",
    r"st\.shared\.f32": "host::store<float>(%0, %1)",
    r"st\.shared\.v2\.f32": "host::store(%0, make_float2(%1, %2))",
    r"st\.shared\.v4\.u32": "host::store(%0, make_uint4(%1, %2, %3, %4))",
    r"ex2\.approx": "%0 = exp2f(%1)",
    r"cvt\.rn\.bf16x2\.f32": "%0 = host::pack_bfloat16(%1, %2)",
    r"wgmma\.commit_group": "host::products_commit()",
    r"wgmma\.wait_group": "host::products_wait(%0)",
}  # fmt: skip
_PRODUCT = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16\.f32\.bf16\.bf16 .*?\}(.*);")


def built(ready: Prepared, folder: Path) -> Path:
    """Compile a prepared genome for this machine.

    Args:
        ready: Source, launches and scratch; no tensor maps.
        folder: Where to work.
    """
    raw = folder / "kernel.txt"
    raw.write_text(ready.text)
    asked = ["g++", "-x", "c++", "-E", "-P", str(raw)]
    plain = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    text = re.sub(
        r"extern __shared__ u8 (\w+)\[\];", r"u8* \1 = host::whole_shared();", translated(plain)
    )
    source, program = folder / "kernel.cpp", folder / "kernel"
    main = _main(ready, tuple(_clustered(launch, plain) for launch in ready.launches))
    source.write_text(f'#include "{_SUPPORT}"\n{text}\n{main}')
    flags = ["-std=c++20", "-O1", "-w", "-fno-strict-aliasing"]
    subprocess.run(["g++", *flags, str(source), "-o", str(program)], check=True)
    return program


def run(
    program: Path,
    tensors: Mapping[str, NDArray[Any]],
    outputs: Mapping[str, NDArray[Any]],
    seed: int,
) -> tuple[Mapping[str, NDArray[Any]], str]:
    """Return the outputs and what the run complained of (``""`` where nothing).

    Args:
        program: What ``built`` returned.
        tensors: Inputs by name.
        outputs: Arrays of the outputs' shapes and dtypes; their bytes start as NaNs.
        seed: Of the order in which threads run.
    """
    folder = program.parent
    for name, values in tensors.items():
        (folder / f"{name}.bin").write_bytes(np.ascontiguousarray(values).tobytes())
    for name, values in outputs.items():
        (folder / f"{name}.bin").write_bytes(b"\xff" * values.nbytes)
    done = subprocess.run(
        [str(program), str(seed)], cwd=folder, capture_output=True, text=True, check=False
    )
    found = {
        name: np.frombuffer((folder / f"{name}.bin").read_bytes(), values.dtype).reshape(
            values.shape
        )
        for name, values in outputs.items()
    }
    return found, done.stderr if done.returncode else ""


def translated(text: str) -> str:
    """Return preprocessed CUDA whose ``asm`` statements are calls."""
    pieces, at = [], 0
    for found in re.finditer(r"\basm\s*(?:volatile)?\s*\(", text):
        if found.start() < at:
            continue
        end = _closing(text, found.end())
        pieces += [text[at : found.start()], _call(text[found.end() : end])]
        at = end + 1
    return "".join((*pieces, text[at:]))


def _closing(text: str, at: int) -> int:
    return next(i for i, depth in _levels(text, at) if depth < 0)


def _levels(text: str, at: int = 0) -> Iterator[tuple[int, int]]:
    """Places outside of strings with the depth of brackets behind them."""
    depth, quoted = 0, False
    while at < len(text):
        letter = text[at]
        if quoted and letter == "\\":
            at += 2
            continue
        if letter == '"':
            quoted = not quoted
        elif not quoted:
            depth += (letter in "([{") - (letter in ")]}")
            yield at, depth
        at += 1


def _split(text: str, separator: str) -> list[str]:
    cuts = [i for i, depth in _levels(text) if depth == 0 and text[i] == separator]
    places = [-1, *cuts, len(text)]
    return [text[a + 1 : b].strip() for a, b in pairwise(places)]


def _call(body: str) -> str:
    words, *rest = _split(body, ":")
    strings = re.findall(r'"(?:[^"\\]|\\.)*"', words)
    text = "".join(ast.literal_eval(each) for each in strings).strip()
    operands = [
        re.sub(r'^"[^"]*"\s*', "", each)
        for part in rest[:2]
        for each in _split(part, ",")
        if each
    ]  # fmt: skip
    if not text or text.startswith(_NOTHING):
        return "host::fetches_finish()" if text.startswith("cp.async.wait") else "(void)0"

    def placed(call: str) -> str:
        return re.sub(r"%(\d+)", lambda m: operands[int(m[1])], call)

    product = _PRODUCT.match(text)
    if product is not None:
        return placed(_product(int(product[1]), product[2]))
    for pattern, call in _CALLS.items():
        matched = re.match(pattern, text, re.DOTALL)
        if matched is not None:
            return placed(matched.expand(call) if "\\" in call else call)
    return f"host::fail({_quoted('not known here: ' + text)})"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", " ").replace('"', " ").replace("\n", " ") + '"'


def _product(width: int, rest: str) -> str:
    numbers = re.findall(r"%?\d+", rest)
    if "{" in rest:  # left factor held: four registers, a description, then flags
        *held, right = numbers[:5]
        adds, _, _, across = numbers[5:]
        fixed = f"{width}, {adds} == 0, {across}, &%0, {', '.join(held)}, {right}"
        return f"host::product_held({fixed})"
    left, right, adds, _, _, *turned = numbers
    return f"host::product({width}, {adds} == 0, {turned[0]}, {turned[1]}, &%0, {left}, {right})"


def _clustered(launch: Launch, text: str) -> Launch:
    """Return a launch with the cluster that its kernel was written for."""
    shape = rf"__cluster_dims__\(([\d, ]+)\)[^;{{}}]*?\b{launch.symbol}\("
    found = re.search(shape, text)
    if found is None:
        return launch
    x, y, z = (int(each) for each in found[1].split(","))
    return replace(launch, cluster=(x, y, z))


def _main(ready: Prepared, launches: tuple[Launch, ...]) -> str:
    names: dict[str, str] = {}
    lines: list[str] = []
    for launch in launches:
        for each in launch.arguments:
            if isinstance(each, TensorArgument | InputArgument):
                names.setdefault(each.name, f'host::read("{each.name}.bin")')
    for scratch in ready.scratch:
        names[scratch.name] = f"std::vector<uint8_t>({scratch.nbytes}, 0xff)"
    lines += [f"auto buffer_{name} = {made};" for name, made in names.items()]
    for launch in launches:
        values = ", ".join(_value(each) for each in launch.arguments)
        grid, cluster = (", ".join(map(str, dims)) for dims in (launch.grid, launch.cluster))
        lines.append(
            f"host::launch({launch.symbol}, {{{grid}}}, {launch.block[0]}, {{{cluster}}},"
            f" {launch.shared_bytes}, {{{values}}}, std::atoi(arguments[1]));"
        )
    lines += [f'host::write("{name}.bin", buffer_{name});' for name in names]
    return "int main(int, char** arguments) {\n    " + "\n    ".join(lines) + "\n}\n"


def _value(argument: object) -> str:
    if isinstance(argument, TensorArgument | ScratchArgument):
        return f"(uint64_t)buffer_{argument.name}.data()"
    if isinstance(argument, ScalarArgument):
        return f"(uint64_t)(uint32_t)({argument.value})"
    if isinstance(argument, InputArgument):
        return f"*(uint32_t*)buffer_{argument.name}.data()"
    raise AssertionError(f"no value for {argument!r}")
