"""A solution for the packaged CUDA routes: their sources, and a table of launches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from kernelarc.genomes import Allele, Genome, InputError, Operator, Solution, Workload
from kernelarc.genomes.kernels import (
    SCALAR_TYPES,
    Argument,
    InputArgument,
    Launch,
    LibraryProduct,
    ScalarArgument,
    ScratchArgument,
    Step,
    TensorMap,
    Zeroing,
    kernel_routes,
)
from kernelarc.genomes.routes._cuda_route import CudaRoute, Prepared
from kernelarc.genomes.routes._cuda_source import configured
from kernelarc.storage.exports._sol_library import packaged_source
from kernelarc.storage.exports._sol_rows import ARCH, audited_rows, not_packaged
from kernelarc.storage.exports._sol_triton import entry, key_of, key_values
from kernelarc.storage.exports._sol_words import about, solution_name
from kernelarc.storage.exports._subject import Subject

Algorithms: TypeAlias = tuple[tuple[int, ...], ...]
"""Attributes of what the library ran, product after product of a plan."""

FILE, KERNELS, REFERENCE = "solution.py", "kernels.py", "reference.py"
LIBRARY = "library_products.py"
_FILLED = re.compile(r"# -- names and table: .*?# -- end --\n", re.DOTALL)
# The driver's numbers.
_KINDS = {"uint8": 0, "uint16": 1, "uint32": 2, "int32": 3, "float16": 6, "float32": 7,
          "bfloat16": 9}  # fmt: skip
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_INTERLEAVES = {0: 0, 16: 1, 32: 2}
_PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}


def cuda_solution(subject: Subject) -> Solution:
    """Return the solution of a campaign whose bests are genomes of a packaged CUDA route.

    Raises:
        InputError: The kernels are the user's own, or a genome overwrites an input.
    """
    route = packaged_cuda_route(subject)
    return Solution(
        name=solution_name(subject, "cuda"),
        definition=subject.operator.name,
        author="kernelarc",
        languages=("pytorch",),
        entry_point=f"{FILE}::run",
        sources=cuda_sources(route, audited_rows(subject, route), algorithms(subject)),
        dependencies=("torch",),
        description=about(subject),
    )


def algorithms(subject: Subject) -> dict[str, Algorithms]:
    """Return the attributes of what the library ran in each best, by the workload's fingerprint."""
    found: dict[str, Algorithms] = {}
    for best in subject.bests:
        rows = best.evaluation.properties.get("library")
        if isinstance(rows, tuple):
            found[best.workload] = tuple(_attributes(row) for row in rows)
    return found


def _attributes(row: Allele) -> tuple[int, ...]:
    return tuple(int(str(value)) for value in row) if isinstance(row, tuple) else ()


def packaged_cuda_route(subject: Subject) -> CudaRoute:
    """Return the packaged route of a campaign's operator.

    Raises:
        InputError: There is none: the kernels are the user's own.
    """
    for route in kernel_routes(subject.operator):
        if isinstance(route, CudaRoute):
            return route.on(subject.device(ARCH))
    raise not_packaged(subject, "cuda")


def cuda_sources(
    route: CudaRoute,
    rows: list[tuple[Workload, Genome]],
    algorithms: Mapping[str, Algorithms] | None = None,
) -> dict[str, str]:
    """Return the sources of a solution: entry with its table, kernels, reference.

    What calls the library is there where a genome leaves products to it.

    Args:
        route: Whose kernels.
        rows: Workloads with the genome that each runs.
        algorithms: By workload, what the library ran where that was recorded; else the solution
            asks the library again.

    Raises:
        InputError: A genome overwrites an input, or no input shows an axis.
    """
    operator, texts, table, library = route.operator, dict[str, str](), [], False
    key = key_of(operator)
    for workload, genome in rows:
        ready = _ready(route, workload, genome)
        name = next((n for n, text in texts.items() if text == ready.source), f"text{len(texts)}")
        texts[name] = ready.source
        known = (algorithms or {}).get(workload.fingerprint, ())
        row = _row(name, ready, known)
        table.append(f"    {key_values(operator, workload, key)!r}: {row},\n")
        library = library or any(isinstance(step, LibraryProduct) for step in ready.steps)
    filled = _names(operator, key) + "".join(["TABLE: dict[tuple[int, ...], dict[str, Any]] = {\n",
                                              *table, "}\n"])  # fmt: skip
    source = _FILLED.sub(lambda _: filled, packaged_source("cuda_solution.py"))
    source += entry(operator)
    kernels = "".join(f"    {name!r}: r'''\n{text}''',\n" for name, text in texts.items())
    sources = {
        FILE: source,
        KERNELS: f'"""Sources of the kernels; macros come first."""\n\nTEXTS = {{\n{kernels}}}\n',
        REFERENCE: str(operator.reference),
    }
    if library:
        sources[LIBRARY] = packaged_source(LIBRARY)
    for name, text in sources.items():
        compile(text, name, "exec")
    return sources


