"""The source of a kernel file's genome: the file's text, as long as it is what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelarc.bench.kernelfolder import own_cuda_route
from kernelarc.engine import source_of
from kernelarc.genomes import (
    Environment,
    Genome,
    Operator,
    Problem,
    TensorSpec,
    Workload,
    load_problem,
    packaged_problem,
)
from kernelarc.genomes.kernels import DeviceLimits, kernel_routes
from kernelarc.genomes.routes._cuda_route import CudaRoute
from kernelarc.genomes.triton import content_of
from kernelarc.storage import CampaignRow, CampaignSpec

HOPPER = DeviceLimits.of_arch("sm_90a")
JOB = Operator(
    name="copy",
    axes={},
    inputs=(TensorSpec(name="x", shape=("8",), dtype="float32"),),
    outputs=(TensorSpec(name="y", shape=("8",), dtype="float32"),),
)


def cuda_row(target: str, problem: Problem, identity: dict[str, str]) -> CampaignRow:
    spec = CampaignSpec(
        target=target, device="cuda:0", seed=0, problem=problem, settings={"target": target}
    )
    environment = Environment(identity=identity)
    return CampaignRow(id=1, created_unix_s=0.0, spec=spec, environment=environment)


def test_a_packaged_cuda_kernel_is_shown_until_its_sources_change() -> None:
    problem = packaged_problem("gemm_residual")
    (route,) = (r for r in kernel_routes(problem.operator) if isinstance(r, CudaRoute))
    genome = route.seeds(problem.workloads[0], HOPPER)[0].genome
    known = {f"cuda.{name}": value for name, value in route.hashes().items()}
    text = source_of(cuda_row("gemm_residual", problem, known), genome)
    assert text is not None
    assert text.startswith(f"// gemm_residual, {problem.workloads[0].label}, genome ")
    assert text.endswith(route.prepared(problem.workloads[0], genome, "sm_90a").text)
    other = cuda_row("gemm_residual", problem, {**known, "cuda.sources": "0"})
    assert source_of(other, genome) is None
    assert source_of(cuda_row("gemm_residual", problem, known), Genome("cuda", {"x": 1})) is None


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("decoder_block", "cuBLASLt: out = gated . down_proj^T + middle, 4096 x 5120, depth 17408"),
        (
            "moe_swiglu_backward",
            "cuBLASLt: grad_down_proj = grad_output^T . hidden rows, 2048 x 768",
        ),
    ],
)
def test_a_source_says_what_the_library_does_between_its_kernels(name: str, line: str) -> None:
    problem = packaged_problem(name)
    workload = problem.workloads[-1]
    (route,) = (r for r in kernel_routes(problem.operator) if isinstance(r, CudaRoute))
    seeds = [seed.genome for seed in route.seeds(workload, HOPPER)]
    library = seeds[0]
    plain = next(seed for seed in seeds if "library" not in seed.alleles().values())
    known = {f"cuda.{key}": value for key, value in route.hashes().items()}
    row = cuda_row(name, Problem(operator=problem.operator, workloads=(workload,)), known)
    text = source_of(row, library)
    assert text is not None
    order = [each for each in text.splitlines() if each.startswith("//   ")]
    assert sum("cuBLASLt" in each for each in order) >= 7
    assert len(order) == len(route.prepared(workload, library, "sm_90a").steps)
    assert any(line in each and "choice 0 with at most 32 MiB" in each for each in order), order
    other = source_of(row, plain)
    assert other is not None and "cuBLASLt" not in other


def test_a_cuda_source_of_one_s_own_is_shown_with_its_macros() -> None:
    folder = Path(__file__).parents[2] / "examples" / "cuda_kernel"
    problem = load_problem(folder)
    route = own_cuda_route(folder, problem.operator)
    (seed,) = route.seeds(problem.workloads[0], HOPPER)
    known = {f"cuda.{name}": value for name, value in route.hashes().items()}
    text = source_of(cuda_row(str(folder), problem, known), seed.genome)
    assert text is not None and "#define THREADS 256\n" in text
    assert text.endswith((folder / "scaled_add.cu").read_text())
    assert source_of(cuda_row(str(folder), problem, {}), seed.genome) is None


def row(target: str, content: str) -> CampaignRow:
    spec = CampaignSpec(
        target=target,
        device="cuda:0",
        seed=0,
        problem=Problem(operator=JOB, workloads=(Workload(operator=JOB.fingerprint),)),
        settings={"target": target},
    )
    environment = Environment(identity={"triton.kernel_file": content})
    return CampaignRow(id=1, created_unix_s=0.0, spec=spec, environment=environment)


def test_a_kernel_file_is_shown_with_its_genome_until_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "kernels.py"
    path.write_text("print('a kernel')\n")
    genome = Genome("triton", {"BLOCK": 128, "num_warps": 4})
    for target in (str(path), f"{path}:kernel"):
        text = source_of(row(target, content_of(path)), genome)
        assert text is not None
        assert text.startswith(f"# {path}, genome {genome.fingerprint}\n# BLOCK=128, num_warps=4\n")
        assert text.endswith("print('a kernel')\n")
    before = content_of(path)
    path.write_text("print('another')\n")
    assert source_of(row(str(path), before), genome) is None
    path.unlink()
    assert source_of(row(str(path), before), genome) is None
