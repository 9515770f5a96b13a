"""A CUDA kernel's own text on this machine's processor: see ``cuda_host.hpp``.

``asm`` statements become calls; everything else is compiled as it stands.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import count, pairwise
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
    TensorMap,
)
from kernelarc.genomes.routes._cuda_route import Prepared

_SUPPORT = Path(__file__).with_name("cuda_host.hpp")
_FLAGS = ("-std=c++20", "-O1", "-w", "-Wno-psabi", "-fno-strict-aliasing")
_NOTHING = (
    "griddepcontrol", "fence.mbarrier", "setmaxnreg", "wgmma.fence", "cp.async.wait_all",
    "tcgen05.fence", "tcgen05.relinquish",
)  # fmt: skip
_FOUR = ", ".join(f"&%{i}" for i in range(4))
_CALLS = {
    r"fence\.proxy\.async": "host::fence_engines()",
    r"mbarrier\.init": "host::barrier_init(%0, %1)",
    r"mbarrier\.arrive\.shared::cta\.b64 _": "host::barrier_arrive(%0)",
    r"mbarrier\.arrive\.expect_tx\.shared::cta\.b64 _": "host::barrier_expect(%0, %1)",
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
    r"st\.shared\.u32": "host::store<uint32_t>(%0, %1)",
    r"ld\.shared\.u32": "%0 = host::load<uint32_t>(%1)",
    r"ld\.shared\.f32": "%0 = host::load<float>(%1)",
    r"ex2\.approx": "%0 = exp2f(%1)",
    r"mul\.rn\.bf16x2": "%0 = host::times_bfloat16(%1, %2)",
    r"\{\s*\.reg \.b8 a, b, c, d;.*e2m1x2":
        "{ uint32_t* host_to[] = {" + _FOUR + "}; for (int i = 0; i < 4; ++i)"
        " *host_to[i] = host::halves_of_codes(%4 >> 8 * i & 255); }",
    r"\{\s*\.reg \.b16 narrow;.*e4m3x2": "%0 = host::halves_of_scales(%1)",
    r"\{\s*\.reg \.b16 l, h;\s*mov\.b32 \{l, h\}, %2;":
        "{ %0 = host::half(%2); %1 = host::half(%2 >> 16); }",
    r"\{\s*\.reg \.b16 l, h;\s*mov\.b32 \{l, h\}, %1;": "%0 = host::half(%1)",
    r"stmatrix": "host::store_matrices(%0, {%1, %2, %3, %4})",
    r"ldmatrix\.sync\.aligned\.m8n8\.x4\.trans": "host::load_matrices(%4, true, {" + _FOUR + "})",
    r"ldmatrix\.sync\.aligned\.m8n8\.x4\.shared": "host::load_matrices(%4, false, {" + _FOUR + "})",
    r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16":
        "host::multiply_warp({" + _FOUR + "}, {%4, %5, %6, %7, %8, %9})",
    r"cp\.async\.bulk\.tensor\.3d\.global": "host::store_plane(%0, %1, %2, %3, %4)",
    r"cp\.async\.bulk\.shared::cluster\.global\.mbarrier": "host::fetch_row(%0, %1, %2, %3)",
    r"st\.async\.weak\.shared::cluster\.mbarrier::complete_tx::bytes\.b32":
        "host::send(%0, %1, %2)",
    r"createpolicy": "%0 = 0",
    r"ld\.global\.nc\.L1::no_allocate\.(L2::cache_hint\.)?v4\.u32":
        "{ uint4 host_four = host::read_global<uint4>(%4);"
        " %0 = host_four.x; %1 = host_four.y; %2 = host_four.z; %3 = host_four.w; }",
    r"ld\.global\.nc\.L1::no_allocate\.v2\.u32":
        "{ uint2 host_two = host::read_global<uint2>(%2); %0 = host_two.x; %1 = host_two.y; }",
    r"cp\.async\.bulk\.commit_group": "host::stores_commit()",
    r"cp\.async\.bulk\.wait_group\.read": "host::stores_have_read(%0)",
    r"tcgen05\.alloc": "host::columns_take(%0, %1)",
    r"tcgen05\.dealloc": "host::columns_give_back(%0, %1)",
    r"tcgen05\.ld\.sync\.aligned\.32x32b\.x32\.b32 .*tcgen05\.wait::ld":
        "{ float* host_to[] = {" + ", ".join(f"&%{i}" for i in range(32)) + "};"
        " host::load_columns(%32, host_to, 32); }",
    r"tcgen05\.cp\.cta_group::1\.32x128b\.warpx4": "host::copy_scales(%0, %1)",
    r"\{\s*\.reg \.pred adds;.*kind::mxf4nvf4\.block_scale\.scale_vec::4X":
        "host::multiply_codes(%0, %1, %2, %3, %4, %5, %6)",
    r"\{\s*\.reg \.pred adds;.*kind::f16": "host::multiply_elements(%0, %1, %2, %3, %4)",
    r"tcgen05\.commit": "host::products_arrive(%0)",
    r"cvt\.rn\.bf16x2\.f32": "%0 = host::pack_bfloat16(%1, %2)",
    r"wgmma\.commit_group": "host::products_commit()",
    r"wgmma\.wait_group": "host::products_wait(%0)",
}  # fmt: skip
_PRODUCT = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16\.f32\.bf16\.bf16 .*?\}(.*);")


def built(ready: Prepared, folder: Path) -> Path:
    """Compile a prepared genome for this machine.

    Args:
        ready: Source, launches and scratch; tensor maps of three axes.
        folder: Where to work.
    """
    raw = folder / "kernel.txt"
    raw.write_text(ready.text)
    asked = ["g++", "-x", "c++", "-E", "-P", str(raw)]
    plain = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    text = _with_shared(translated(plain))
    source, program = folder / "kernel.cpp", folder / "kernel"
    main = _main(ready, tuple(_clustered(launch, plain) for launch in ready.launches))
    support = Path(_precompiled().name) / _SUPPORT.name
    source.write_text(f'#include "{support}"\n{text}\n{main}')
    subprocess.run(["g++", *_FLAGS, str(source), "-o", str(program)], check=True)
    return program


def _with_shared(text: str) -> str:
    """Return a text whose arrays in shared memory are places in the running block's."""
    whole = r"extern __shared__ (?:alignas\(\d+\) |__align__\(\d+\) )?u8 (\w+)\[\];"
    text = re.sub(whole, r"u8* \1 = host::whole_shared();", text)
    places = count()
    return re.sub(
        r"__shared__ (?:__align__\(\d+\) )?(\w+) (\w+)\[([^\]]+)\];",
        lambda m: f"{m[1]}* {m[2]} = host::fixed_shared<{m[1]}>({next(places)}, {m[3]});",
        text,
    )


