"""Which tensors a kernel writes, read from the compiler's own first form of it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable

from kernelarc.genomes.triton._call import TritonCall
from kernelarc.genomes.triton._compile import _constant, _signature

_VALUE = re.compile(r"%[A-Za-z0-9_$.-]+")
_FUNCTION = re.compile(r"tt\.func\s+(?:public |private )?@[^(]*\((.*)$", re.MULTILINE)
_ARGUMENT = re.compile(r"(%[A-Za-z0-9_$.-]+): ([!A-Za-z0-9_.]+)")
_INIT = re.compile(r"(%[A-Za-z0-9_$.-]+) = (%[A-Za-z0-9_$.-]+)")
_WRITES = ("tt.store", "tt.descriptor_store", "tt.descriptor_reduce", "tt.descriptor_scatter")
_ATOMIC = ("tt.atomic_rmw", "tt.atomic_cas")
_OPAQUE = ("tt.call", "tt.extern_elementwise", "tt.elementwise_inline_asm")
_VALUES = ("tt.load", "tt.descriptor_load", "tt.descriptor_gather", "tt.ptr_to_int", "tt.atomic")
_LEAVES = ("scf.yield", "scf.condition")
_POINTERS = ("!tt.ptr", "!tt.tensordesc", "tt.make_tensor_descriptor")


def written_parameters(call: TritonCall, arch: str) -> frozenset[str]:
    """Compile a call and return the parameters whose memory it may write.

    What goes through code that cannot be looked into (inline assembly, calls that were not
    inlined) counts as written.
    """
    import triton  # noqa: PLC0415
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415
    from triton.compiler import ASTSource  # noqa: PLC0415

    source = ASTSource(call.function, *_signature(call))
    target = GPUTarget("cuda", int(arch.removeprefix("sm_").removesuffix("a")), 32)
    options = {name: value for name, value in call.options.items() if value is not None}
    with tempfile.TemporaryDirectory(prefix="kernelarc-triton-") as folder:
        triton.knobs.cache.dir = folder
        text = str(triton.compile(source, target=target, options=options).asm["ttir"])
    names = [p.name for p in call.function.params if not _constant(call, p)[0]]
    return written_in(text, names)


def written_in(text: str, parameters: Iterable[str]) -> frozenset[str]:
    """Return the parameters that TTIR text writes through.

    Args:
        text: One module; its first function is the kernel.
        parameters: Of the kernel, in order.
    """
    head = _FUNCTION.search(text)
    if head is None:
        return frozenset(parameters)
    arguments = _ARGUMENT.findall(head.group(1))
    origins = {
        value: {name}
        for (value, kind), name in zip(arguments, parameters, strict=False)
        if kind.startswith(_POINTERS)
    }
    lines = [line.strip() for line in text[head.end() :].splitlines()]
    size = -1
    while size != sum(map(len, origins.values())):  # loops carry pointers round
        size = sum(map(len, origins.values()))
        _follow(lines, origins)
    return frozenset().union(*(_written(line, origins) for line in lines))


def _follow(lines: Iterable[str], origins: dict[str, set[str]]) -> None:
    """Let what each line defines come from where its pointers come from."""
    regions: list[list[str]] = []
    for line in lines:
        defined, right = _parts(line)
        if line.startswith("}") and regions:
            regions.pop()
        for value, first in _INIT.findall(right):
            origins.setdefault(value, set()).update(origins.get(first, ()))
        if any(kind in right for kind in _POINTERS) and not right.startswith(_VALUES):
            targets = regions[-1] if right.startswith(_LEAVES) and regions else defined
            found = set[str]().union(*(origins.get(value, ()) for value in _VALUE.findall(right)))
            for value in targets if found else ():
                origins.setdefault(value, set()).update(found)
        if line.endswith("{"):
            carried = [value for value, _ in _INIT.findall(right)]
            regions.append([*defined, *carried])


def _parts(line: str) -> tuple[list[str], str]:
    """Return what a line defines, and its operation."""
    left, equals, right = line.partition(" = ")
    if not equals or not left.startswith("%"):
        return [], line
    return _VALUE.findall(left), right


def _written(line: str, origins: dict[str, set[str]]) -> set[str]:
    _, operation = _parts(line)
    values = _VALUE.findall(operation)
    if operation.startswith(_OPAQUE):
        return set[str]().union(*(origins.get(value, ()) for value in values))
    if operation.startswith(_ATOMIC) or (operation.startswith(_WRITES) and values):
        return set(origins.get(values[0], ()))
    return set()
