"""RMS normalisation's CUDA text on this machine's processor, against float64.

With a residual and without; rows read by threads or brought by the copy engine, shared by the warps
of a block or by the blocks of a cluster; fewer rows than a block takes, and rows that come out odd.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.device import cuda_host

from kernelarc.genomes import builtin_problem, packaged_problem
from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._operators import Problem
from kernelarc.genomes.kernels import DeviceLimits
from kernelarc.genomes.routes._cuda_add_rmsnorm import CudaAddRmsnormRoute
from kernelarc.genomes.routes._cuda_route import placed_start

HOPPER = DeviceLimits.of_arch("sm_90a")
PLAIN, FUSED, WIDE = "rmsnorm", "add_rmsnorm_bf16", "add_rmsnorm"
ENGINE: dict[str, Allele] = {"path": "engine", "warps": 2, "vec_bytes": 8}

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")


def rounded(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def widened(found: NDArray[Any]) -> NDArray[np.float64]:
    if found.dtype == np.float32:
        return found.astype(np.float64)
    return (found.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def problem_of(name: str, rows: int, hidden: int) -> Problem:
    shape = {"rows": rows, "hidden": hidden}
    return builtin_problem(name, shape) if name == WIDE else packaged_problem(name, [shape])


def outcome(
    folder: Path,
    name: str,
    rows: int,
    hidden: int,
    genes: dict[str, Allele],
    planted: tuple[str, str] = ("", ""),
) -> str:
    """Run a genome; return what the run complained of, or hold its results to float64."""
    problem = problem_of(name, rows, hidden)
    (workload,) = problem.workloads
    route, rng = CudaAddRmsnormRoute(problem.operator), np.random.default_rng(rows)
    roles = route.roles
    given: dict[str, NDArray[Any]] = {}
    for spec in problem.operator.inputs:
        if spec.shape is None:
            given[spec.name] = np.array([1e-5], np.float32)
            continue
        drawn = rng.standard_normal((rows, hidden)[2 - len(spec.shape) :], np.float32)
        given[spec.name] = drawn if name == WIDE else rounded(drawn)
    outputs = {
        spec.name: np.zeros((rows, hidden), np.float32 if name == WIDE else np.uint16)
        for spec in problem.operator.outputs
    }
    space = route.space(workload, HOPPER)
    ready = route.prepared(workload, space.genome(placed_start(space, genes)), "sm_90a")
    assert planted[0] in ready.source
    program = cuda_host.built(replace(ready, source=ready.source.replace(*planted)), folder)
    found, complaint = cuda_host.run(program, given, outputs, seed=1)
    if complaint:
        return complaint
    total = widened(given[roles.x])
    if roles.residual is not None:
        total = total + widened(given[roles.residual])
    epsilon = 1e-5 if isinstance(roles.epsilon, str) else roles.epsilon
    size = np.sqrt(np.square(total).mean(-1, keepdims=True) + epsilon)
    right = total / size * widened(given[roles.weight])
    slack = 1e-5 if name == WIDE else 5e-3
    np.testing.assert_allclose(widened(found[roles.y]), right, rtol=2 * slack, atol=slack)
    if roles.summed is not None:
        np.testing.assert_allclose(widened(found[roles.summed]), total, rtol=1e-6, atol=1e-6)
    return ""


@pytest.mark.parametrize("name", [PLAIN, FUSED])
@pytest.mark.parametrize(
    ("rows", "hidden", "genes"),
    [
        (5, 128, {"vec_bytes": 8, "warps": 1, "teams": 4}),
        (9, 128, {"vec_bytes": 4, "warps": 2, "teams": 2, "store": "stream", "weight_early": True}),
        (2, 1024, {"vec_bytes": 16, "warps": 2, "load": "no_allocate", "cluster": 2}),
        (3, 1000, {"vec_bytes": 16, "warps": 2, "load": "leave", "pdl": True}),
        (133, 200, {"vec_bytes": 8, "warps": 1, "load": "stream", "blocks_per_sm": 1}),
        (2, 512, {**ENGINE, "stages": 1, "blocks_per_sm": 0}),
        (265, 512, {**ENGINE, "stages": 2, "blocks_per_sm": 1}),
        (67, 1024, {**ENGINE, "stages": 2, "blocks_per_sm": 1, "cluster": 2, "load": "leave"}),
    ],
    ids=lambda value: "" if isinstance(value, dict) else str(value),
)
def test_results_are_right(
    tmp_path: Path, name: str, rows: int, hidden: int, genes: dict[str, Allele]
) -> None:
    assert outcome(tmp_path, name, rows, hidden, genes) == ""


def test_a_sum_is_written_and_odd_rows_go_one_by_one(tmp_path: Path) -> None:
    assert outcome(tmp_path, WIDE, 3, 131, {"vec_bytes": 4, "warps": 2}) == ""


def test_a_sum_may_be_rounded_before_it_is_normalised(tmp_path: Path) -> None:
    genes: dict[str, Allele] = {"vec_bytes": 8, "warps": 1, "rounded": True}
    assert outcome(tmp_path, FUSED, 3, 256, genes) == ""


def test_bytes_that_nobody_fetches_are_waited_for_in_vain(tmp_path: Path) -> None:
    planted = ("(1 + ADD_RESIDUAL) * PART_BYTES", "2 * PART_BYTES")
    complaint = outcome(tmp_path, PLAIN, 2, 512, {**ENGINE, "stages": 1}, planted)
    assert complaint.startswith("deadlock:") and "a barrier in shared memory" in complaint


def test_a_block_that_does_not_hear_the_others_is_seen(tmp_path: Path) -> None:
    planted = ("    barrier_wait(heard", "    // barrier_wait(heard")
    genes: dict[str, Allele] = {"vec_bytes": 4, "warps": 1, "cluster": 2}
    complaint = outcome(tmp_path, FUSED, 6, 256, genes, planted)
    assert complaint.startswith("a block is reached into after it has left")


@pytest.mark.parametrize(
    ("planted", "genes"),
    [
        (("sums[i][j] += more[j]", "sums[i][j] -= more[j]"), {"vec_bytes": 8, "warps": 1}),
        (("* WARPS;\n    if (threadIdx", "* 0;\n    if (threadIdx"),
         {"vec_bytes": 4, "warps": 2, "teams": 2}),
    ],
    ids=["another sum", "one place for all rows"],
)  # fmt: skip
def test_what_is_wrong_shows(
    tmp_path: Path, planted: tuple[str, str], genes: dict[str, Allele]
) -> None:
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert outcome(tmp_path, FUSED, 6, 256, genes, planted) == ""