def _ready(route: CudaRoute, workload: Workload, genome: Genome) -> Prepared:
    ready = route.prepared(workload, genome, ARCH)
    if ready.aliases:
        raise InputError(
            f"workload {workload.label!r}: its genome overwrites an input; run without in_place"
        )
    return ready


def _names(operator: Operator, key: Mapping[str, tuple[str, int]]) -> str:
    return (
        f"ARCH = {ARCH!r}\n"
        f"INPUTS: tuple[str, ...] = {tuple(spec.name for spec in operator.inputs)!r}\n"
        f"OUTPUTS: tuple[str, ...] = {tuple(spec.name for spec in operator.outputs)!r}\n"
        f"KEY: tuple[tuple[str, int], ...] = {tuple(key.values())!r}  # {', '.join(key)}\n"
    )


def _row(text: str, ready: Prepared, known: Algorithms) -> str:
    """Return a row of the table as a Python expression."""
    found = iter(known)
    scratch = {
        _scratch_name(each.name): (each.nbytes, each.zeroing is not Zeroing.NEVER)
        for each in ready.scratch
    }
    steps = "".join(
        f"            {_step(step, found, first=place == 0)!r},\n"
        for place, step in enumerate(ready.steps)
    )
    return (
        f'{{\n        "text": {text!r},\n        "macros": {configured("", ready.macros)!r},\n'
        f'        "scratch": {scratch!r},\n        "steps": [\n{steps}        ],\n    }}'
    )


def _scratch_name(name: str) -> str:
    return f"scratch {name}"  # no tensor is called so


def _step(launch: Step, known: Iterator[tuple[int, ...]], *, first: bool) -> dict[str, Any]:
    """Return a launch as data; the first one waits for whatever else is on the stream."""
    if isinstance(launch, LibraryProduct):
        return _product(launch, next(known, None))
    assert isinstance(launch, Launch)  # no packaged route clears anything
    return {
        "symbol": launch.symbol,
        "grid": launch.grid,
        "block": launch.block,
        "shared": launch.shared_bytes,
        "carveout": launch.attributes.carveout,
        "overlap": launch.attributes.overlap and not first,
        "arguments": [_argument(argument) for argument in launch.arguments],
    }


def _product(step: LibraryProduct, algorithm: tuple[int, ...] | None) -> dict[str, Any]:
    """Return a product of the library as data: its form, then what it reads and writes."""
    places = [step.left, step.right, step.added or step.out, step.out]
    return {
        "product": (
            step.rows, step.columns, step.depth, step.dtype, step.left_across, step.right_across,
            step.added is not None, algorithm, step.heuristic, step.workspace_bytes,
        ),
        "arguments": [
            ("pointer", *_place(place))
            for place in (*places, *([step.workspace] if step.workspace else []))
        ],
    }  # fmt: skip


def _argument(argument: Argument) -> tuple[Any, ...]:
    if isinstance(argument, ScalarArgument):
        return ("number", SCALAR_TYPES[argument.kind], argument.value)
    if isinstance(argument, InputArgument):
        return ("input", SCALAR_TYPES[argument.kind], argument.name)
    if isinstance(argument, TensorMap):
        return ("map", *_place(argument.source), *_form(argument))
    return ("pointer", *_place(argument))


def _place(source: Any) -> tuple[str, int]:
    scratch = isinstance(source, ScratchArgument)
    return (_scratch_name(source.name) if scratch else source.name, source.offset_bytes)


def _form(wanted: TensorMap) -> tuple[Any, ...]:
    return (
        _KINDS[wanted.dtype],
        wanted.extents,
        wanted.strides,
        wanted.box,
        wanted.element_strides or (1,) * len(wanted.extents),
        _SWIZZLES[wanted.swizzle],
        _INTERLEAVES[wanted.interleave],
        _PROMOTIONS[wanted.l2_promotion],
        int(wanted.nan_fill),
    )
