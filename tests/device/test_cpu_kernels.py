"""The packaged kernels: right for every legal genome at ragged shapes, and no gene is idle."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kernelarc.bench import Variant, compare, depth_of, make_inputs, run_reference
from kernelarc.bench.cpu._build import Built, build_job
from kernelarc.bench.cpu._compiler import find_compiler
from kernelarc.bench.cpu._host import host_shape
from kernelarc.bench.cpu._pool import CompilePool
from kernelarc.genomes import (
    Gene,
    Genome,
    Problem,
    Space,
    Workload,
    axis_values,
    builtin_problem,
)
from kernelarc.genomes.routes import HostShape, Route, cpu_routes

SHAPES = {
    "gemm": ({"M": 1, "N": 1, "K": 1}, {"M": 53, "N": 101, "K": 37}, {"M": 19, "N": 7, "K": 1031},
             {"M": 401, "N": 3, "K": 5}, {"M": 5, "N": 3079, "K": 3}),
    "add_rmsnorm": ({"rows": 1, "hidden": 1}, {"rows": 67, "hidden": 53},
                    {"rows": 3, "hidden": 17_001}, {"rows": 131, "hidden": 64}),
}  # fmt: skip
GENOMES = {"gemm": 10, "add_rmsnorm": 6}


def host() -> HostShape:
    found = host_shape()
    return HostShape(
        threads=max(found.threads, 3),  # threads may outnumber cores where only results matter
        vector_floats=found.vector_floats,
        vector_registers=found.vector_registers,
        l2_bytes=found.l2_bytes,
        streaming_stores=found.streaming_stores,
    )


def space_of(problem: Problem) -> tuple[Route, Space]:
    route = cpu_routes(problem.operator)["cpu"]
    return route, route.space_for(problem.workloads[0], host())


def built(route: Route, genomes: Sequence[Genome], folder: Path) -> list[Built]:
    compiler = find_compiler()
    pool = CompilePool(compiler, folder, workers=2)
    try:
        jobs = [build_job(route, genome, compiler) for genome in genomes]
        outcomes = pool.build(jobs)
    finally:
        pool.close()
    found = [outcomes[job.key] for job in jobs]
    assert all(isinstance(outcome, Built) for outcome in found), found
    return [outcome for outcome in found if isinstance(outcome, Built)]


def run(route: Route, path: Path, problem: Problem, workload: Workload, seed: int) -> None:
    """Run a library on one shape and compare with the float64 reference."""
    operator, axes = problem.operator, axis_values(problem.operator, workload)
    drawn = make_inputs(operator, workload, np.random.default_rng(seed), Variant.RANDOM)
    inputs = {name: np.asarray(value) for name, value in drawn.items()}
    outputs: dict[str, NDArray[np.float32]] = {
        spec.name: np.full([axes[part] for part in spec.shape or ()], np.nan, dtype=np.float32)
        for spec in operator.outputs
    }
    tensors = {**inputs, **outputs}
    arguments = [
        ctypes.c_int64(axes[name])
        if name in axes
        else ctypes.c_void_p(tensors[name].ctypes.data if name in tensors else None)
        for name in route.arguments
    ]
    assert getattr(ctypes.CDLL(str(path)), route.symbol)(*arguments) == 0
    for name, expected in run_reference(operator, drawn).items():
        comparison = compare(
            outputs[name],
            expected,
            workload.tolerance,
            dtype="float32",
            depth=depth_of(operator, workload),
            name=name,
        )
        assert comparison.ok, (workload.label, comparison)


@pytest.mark.parametrize(("operator", "residual"), [("gemm", 0), ("gemm", 1), ("add_rmsnorm", 0)])
def test_every_legal_genome_is_right_at_ragged_shapes(
    operator: str, residual: int, tmp_path: Path
) -> None:
    options = {"residual": True} if residual else {}
    problem = builtin_problem(operator, options=options)
    route, space = space_of(problem)
    rng = np.random.default_rng(20 + residual)
    genomes = [space.sample(rng) for _ in range(GENOMES[operator])]
    for number, library in enumerate(built(route, genomes, tmp_path)):
        for axes in SHAPES[operator]:
            workload = builtin_problem(operator, axes, options).workloads[0]
            run(route, library.path, problem, workload, number)


def other_allele(
    space: Space, genome: Genome, gene: Gene, rng: np.random.Generator
) -> Genome | None:
    """Return a legal genome that differs from another in one gene only."""
    alleles = [v for v in gene.values() if v != genome[gene.name]]
    for place in rng.permutation(len(alleles)):
        changed = genome.replace({gene.name: alleles[int(place)]})
        if space.violation(changed) is None:
            return space.genome(changed)
    return None


@pytest.mark.parametrize(("operator", "residual"), [("gemm", 1), ("add_rmsnorm", 0)])
def test_every_gene_changes_the_binary(operator: str, residual: int, tmp_path: Path) -> None:
    problem = builtin_problem(operator, options={"residual": True} if residual else {})
    route, space = space_of(problem)
    rng = np.random.default_rng(8)
    idle = {gene.name: gene for gene in space.genes if gene.cardinality > 1}
    assert len(idle) == len(space.genes)
    for _ in range(8):
        base = space.sample(rng)
        pairs = {n: other_allele(space, base, gene, rng) for n, gene in idle.items()}
        tried = {name: genome for name, genome in pairs.items() if genome is not None}
        first, *others = built(route, [base, *tried.values()], tmp_path)
        for name, library in zip(tried, others, strict=True):
            if library.binary != first.binary:
                del idle[name]
        if not idle:
            break
    assert not idle, "these genes changed nothing"
