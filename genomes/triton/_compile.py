"""Compiling a Triton call for an architecture: nothing here needs a GPU.

The signature, the attributes and the order of the machine code's parameters follow what Triton's
own launcher does for the same arguments.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from kernelarc.genomes._alleles import fingerprint_of
from kernelarc.genomes.kernels import (
    Argument,
    Build,
    BuildError,
    Clear,
    InputArgument,
    KernelReport,
    Launch,
    LaunchAttributes,
    LaunchPlan,
    ScalarArgument,
    Scratch,
    ScratchArgument,
    TensorMap,
    code_hash,
    report_of,
)
from kernelarc.genomes.triton._call import TRITON_TYPES, Descriptor, Pointer, TritonCall
from kernelarc.genomes.triton._kept import code_of, keep, kept

_ALIGNED = 16
_DIVISIBLE: tuple[tuple[str, int], ...] = (("tt.divisibility", _ALIGNED),)
_SWIZZLES = (0, 32, 64, 128)
_NOTED = {
    "wgmma": re.compile(r"\bwgmma\.mma_async"),
    "tma": re.compile(r"\bcp\.async\.bulk\.tensor"),
    "tcgen05": re.compile(r"\btcgen05\."),
    "mma": re.compile(r"\bmma\.sync"),
}
_OUT_OF_SHARED = re.compile(r"too much shared data|out of resource: shared", re.IGNORECASE)
_OUT_OF_REGISTERS = re.compile(r"insufficient registers", re.IGNORECASE)
_PTXAS = re.compile(r"\bptxas\b.*\b(error|fatal)\b|^ptxas (error|fatal)")
_INPUT_TYPES = {"i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64", "f32": "fp32", "f64": "fp64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A compiled call.

    Attributes:
        launch: How it is launched.
        binary: The cubin.
        report: What it needs.
        scratch: Memory that the compiler asks for beside the call's own.
        ptx: The assembly that the binary was made of.
    """

    launch: Launch
    binary: bytes
    report: KernelReport
    scratch: tuple[Scratch, ...]
    ptx: str


