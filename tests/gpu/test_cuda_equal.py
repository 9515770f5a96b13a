"""Twenty campaigns between two names of one algorithm end without a KEEP."""

from __future__ import annotations

from pathlib import Path

from kernelarc.bench.cuda import CudaDevice
from kernelarc.engine import CampaignSettings, run
from kernelarc.genomes import matmul_target
from kernelarc.storage import open_reader

CAMPAIGNS = 20
AXES = {"M": 512, "N": 1024, "K": 1024}


def test_twenty_campaigns_on_one_algorithm_keep_nothing(tmp_path: Path) -> None:
    """The scratch ceiling is all that differs, and the first heuristic needs no scratch memory."""
    problem = matmul_target([AXES], {})
    with CudaDevice().open(problem, seed=0, artefacts=tmp_path) as session:
        (workload,) = problem.workloads
        first = session.seeds(workload)[0].genome
    assert first["splitk"] == 1
    pins = {name: str(first[name]) for name in first if name != "workspace_mib"}
    contests = 0
    for seed in range(CAMPAIGNS):
        settings = CampaignSettings(
            target="matmul",
            device="cuda:0",
            axes=AXES,
            pins=pins,
            store=str(tmp_path / f"{seed}.db"),
            budget=2,
            seed=seed,
            models=False,
        )
        result = run(settings)
        assert result.evaluations.measured == 2, "both names were evaluated"
        assert result.bests[0].is_start, f"seed {seed}: {result.bests[0]}"
        with open_reader(settings.store) as reader:
            contests += sum(c.purpose in {"heat", "confirm"} for c in reader.contests(1))
    assert contests >= CAMPAIGNS, "each campaign timed the two side by side"
