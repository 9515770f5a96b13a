"""A user's CUDA source beside a problem: read, launched by arithmetic, refused in one line."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest
from tests.unit.test_cuda_routes import HOPPER, needs_nvrtc

from kernelarc.bench.kernelfolder import _reading, brings_kernel, own_cuda_route
from kernelarc.engine import CampaignSettings
from kernelarc.engine._targets import device_for, resolve_target
from kernelarc.genomes import InputError, Problem, load_problem
from kernelarc.genomes.kernels import BuildError, InputArgument, ScalarArgument, TensorArgument
from kernelarc.genomes.routes._cuda_own import OwnCudaRoute

EXAMPLE = Path(__file__).parents[2] / "examples" / "cuda_kernel"


def copied(folder: Path, *changes: tuple[str, str]) -> Path:
    """Copy the example, with changes to its ``kernel.toml``."""
    made = folder / "problem"
    shutil.copytree(EXAMPLE, made)
    text = (made / "kernel.toml").read_text()
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after, 1)
    (made / "kernel.toml").write_text(text)
    return made


def opened(folder: Path) -> tuple[OwnCudaRoute, Problem]:
    problem = load_problem(folder)
    return own_cuda_route(folder, problem.operator), problem


def test_launches_are_arithmetic_over_axes_and_genes() -> None:
    route, problem = opened(EXAMPLE)
    workload = problem.workloads[1]
    space = route.space(workload, HOPPER)
    assert space.names == ("VEC", "UNROLL", "THREADS", "STREAM")
    assert all(gene.strategy is not None for gene in space.genes)
    genome = space.genome({"VEC": 4, "UNROLL": 8, "THREADS": 128, "STREAM": True})
    ready = route.prepared(workload, genome, "sm_90a")
    (launch,) = ready.launches
    assert launch.grid == (131 * 4096 // 4096, 1, 1) and launch.block == (128, 1, 1)
    x, base, alpha, y, rows = launch.arguments
    assert (x, base, y) == (TensorArgument("x"), TensorArgument("y0"), TensorArgument("y"))
    assert alpha == InputArgument("alpha", "f32") and rows == ScalarArgument(131, "i32")
    head, _, rest = ready.text.partition("\n\n")
    assert set(head.splitlines()) == {
        "#define VEC 4", "#define UNROLL 8", "#define THREADS 128", "#define STREAM 1",
        "#define AXIS_ROWS 131", "#define AXIS_COLUMNS 4096",
    }  # fmt: skip
    assert rest == (EXAMPLE / "scaled_add.cu").read_text()


def test_what_the_user_runs_is_tried_first_and_the_route_can_be_sent() -> None:
    route, problem = opened(EXAMPLE)
    (seed,) = pickle.loads(pickle.dumps(route)).seeds(problem.workloads[0], HOPPER)
    assert dict(seed.genome.items())["THREADS"] == 256
    assert seed.mutation == "own"


def test_a_folder_with_a_kernel_is_a_target() -> None:
    settings = CampaignSettings(target=str(EXAMPLE))
    target = resolve_target(settings)
    assert [w.axes["rows"] for w in target.problem.workloads] == [8192, 131]
    assert device_for(settings).name == "cuda:0"
    assert brings_kernel(EXAMPLE) and not brings_kernel(EXAMPLE.parent)
    with pytest.raises(InputError, match="a kernel of one's own runs on cuda:N, not on 'cpu'"):
        resolve_target(CampaignSettings(target=str(EXAMPLE), device="cpu"))


def test_cuda_s_headers_are_found_wherever_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = {"nvidia": tmp_path / "nvidia", "triton": tmp_path / "triton"}
    monkeypatch.setattr(_reading, "_package", lambda name: [roots[name]])
    places = [
        roots["triton"] / "backends" / "nvidia" / "include",
        tmp_path / "toolkit" / "include",
        roots["nvidia"] / "cu13" / "include",
    ]
    monkeypatch.setattr(_reading, "_TOOLKIT", str(tmp_path / "none"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    (roots["nvidia"] / "cudnn" / "include").mkdir(parents=True)  # a package without them
    for place in places:  # each later one is found before those that came earlier
        place.mkdir(parents=True)
        (place / "cuda_fp16.h").write_text("")
        assert _reading.toolkit_headers() == (str(place),)


def test_a_fault_is_named_once_in_the_folder_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copied(tmp_path, ('"alpha", "y"', '"alpha", "z"')))
    with pytest.raises(InputError, match=r"^kernel\.toml: launches\[0\]\.arguments\[3\] 'z' is no"):
        opened(Path())


def test_workloads_that_differ_in_their_uuid_alone_are_one(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    first, second = (folder / "workload.jsonl").read_text().splitlines()
    again = json.dumps({**json.loads(first), "uuid": "again"})
    (folder / "workload.jsonl").write_text("\n".join((first, second, again, again)))
    with pytest.warns(UserWarning, match="2 of 4 workloads repeat another but for their uuid"):
        target = resolve_target(CampaignSettings(target=str(folder)))
    assert [w.axes["rows"] for w in target.problem.workloads] == [8192, 131]


def test_headers_of_the_folder_are_written_in(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    source = folder / "scaled_add.cu"
    (folder / "more.cuh").write_text("#define HALF 0.5f\n")
    source.write_text('#include "more.cuh"\n#include "cuda_fp16.h"\n' + source.read_text())
    route, _ = opened(folder)
    assert route.own.text.startswith('#define HALF 0.5f\n\n#include "cuda_fp16.h"\n')


MALFORMED = [
    ('source = "scaled_add.cu"', 'source = "none.cu"', "none.cu: the source cannot be read"),
    ('source = "scaled_add.cu"', "source = 3", "kernel.toml: source must be a text, not 3"),
    ('source = "scaled_add.cu"', "", "kernel.toml: source is missing"),
    ('source = "scaled_add.cu"', 'sources = "x"', "sources is no field (did you mean 'source'?)"),
    ('source = "scaled_add.cu"', "source = ", "(at line 4, column"),
    ("VEC * UNROLL <= 32", "VEC * UNROL <= 32", "unknown gene 'UNROL'"),
    ("VEC = 1,", "VEK = 1,", "seeds[0].VEK is no gene (did you mean 'VEC'?)"),
    ("VEC = 1,", "VEC = 3,", "seeds[0].VEC has no allele 3"),
    ('symbol = "scaled_add"', "", "launches[0].symbol is missing"),
    ('block = ["THREADS"]', "", "launches[0].block is missing"),
    ('block = ["THREADS"]', "block = [1.5]", "launches[0].block must be a whole number or an exp"),
    ('block = ["THREADS"]', "block = [1, 1, 1, 1]", "launches[0].block has 4 numbers, at most 3"),
    ('block = ["THREADS"]', 'block = ["THREDS"]', "unknown axis or gene 'THREDS'"),
    ('block = ["THREADS"]', 'block = ["print(1)"]', "calls a function (print)"),
    ('"alpha", "y",', '"alpha", "z",', "launches[0].arguments[3] 'z' is no tensor"),
    ('type = "i32"', 'type = "int"', "launches[0].arguments[4].type must be one of i8, i16, i32"),
    ('kind = "choice"', 'kind = "choise"', "genes[2] gene kind 'choise' is unknown"),
]


@pytest.mark.parametrize(("before", "after", "message"), MALFORMED)
def test_malformed_files_say_where_in_one_line(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    folder = copied(tmp_path, (before, after))
    with pytest.raises(InputError) as caught:
        opened(folder)
    said = str(caught.value)
    assert message in said and "\n" not in said
    assert said.startswith(str(folder))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows - 131", "scaled_add: grid: 'rows - 131' gives 0, not a whole number from 1"),
        ("rows / 2", "gives 65.5, not a whole number"),
        ("rows // (THREADS - THREADS)", "ZeroDivisionError"),
    ],
)
def test_numbers_that_no_launch_can_have_are_compile_errors(
    tmp_path: Path, text: str, message: str
) -> None:
    grid = "(rows * columns + VEC * UNROLL * THREADS - 1) // (VEC * UNROLL * THREADS)"
    route, problem = opened(copied(tmp_path, (grid, text)))
    workload = problem.workloads[1]
    (seed,) = route.seeds(workload, HOPPER)
    with pytest.raises(BuildError) as caught:
        route.prepared(workload, seed.genome, "sm_90a")
    assert message in caught.value.message


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_the_example_compiles(arch: str) -> None:
    route, problem = opened(EXAMPLE)
    workload = problem.workloads[0]
    genome = route.space(workload, HOPPER).genome(
        {"VEC": 4, "UNROLL": 4, "THREADS": 256, "STREAM": True}
    )
    build = route.build(workload, genome, arch)
    assert build.kernels[0].registers > 0 and build.kernels[0].spill_bytes == 0
    assert route.fault(build, HOPPER) is None
    assert route.identity()["kernel_source"]
