"""What the device ``cuda:N`` refuses on a GPU: one line, its exit code, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelarc.cli import exit_code

PRODUCT = ["run", "matmul", "--device", "cuda:0", "--budget", "20", "--store", "s.db"]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--option", "dtype=fp8", "--set", "K=24"), ("multiples of 16",)),
        (("--option", "dtype=fp8", "--option", "layout=NN"), ("contiguous along",)),
        (
            ("--set", "M=262144", "--set", "N=131072", "--set", "K=4096"),
            ("GiB of device memory", "are free"),
        ),
    ],
)
def test_products_that_cannot_be(
    words: tuple[str, ...],
    parts: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code = exit_code([*PRODUCT, *words])
    line = capsys.readouterr().err.strip()
    assert code == 2, line
    assert all(part in line for part in parts) and "\n" not in line
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".db"]


def test_a_gpu_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [word.replace("cuda:0", "cuda:31") for word in PRODUCT]
    assert exit_code(words) == 4
    assert "there is no cuda:31" in capsys.readouterr().err
    assert not (tmp_path / "s.db").exists()