@cache
def _precompiled() -> tempfile.TemporaryDirectory[str]:
    """A folder with the support's header, compiled: half of a kernel's time, once a process."""
    folder = tempfile.TemporaryDirectory(prefix="cuda-host-")
    header = Path(shutil.copy(_SUPPORT, folder.name))
    made = f"{header}.gch"
    subprocess.run(["g++", *_FLAGS, "-x", "c++-header", str(header), "-o", made], check=True)
    return folder


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
            place = each.source if isinstance(each, TensorMap) else each
            if isinstance(place, TensorArgument | InputArgument):
                names.setdefault(place.name, f'host::read("{place.name}.bin")')
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
    if isinstance(argument, TensorMap):
        words = (*argument.extents, *argument.strides, *argument.box, argument.swizzle)
        fields = ", ".join((_value(argument.source), *map(str, words)))
        return f"(uint64_t)new uint64_t[16]{{{fields}}}"
    if isinstance(argument, ScalarArgument):
        if argument.kind == "f32":
            return f"host::bits((float){argument.value!r})"
        return f"(uint64_t)(uint32_t)({argument.value})"
    if isinstance(argument, InputArgument):
        return f"*(uint32_t*)buffer_{argument.name}.data()"
    raise AssertionError(f"no value for {argument!r}")
