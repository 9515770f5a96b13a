"""Scores: the formula, the limit, what is clamped, and where they are shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.test_solutions import searched

from kernelarc.bench import datasheet, limit_us, score
from kernelarc.cli._report import bests_table, result_text
from kernelarc.engine import result_of
from kernelarc.engine._baselines import Tried
from kernelarc.engine._results import _baseline_remarks, _best
from kernelarc.engine._scores import is_problem, mean_score, score_remark, work_of
from kernelarc.genomes import (
    builtin_problem,
    bytes_of,
    packaged_problem,
    packaged_problems,
    tensor_bytes,
)
from kernelarc.storage import open_reader


def test_the_score_is_a_half_at_the_baseline_and_one_at_the_limit() -> None:
    assert score(20.0, 20.0, 5.0).value == 0.5
    assert score(5.0, 20.0, 5.0).value == 1.0
    assert score(12.5, 20.0, 5.0).value == pytest.approx(1 / 1.5)
    assert score(35.0, 20.0, 5.0).value == pytest.approx(1 / 3)
    assert not any(score(time, 20.0, 5.0).clamped for time in (5.0, 12.5, 20.0, 35.0))


def test_what_is_below_the_limit_is_clamped_and_flagged() -> None:
    """The plain formula divides by zero at 2 * limit - baseline, and goes above 1 before that."""
    for impossible in (-10.0, 0.0, 4.9):
        found = score(impossible, 20.0, 5.0)
        assert (found.value, found.clamped, found.latency_us) == (1.0, True, impossible)
    assert score(2 * 5.0 - 20.0, 20.0, 5.0).value == 1.0
    beneath = score(6.0, 4.0, 5.0)  # a baseline below the limit: the counts are wrong
    assert (beneath.value, beneath.clamped) == (0.0, True)
    assert score(5.0, 5.0, 5.0).value == 1.0


def test_the_limit_is_the_datasheet_s() -> None:
    sheet = datasheet("NVIDIA H200")
    assert sheet is not None and sheet.memory_bytes_per_s == 4.8e12
    least = limit_us(sheet, flops=989e6, bytes_moved=1.0, dtype="bfloat16")
    assert least == pytest.approx(1.4)
    assert limit_us(sheet, flops=None, bytes_moved=4.8e6, dtype="bfloat16") == pytest.approx(1.4)
    assert limit_us(sheet, flops=989e6, bytes_moved=None, dtype="float8_e4m3fn") == 0.9
    assert limit_us(sheet, flops=989e6, bytes_moved=None, dtype="float32") == pytest.approx(2.4)
    assert limit_us(sheet, flops=None, bytes_moved=None, dtype="bfloat16") is None
    assert datasheet("cpu") is None and datasheet("NVIDIA A100") is None


def test_work_is_counted_where_a_definition_does_not_say() -> None:
    problem = packaged_problem("gemm_residual")
    workload = problem.workloads[0]
    bare = replace(problem.operator, flops=None, bytes_moved=None)
    flops, moved = work_of(bare, workload)
    assert flops == 2 * 256 * 2560 * 2560
    assert moved == bytes_of(problem.operator, workload) == tensor_bytes(bare, workload)


def test_packaged_bytes_never_exceed_what_the_tensors_hold() -> None:
    for name in packaged_problems():
        problem = packaged_problem(name)
        assert is_problem(problem.operator)
        for workload in problem.workloads:
            counted = bytes_of(problem.operator, workload)
            assert counted is not None
            assert 0.05 < counted / tensor_bytes(problem.operator, workload) <= 1.0001
    assert not is_problem(builtin_problem("gemm").operator)


def test_bests_of_a_problem_are_scored_and_the_report_says_what_that_is(tmp_path: Path) -> None:
    store = searched(tmp_path)
    with open_reader(str(store)) as reader:
        unknown = result_of(reader, None, store=str(store))
        row = reader.campaign(None)
        bests = reader.bests(row.id)
    assert unknown.score is None and "score" not in json.dumps(unknown.to_json())
    identity = {**row.environment.identity, "device": "NVIDIA H200"}
    known = replace(row, environment=replace(row.environment, identity=identity))
    found = [_best(best, known, {}) for best in bests]
    for best, stored in zip(found, bests, strict=True):
        assert best.score is not None and stored.speedup is not None and best.latency_us
        assert best.score.baseline_us == pytest.approx(best.latency_us * stored.speedup.value)
        assert best.to_json()["score"]["limit_us"] == best.score.limit_us > 0.4
    mean = mean_score([best.score for best in found])
    remark = score_remark(known, [best.score for best in found])
    assert mean is not None and remark is not None
    assert "H200 figures" in remark and "not comparable with the public board's" in remark
    result = replace(unknown, bests=found, score=mean, remarks=(remark,))
    assert result.to_json()["score"] == mean
    text = result_text(result)
    assert f"score (mean of 2 workloads): {mean:.3f}" in text and remark in text
    assert " score " in bests_table(found).split("\n")[0]
    eager = [replace(best, against="baseline:torch eager") for best in found]
    told: Tried = {"torch eager": {"us": 9.0}, "torch compile": {"failed": "Unsupported: item"}}
    alone = [replace(best, baselines=told) for best in eager]
    beside = [replace(one, baselines={**told, "torch sdpa": {"us": 12.0}}) for one in eager]
    assert [one.only_eager for one in (eager[0], alone[0], beside[0])] == [True, True, False]
    assert "~" in bests_table(alone) and "~" not in bests_table(beside)
    assert alone[0].to_json()["score"]["only_eager"] is True
    assert alone[0].to_json()["against"] == "torch eager"
    remarks = _baseline_remarks(alone)
    assert remarks[0] == "scores rest on torch eager (2)"
    assert remarks[1].startswith("no baseline for 2 workloads (")
    assert remarks[1].endswith(": torch compile: Unsupported: item")
    assert "the only baseline is torch's eager mode" in remarks[2]
    assert len(_baseline_remarks(beside)) == 2
    chosen: Tried = {"torch sdpa": {"us": 9.0}, "torch compile": {"left_out": True}}
    some = [replace(best, against="baseline:torch sdpa", baselines=chosen) for best in found]
    assert "~" in bests_table(some) and not some[0].only_eager
    assert some[0].to_json()["score"]["left_out"] == ["torch compile"]
    assert beside[0].to_json()["score"]["left_out"] == []
    assert _baseline_remarks(some) == (
        "scores rest on torch sdpa (2): others were left out by --baselines (~): torch compile; "
        "a faster one among them would lower the scores",
    )
    (mixed, *_) = _baseline_remarks([some[0], beside[1]])
    assert f": others of {some[0].workload} were left out by --baselines (~): " in mixed
    alone_by_choice: Tried = {"torch eager": {"us": 9.0}, "torch compile": {"left_out": True}}
    quick = [replace(one, baselines=alone_by_choice) for one in eager]
    assert quick[0].only_eager and "~" in bests_table(quick)
    assert len(_baseline_remarks(quick)) == 1, "said once, with the choice"
    off: Tried = {"torch eager": {"us": 9.0, "off": "mismatch: out"}, "torch sdpa": {"us": 12.0}}
    misses = _baseline_remarks([replace(eager[0], baselines=off)])
    assert misses[1].endswith(
        "misses the workload's tolerance (mismatch: out): no baseline was held to it"
    )
    assert mean_score([found[0].score, None]) is None
    assert score_remark(known, [None]) is None
