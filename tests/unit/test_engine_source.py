"""The source of a kernel file's genome: the file's text, as long as it is what was measured."""

from __future__ import annotations

from pathlib import Path

from kernelarc.engine import source_of
from kernelarc.genomes import Environment, Genome, Operator, Problem, TensorSpec, Workload
from kernelarc.genomes.triton import content_of
from kernelarc.storage import CampaignRow, CampaignSpec

JOB = Operator(
    name="copy",
    axes={},
    inputs=(TensorSpec(name="x", shape=("8",), dtype="float32"),),
    outputs=(TensorSpec(name="y", shape=("8",), dtype="float32"),),
)


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
