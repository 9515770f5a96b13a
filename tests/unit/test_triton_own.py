"""A Triton source beside a problem: the folder's workloads and reference, the file's genes."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from kernelarc.bench.kernelfolder import own_route, triton_source
from kernelarc.engine import CampaignSettings, check, resolve_target
from kernelarc.genomes import InputError, load_problem
from kernelarc.genomes.kernels import DeviceLimits
from kernelarc.genomes.triton import TritonFileRoute

EXAMPLE = Path(__file__).parents[2] / "examples" / "triton_problem"
SOURCE = "squared_relu.py"
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="a Triton file is read by Triton"
)


def copied(folder: Path, *changes: tuple[str, str], file: str = SOURCE) -> Path:
    """Copy the example, with changes to one of its files."""
    made = folder / "problem"
    shutil.copytree(EXAMPLE, made, ignore=shutil.ignore_patterns("__pycache__"))
    text = (made / file).read_text()
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after, 1)
    (made / file).write_text(text)
    return made


@needs_triton
def test_the_problem_s_workloads_and_reference_count() -> None:
    problem = load_problem(EXAMPLE)
    route = own_route(EXAMPLE, problem)
    assert isinstance(route, TritonFileRoute)
    assert route.operator == problem.operator and "torch.relu" in str(route.operator.reference)
    limits = DeviceLimits.of_arch("sm_90a")
    for workload in problem.workloads:
        space = route.space(workload, limits)
        assert space.names == ("BLOCK", "num_warps")
        (seed,) = route.seeds(workload, limits)
        assert dict(seed.genome.items()) == {"BLOCK": 1024, "num_warps": 4}
        build = route.build(workload, seed.genome, "sm_90a")
        (launch,) = build.plan.launches
        assert launch.grid == (workload.axes["rows"] * 4, 1, 1)


@needs_triton
def test_such_a_folder_is_a_target_that_compiles() -> None:
    target = resolve_target(CampaignSettings(target=str(EXAMPLE)))
    assert [w.uuid for w in target.problem.workloads] == ["long", "short"]
    found = check(CampaignSettings(target=str(EXAMPLE)), arch="sm_90a", samples=2)
    assert found.ok and [one.built for one in found.routes] == [2, 2]
    with pytest.raises(InputError, match="a kernel of one's own runs on cuda:N, not on 'cpu'"):
        resolve_target(CampaignSettings(target=str(EXAMPLE), device="cpu"))


@needs_triton
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            '"x": ("bfloat16"',
            '"x": ("float16"',
            r"inputs must be .*: x: bfloat16 \[rows, columns\]",
        ),
        ('("rows", "columns"))}', '("columns", "rows"))}', r"not x: bfloat16 \[columns, rows\]"),
        ('outputs={"y"', 'outputs={"z"', "parameter 'y' is no tensor, axis or gene"),
        ("    seeds=", '    in_place={"y": "x"},\n    seeds=', "in_place is not for kernel.toml"),
    ],
)
def test_a_declaration_of_other_tensors_is_refused(
    tmp_path: Path, before: str, after: str, said: str
) -> None:
    folder = copied(tmp_path, (before, after))
    with pytest.raises(InputError, match=said) as caught:
        own_route(folder, load_problem(folder))
    assert str(folder / SOURCE) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('source = "gone.py"', "source names 'gone.py', and there is no such file beside it"),
        (
            f'source = "{SOURCE}"\ngenes = []',
            "genes is for a CUDA source; squared_relu.py declares",
        ),
    ],
)
def test_what_kernel_toml_cannot_say_of_a_triton_source(
    tmp_path: Path, text: str, said: str
) -> None:
    folder = copied(tmp_path)
    (folder / "kernel.toml").write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        own_route(folder, load_problem(folder))
    assert str(caught.value).startswith(str(folder / "kernel.toml"))


def test_a_cuda_source_is_none() -> None:
    assert triton_source(EXAMPLE) == EXAMPLE / SOURCE
    assert triton_source(EXAMPLE.parent / "cuda_kernel") is None
