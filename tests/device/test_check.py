"""``kernelarc check``: every packaged Triton route compiles here, without a GPU."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernelarc.cli import program
from kernelarc.engine import CampaignSettings, check
from kernelarc.genomes import InputError, MissingPartError, packaged_problem, packaged_problems

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


def test_an_unknown_architecture_is_named() -> None:
    with pytest.raises(InputError, match="'sm_80' is none of sm_90a, sm_100a"):
        check(CampaignSettings(target="matmul"), arch="sm_80")


def test_a_target_without_compiled_routes_is_refused() -> None:
    said = r"no compiled route serves it: it runs on cpu, .*check compiles routes triton and cuda"
    with pytest.raises(InputError, match=said):
        check(CampaignSettings(target="gemm"), arch="sm_90a")
    with pytest.raises(InputError, match="check compiles its routes triton, cuda, not cublaslt"):
        check(CampaignSettings(target="matmul", routes=("cublaslt",)), arch="sm_90a")


@pytest.mark.skipif(importlib.util.find_spec("triton") is not None, reason="Triton is installed")
def test_without_triton_it_says_what_to_install() -> None:
    settings = CampaignSettings(target="matmul", routes=("triton",))
    with pytest.raises(MissingPartError, match=r"kernelarc\[triton\]"):
        check(settings, arch="sm_90a")


@needs_triton
@pytest.mark.parametrize(("arch", "unit"), [("sm_90a", "wgmma"), ("sm_100a", "tcgen05")])
def test_products_use_the_matrix_units_of_their_architecture(arch: str, unit: str) -> None:
    pins = {"load": "descriptor", "num_ctas": "1", "block_m": "128", "block_n": "128"}
    settings = CampaignSettings(target="matmul", routes=("triton",), pins=pins)
    (one,) = check(settings, arch=arch, samples=4).routes
    assert one.built >= 3, one.examples
    assert one.instructions[unit] >= 1
    assert one.instructions["tma"] == one.distinct
    assert one.registers is not None
    assert 32 <= one.registers.least <= one.registers.most <= 255


@needs_triton
@pytest.mark.parametrize("option", [{"residual": True}, {"dtype": "float16"}, {"layout": "NT"}])
def test_forms_of_products_compile(option: dict[str, bool | str]) -> None:
    settings = CampaignSettings(
        target="matmul", routes=("triton",), options=option, axes={"M": 500, "N": 264, "K": 1000}
    )
    (one,) = check(settings, arch="sm_90a", samples=4).routes
    assert one.built >= 3, one.examples


@needs_triton
def test_add_rmsnorm_compiles_and_json_says_so() -> None:
    command = ["check", "add_rmsnorm", "--arch", "sm_90a", "--samples", "4", "--json"]
    answer = CliRunner().invoke(program, [*command, "--routes", "triton"], standalone_mode=False)
    said = json.loads(answer.stdout)
    assert answer.return_value == 0
    assert said["ok"] is True
    assert said["routes"][0]["built"] == 4
    assert said["routes"][0]["failures"] == {}


@needs_triton
def test_a_pin_of_a_gene_that_is_nowhere_is_refused() -> None:
    settings = CampaignSettings(target="matmul", routes=("triton",), pins={"blok_m": "64"})
    with pytest.raises(InputError, match=r"no gene 'blok_m' here \(did you mean 'block_m'"):
        check(settings, arch="sm_90a", samples=1)


@needs_triton
@pytest.mark.parametrize(("passed_on", "said"), [("1024", True), ("BLOCK", False)])
def test_a_kernel_that_ignores_its_genes_is_told_so(
    tmp_path: Path, passed_on: str, said: bool
) -> None:
    path = tmp_path / "copy.py"
    path.write_text(COPY.replace("PASSED_ON", passed_on))
    command = ["check", str(path), "--arch", "sm_90a", "--samples", "4"]
    answer = CliRunner().invoke(program, command, standalone_mode=False)
    assert answer.return_value == 0, answer.output
    line = "triton, n=4096: all 4 builds are one and the same: the genes change nothing"
    assert (line in answer.stdout.splitlines()) == said


COPY = """
import triton
import triton.language as tl
import kernelarc

@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)

def launch(x, y, n, BLOCK):
    copy[(triton.cdiv(n, PASSED_ON),)](x, y, n, BLOCK=PASSED_ON)

def reference(x):
    return x

COPY = kernelarc.TritonKernel(
    launch=launch, reference=reference, axes={"n": 4096},
    inputs={"x": ("float32", ("n",))}, outputs={"y": ("float32", ("n",))},
    genes=[kernelarc.PowerOfTwo(name="BLOCK", low=128, high=1024)],
)
"""


def _first_shape(name: str) -> dict[str, int]:
    """Return the axes of a packaged problem's first workload: one is enough here."""
    return dict(packaged_problem(name, []).workloads[0].axes)


@needs_triton
@pytest.mark.parametrize("name", packaged_problems())
def test_every_route_of_a_packaged_problem_compiles(name: str) -> None:
    settings = CampaignSettings(target=name, axes=_first_shape(name))
    result = check(settings, arch="sm_90a", samples=2)
    assert result.routes
    for one in result.routes:
        assert one.built, (one.route, one.examples)
