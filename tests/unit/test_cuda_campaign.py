"""Whole campaigns on ``cuda:N`` with a worker that needs no GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.lt_scripted import FormulaWorker, ScriptedDevice

from kernelarc.bench.cuda import _session
from kernelarc.cli import exit_code
from kernelarc.engine import CampaignSettings, _targets, result_of, run
from kernelarc.storage import open_reader

ROOT = Path(__file__).resolve().parent.parent.parent
SHAPES = (128, 256, 512)


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_session, "WorkerProcess", FormulaWorker)
    monkeypatch.setattr(_targets, "KernelDevice", ScriptedDevice)
    monkeypatch.chdir(tmp_path)


def settings(**more: object) -> CampaignSettings:
    return CampaignSettings(
        target="matmul",
        device="cuda:0",
        axes={"N": 64, "K": 512},
        workloads=tuple({"M": m} for m in SHAPES),
        options={"residual": True, "workspace_mib": 16},
        **{"budget": 150, "seed": 3, "models": False, **more},  # type: ignore[arg-type]
    )


def test_many_workloads_are_one_campaign_with_one_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["run", "matmul", "--device", "cuda:0", "--set", "N=64", "--set", "K=512"]
    words += [word for m in SHAPES for word in ("--workload", f"M={m}")]
    words += ["--option", "residual=true", "--budget", "150", "--no-models", "--seed", "3"]
    assert exit_code(words) == 0
    table = capsys.readouterr().out
    for m in SHAPES:
        (row,) = [
            line for line in table.splitlines() if line.startswith(f"M={m} ") and " x " in line
        ]
        assert "first heuristic" in row and " yes " in row
    with open_reader("kernelarc.db") as reader:
        result = result_of(reader, None, store="kernelarc.db")
    assert [b.workload.split()[0] for b in result.bests] == [f"M={m}" for m in SHAPES]
    for best in result.bests:
        assert best.speedup is not None and best.speedup.low > 1.0 and best.audited


def test_what_an_export_needs_is_in_the_store() -> None:
    run(settings())
    with open_reader("kernelarc.db") as reader:
        bests = reader.bests(1)
        baselines = [j for j in reader.evaluations(1) if "baseline" in j.evaluation.properties]
    assert len({j.evaluation.candidate.workload for j in baselines}) == len(SHAPES)
    for best in bests:
        seen = best.evaluation.properties
        assert len(bytes.fromhex(str(seen["blob"]))) == 64
        attributes = seen["attributes"]
        assert isinstance(attributes, tuple) and len(attributes) == 9


_COORDINATOR = """
from pathlib import Path
import sys
from kernelarc.bench.cuda import _session
from kernelarc.engine import CampaignSettings, _targets, run
from tests.unit.lt_scripted import FormulaWorker, ScriptedDevice
_session.WorkerProcess, _targets.KernelDevice = FormulaWorker, ScriptedDevice
result = run(CampaignSettings(target="matmul", axes={"N": 64, "K": 512, "M": 96}, budget=20))
assert result.status == "finished" and result.bests
assert not {"cupy", "nvmath", "cuda", "torch"} & {name.partition(".")[0] for name in sys.modules}
print(Path("/proc/self/maps").read_text())
"""
LIBRARIES = ("libcuda.", "libcudart", "libcublas", "libnvidia-ml", "libnvrtc", "libnvJitLink")


def test_the_coordinator_maps_no_cuda_library(tmp_path: Path) -> None:
    path = f"{ROOT / 'src'}:{ROOT}"
    done = subprocess.run(
        [sys.executable, "-c", _COORDINATOR],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin", "KERNELARC_LOCK_DIR": str(tmp_path)},
    )
    assert "libc.so" in done.stdout or "libc-" in done.stdout
    for library in LIBRARIES:
        assert library not in done.stdout
