"""What ``torch.compile`` builds for a baseline is kept for later sessions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelarc.bench.kernels._line import DeviceLine
from kernelarc.bench.kernels._messages import KernelTask
from kernelarc.bench.kernels._torch_cache import kept_builds
from kernelarc.genomes import Operator, Workload

KEPT_IN = "TORCHINDUCTOR_CACHE_DIR"
COMPILED_ONCE = """
import json
import torch
from torch._dynamo.utils import counters
from kernelarc.bench._reference import reference_of
from kernelarc.bench.kernels._torch_calls import TorchCalls
from kernelarc.genomes import packaged_problem

operator = packaged_problem("gemm_residual").operator
calls = TorchCalls(torch, operator, reference_of(operator))
some = [torch.ones(64, 64, dtype=torch.bfloat16) for _ in operator.inputs]
with torch.no_grad():
    calls.get("torch addmm compile")(*some)
print(json.dumps({key: counters["inductor"][f"fxgraph_cache_{key}"] for key in ("hit", "miss")}))
"""


def test_builds_are_kept_in_the_users_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEPT_IN, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "kernelarc" / "torch"
    assert kept_builds() == {KEPT_IN: str(folder)}
    assert not folder.exists(), "not before there is something to keep"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert kept_builds() == {KEPT_IN: str(tmp_path / "home" / ".cache" / "kernelarc" / "torch")}


def test_a_folder_that_the_user_names_stays_and_one_that_cannot_be_made_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(KEPT_IN, "/mine")
    assert kept_builds() == {} and not list(tmp_path.iterdir())
    monkeypatch.delenv(KEPT_IN)
    (tmp_path / "kernelarc").write_text("a file is in the way")
    assert kept_builds() == {}


@pytest.mark.parametrize(
    ("reference", "keeps"), [("import torch\n", True), ("import numpy\n", False)]
)
def test_a_worker_that_may_compile_with_torch_is_given_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, keeps: bool
) -> None:
    monkeypatch.delenv(KEPT_IN, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    operator = Operator(name="mine", axes={}, inputs=(), outputs=(), reference=reference)
    task = KernelTask(operator=operator, workload=Workload(operator=operator.fingerprint))
    line = DeviceLine("cuda:0", 0, [task], 1)
    try:
        given, end = b"", time.monotonic() + 30
        while not given and time.monotonic() < end:  # a new program has none for a moment
            given = Path(f"/proc/{line._worker.pid}/environ").read_bytes()
    finally:
        line.close()
    kept = f"{KEPT_IN}={tmp_path / 'kernelarc' / 'torch'}"
    assert (kept in given.decode().split("\0")) is keeps


def test_what_one_process_compiled_another_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="torch (make references)")
    monkeypatch.delenv(KEPT_IN, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    given = {**os.environ, **kept_builds()}
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", COMPILED_ONCE],
                env=given,
                capture_output=True,
                check=True,
                text=True,
            ).stdout.splitlines()[-1]
        )
        for _ in range(2)
    ]
    assert found == [{"hit": 0, "miss": 1}, {"hit": 1, "miss": 0}]
    assert list((tmp_path / "kernelarc" / "torch").iterdir())