def triton_missing() -> str | None:
    """Say what to install before anything can be compiled, or None. Imports nothing."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed: install kernelarc[triton]"
    return None


def triton_identity() -> dict[str, str]:
    """Return what a Triton build depends on beside its sources."""
    try:
        return {"triton": metadata.version("triton")}
    except metadata.PackageNotFoundError:
        return {"triton": "none"}


def compile_call(call: TritonCall, arch: str, *, number: int = 0) -> Compiled:
    """Compile one call.

    Args:
        call: What is called, and how.
        arch: ``"sm_90a"`` or ``"sm_100a"``.
        number: Of the call in its plan, to name the compiler's scratch memory apart.

    Raises:
        BuildError: It does not compile; the message is the compiler's last line.
    """
    import triton  # noqa: PLC0415
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415
    from triton.compiler import ASTSource  # noqa: PLC0415

    signature, constants, attributes = _signature(call)
    source = ASTSource(call.function, signature, constants, attributes)
    target = GPUTarget("cuda", int(arch.removeprefix("sm_").removesuffix("a")), 32)
    options = {name: value for name, value in call.options.items() if value is not None}
    key = fingerprint_of(f"{source.hash()} {sorted(options.items())} {arch} {triton.__version__}")
    code = kept(key)
    if code is None:
        triton.knobs.compilation.disable_line_info = True
        with tempfile.TemporaryDirectory(prefix="kernelarc-triton-") as folder:
            triton.knobs.cache.dir = folder
            try:
                code = code_of(triton.compile(source, target=target, options=options))
            except Exception as error:
                raise _fault(error) from None
        keep(key, code)
    return _compiled(call, code.made, code.cubin, code.ptx, number)


def build_of(
    calls: Sequence[TritonCall], arch: str, aliases: Mapping[str, str] | None = None
) -> Build:
    """Compile the calls of one genome, in order, into a build.

    Args:
        calls: At least one.
        arch: As ``compile_call``.
        aliases: As ``LaunchPlan.aliases``.

    Raises:
        BuildError: One of them does not compile.
    """
    made = [compile_call(call, arch, number=i) for i, call in enumerate(calls)]
    steps: list[Launch | Clear] = []
    for call, one in zip(calls, made, strict=True):
        steps += [*call.clears, one.launch]
    own = [scratch for call in calls for scratch in call.scratch]
    scratch = {buffer.name: buffer for buffer in [*own, *(s for one in made for s in one.scratch)]}
    plan = LaunchPlan(
        steps=tuple(steps), scratch=tuple(scratch.values()), aliases=dict(aliases or {})
    )
    return Build(
        plan=plan,
        binaries={one.launch.binary: one.binary for one in made},
        kernels=tuple(one.report for one in made),
        arch=arch,
        source="\n".join(one.ptx for one in made),
    )


def _fault(error: Exception) -> BuildError:
    """Turn what a compiler raised into one line: it says most in its last."""
    text = str(error) or type(error).__name__
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if _OUT_OF_SHARED.search(text):
        found = next(line for line in lines if _OUT_OF_SHARED.search(line))
        return BuildError(found, failure="out of shared memory")
    said_by_ptxas = [line for line in lines if _PTXAS.search(line)]
    if said_by_ptxas:
        few = _OUT_OF_REGISTERS.search(said_by_ptxas[0]) is not None
        return BuildError(said_by_ptxas[0], *(("too many registers",) if few else ()))
    cause = error.__cause__
    said = str(cause).strip().splitlines()[-1:] if cause is not None else lines[-1:]
    return BuildError(f"{type(error).__name__}: {(said or ['?'])[0]}")


# The signature


def _signature(
    call: TritonCall,
) -> tuple[dict[str, str], dict[tuple[int, ...], Any], dict[tuple[int, ...], Any]]:
    """Return types by parameter, constants and attributes by position, as Triton wants them."""
    signature: dict[str, str] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], Any] = {}
    for place, parameter in enumerate(call.function.params):
        name = parameter.name
        constant, value = _constant(call, parameter)
        if constant:
            signature[name] = "constexpr"
            constants[place,] = value
            continue
        signature[name] = _type_of(call.arguments[name])
        if _divisible(call.arguments[name], parameter):
            attributes[place,] = [list(pair) for pair in _DIVISIBLE]
    unknown = sorted({*call.arguments, *call.constants} - set(signature))
    if unknown:
        raise BuildError(f"kernel {call.function.__name__!r} has no parameter {unknown[0]!r}")
    return signature, constants, attributes


def _constant(call: TritonCall, parameter: Any) -> tuple[bool, Any]:
    """Tell whether a parameter is a constant of this call, and its value."""
    name = parameter.name
    if name in call.constants:
        return True, call.constants[name]
    if name not in call.arguments:
        if parameter.default is not inspect.Parameter.empty:
            return True, parameter.default
        raise BuildError(f"kernel {call.function.__name__!r}: parameter {name!r} has no value")
    value = call.arguments[name]
    if value is None or parameter.is_constexpr:
        return True, value
    one = type(value) is int and value == 1 and not parameter.do_not_specialize
    return one, value


def _type_of(value: Any) -> str:
    if isinstance(value, Pointer):
        return f"*{_named(value.dtype)}"
    if isinstance(value, Descriptor):
        block = ",".join(map(str, value.block))
        return f"tensordesc<{_named(value.dtype)}[{block}]>"
    if isinstance(value, InputArgument):
        return _INPUT_TYPES[value.kind]
    if isinstance(value, bool):
        return "u1"
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64"


def _named(dtype: str) -> str:
    if dtype not in TRITON_TYPES:
        raise BuildError(f"Triton has no type for {dtype!r}")
    return TRITON_TYPES[dtype]


def _divisible(value: Any, parameter: Any) -> bool:
    if parameter.do_not_specialize or parameter.do_not_specialize_on_alignment:
        return False
    if isinstance(value, Pointer):
        return value.target.offset_bytes % _ALIGNED == 0
    return type(value) is int and value % _ALIGNED == 0


# The launch


def _compiled(call: TritonCall, made: Any, cubin: bytes, ptx: str, number: int) -> Compiled:
    programs = call.grid[0] * call.grid[1] * call.grid[2]
    scratch, tail = _compiler_scratch(made, programs * made.num_ctas, number)
    binary, threads = code_hash(cubin), 32 * made.num_warps
    launch = Launch(
        binary=binary,
        symbol=made.name,
        grid=(call.grid[0] * made.num_ctas, call.grid[1], call.grid[2]),
        block=(threads, 1, 1),
        cluster=(made.num_ctas, 1, 1),
        shared_bytes=made.shared,
        arguments=(*_arguments(call, made.tensordesc_meta or []), *tail),
        attributes=LaunchAttributes(
            overlap=bool(made.launch_pdl),
            cooperative=bool(made.launch_cooperative_grid),
            wide_cluster=made.num_ctas > 8,
        ),
    )
    found = {name: len(pattern.findall(ptx)) for name, pattern in _NOTED.items()}
    report = report_of(
        cubin,
        made.name,
        threads=threads,
        shared_bytes=made.shared,
        instructions={name: count for name, count in found.items() if count},
    )
    return Compiled(launch=launch, binary=cubin, report=report, scratch=scratch, ptx=ptx)


def _compiler_scratch(
    made: Any, blocks: int, number: int
) -> tuple[tuple[Scratch, ...], tuple[Argument, ...]]:
    """Return the two buffers that every Triton kernel takes last, where they are not empty."""
    buffers: list[Scratch] = []
    tail: list[Argument] = []
    for what in ("global", "profile"):
        size = getattr(made, f"{what}_scratch_size", 0) or 0
        if size:
            name = f"{what} scratch {number}"
            buffers.append(Scratch(name=name, nbytes=size * blocks))
            tail.append(ScratchArgument(name))
        else:
            tail.append(ScalarArgument(0, "u64"))
    return tuple(buffers), tuple(tail)


def _arguments(call: TritonCall, descriptors: Sequence[Mapping[str, Any]]) -> list[Argument]:
    waiting = iter(descriptors)
    found: list[Argument] = []
    for parameter in call.function.params:
        constant, _ = _constant(call, parameter)
        if constant:
            continue
        value = call.arguments[parameter.name]
        if isinstance(value, Descriptor):
            found += _described(value, next(waiting, None))
        else:
            found.append(_plain_argument(value))
    return found


def _plain_argument(value: Any) -> Argument:
    if isinstance(value, Pointer):
        return value.target
    if isinstance(value, InputArgument):
        return value
    if isinstance(value, bool):
        return ScalarArgument(int(value), "i8")
    if isinstance(value, float):
        return ScalarArgument(value, "f32")
    return ScalarArgument(value, "i32" if -(2**31) <= value < 2**31 else "i64")


def _described(value: Descriptor, made: Mapping[str, Any] | None) -> list[Argument]:
    """Return what a host descriptor becomes: the map, or pointer and shape; then shape, strides."""
    shape, strides = value.shape, value.strides
    tail = [ScalarArgument(extent, "i32") for extent in shape]
    tail += [ScalarArgument(stride, "i64") for stride in strides]
    if made is None:
        head: list[Argument] = [value.target]
        head += [ScalarArgument(number, "i64") for number in (*shape, *strides)]
        return [*head, ScalarArgument(int(value.nan_fill), "i8"), *tail]
    size = int(made["elem_size"])
    tensor_map = TensorMap(
        source=value.target,
        dtype=value.dtype,
        extents=tuple(reversed(shape)),
        strides=tuple(size * stride for stride in reversed(strides[:-1])),
        box=tuple(int(extent) for extent in reversed(made["block_size"])),
        swizzle=_SWIZZLES[int(made["swizzle"])],
        l2_promotion=128,
        nan_fill=value.nan_fill,
    )
    return [tensor_map, *tail]
