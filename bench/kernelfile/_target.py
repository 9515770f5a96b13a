"""From a kernel file to what a campaign works on: a problem and the route that serves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelarc.bench._gene_json import gene_from_json
from kernelarc.bench.kernelfile._reading import KernelFile, read_kernel_file
from kernelarc.bench.kernelfile._records import Kernel
from kernelarc.genomes import (
    Allele,
    Axis,
    Constraint,
    ExpressionConstraint,
    InputError,
    Operator,
    Problem,
    TensorSpec,
    Tolerance,
    Workload,
    allele_from_json,
    nearest,
)
from kernelarc.genomes.triton import (
    TabledConstraint,
    TritonFileRoute,
    own_inputs,
    own_reference,
)

SUFFIX = ".py"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTarget:
    """A kernel file as a target.

    Attributes:
        problem: One workload for each table of axes.
        route: Serves it.
        printed: What the file printed on import.
    """

    problem: Problem
    route: TritonFileRoute
    printed: str = ""


def names_kernel_file(target: str) -> bool:
    """Tell whether a target is a kernel file: ``file.py``, or ``file.py:NAME``."""
    return _split(target)[0].suffix == SUFFIX


def _split(target: str) -> tuple[Path, str | None]:
    head, colon, name = target.rpartition(":")
    if colon and head.endswith(SUFFIX):
        return Path(head), name
    return Path(target), None


def kernel_target(target: str, workloads: Sequence[Mapping[str, int]] = ({},)) -> KernelTarget:
    """Read a kernel file and return its problem and route.

    Args:
        target: ``file.py``, or ``file.py:NAME`` for one of several kernels or declarations.
        workloads: Axes that the user sets, one table for each workload.

    Raises:
        InputError: As ``read_kernel_file``; the file declares nothing, or several kernels; an
            axis has no value.
        MissingPartError: Triton is not installed.
    """
    path, name = _split(target)
    file = read_kernel_file(path, workloads=workloads)
    said = chosen(file, name)
    operator = _operator(file, said)
    return KernelTarget(
        problem=Problem(
            operator=operator,
            workloads=tuple(_workload(file, said, operator, axes) for axes in workloads),
        ),
        route=file_route(file, said, operator),
        printed=file.printed,
    )


def chosen(file: KernelFile, name: str | None) -> Mapping[str, Any]:
    """Return the declaration that is meant."""
    if name is not None:
        for said in file.declarations.values():
            if name in {said["name"], said["kernel"]["name"], said["kernel"]["function"]}:
                return said
        known = [*file.declarations, *(kernel.name for kernel in file.kernels)]
        if name not in known:
            raise InputError(f"{file.path}: there is no kernel {name!r}{nearest(name, known)}")
        raise undeclared(file, file.kernel(name))
    if len(file.declarations) == 1:
        return next(iter(file.declarations.values()))
    if not file.declarations:
        raise undeclared(file, file.kernel())
    listed = ", ".join(file.declarations)
    first = next(iter(file.declarations))
    raise InputError(
        f"{file.path}: has {len(file.declarations)} declarations: {listed}; say which one, for "
        f"example {file.path}:{first}"
    )


def undeclared(file: KernelFile, kernel: Kernel) -> InputError:
    """Return the line for a kernel of which nobody says with which tensors it runs."""
    return InputError(
        f"{file.path}: kernel {kernel.name!r} (line {kernel.line}) needs a declaration of its "
        f"tensors and launch function: NAME = kernelarc.TritonKernel(launch=..., inputs=..., "
        f"outputs=...) at the top level"
    )


def _operator(file: KernelFile, said: Mapping[str, Any]) -> Operator:
    def specs(kind: str) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(name=n, dtype=d, shape=tuple(s)) for n, d, s in said[kind])

    return Operator(
        name=said["operator"],
        axes={name: Axis(name=name, kind="var") for name in said["axes"]},
        inputs=specs("inputs"),
        outputs=specs("outputs"),
        reference=_reference(file, said),
        flops=said["flops"],
        bytes_moved=said["bytes_moved"],
        custom_inputs="make" if said["values"] else "",
    )


def _reference(file: KernelFile, said: Mapping[str, Any]) -> str:
    """Return the reference's source: the file's own, else the kernel with its first seed."""
    path, name, source = str(file.path), said["name"], said["reference"]
    if source is None:
        if not said["seeds"]:
            raise InputError(
                f"{file.path}: {name} has neither a reference nor a seed whose results could "
                f"stand for it; give reference= or seeds="
            )
        first, kernel = _alleles(said["seeds"][0]), said["kernel"]["name"]
        source = own_reference(path, name, kernel, first, len(said["inputs"]))
    return str(source) + (own_inputs(path, name) if said["values"] else "")


def _workload(
    file: KernelFile, said: Mapping[str, Any], operator: Operator, given: Mapping[str, int]
) -> Workload:
    axes = {name: given.get(name, value) for name, value in said["axes"].items()}
    unbound = [name for name, value in axes.items() if value is None]
    if unbound:
        listed = " ".join(f"--set {name}=N" for name in unbound)
        raise InputError(f"{file.path}: axis {unbound[0]!r} has no value; give {listed}")
    for name, value in axes.items():
        if value < 1:
            raise InputError(
                f"{file.path}: axis {name!r} must be a whole number from 1 on, not {value}"
            )
    fills = {spec.name: {"type": "custom"} for spec in operator.inputs} if said["values"] else {}
    return Workload(
        operator=operator.fingerprint,
        axes=axes,
        inputs=fills,
        tolerance=Tolerance(**said["tolerance"]),
        options={"in_place": True} if said["in_place"] else {},
    )


def file_route(file: KernelFile, said: Mapping[str, Any], operator: Operator) -> TritonFileRoute:
    """Return the route of a declaration, for an operator with its tensors."""
    genes = tuple(gene_from_json(entry) for entry in said["genes"])
    names = tuple(gene.name for gene in genes)
    return TritonFileRoute(
        path=file.path,
        content=file.content,
        declaration=said["name"],
        kernel=said["kernel"]["name"],
        operator=operator,
        genes=genes,
        constraints=tuple(_constraint(entry, names) for entry in said["constraints"]),
        first=tuple(_alleles(seed) for seed in said["seeds"]),
        strategies=said["strategies"],
        pruned=tuple(
            (dict(entry["axes"]), TabledConstraint(names, _rows(entry), "early_config_prune"))
            for entry in said["pruned"]
            if entry["rows"] is not None
        ),
    )


def _constraint(entry: Mapping[str, Any], names: Sequence[str]) -> Constraint:
    if "rows" not in entry:
        return ExpressionConstraint(entry["text"], names)
    return TabledConstraint(entry["genes"], _rows(entry), entry["text"])


def _rows(entry: Mapping[str, Any]) -> list[tuple[Allele, ...]]:
    return [tuple(allele_from_json(value) for value in row) for row in entry["rows"]]


def _alleles(seed: Mapping[str, Any]) -> dict[str, Allele]:
    return {name: allele_from_json(value) for name, value in seed.items()}
