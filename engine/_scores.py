"""Scores of a problem's bests, from the store alone."""

from __future__ import annotations

from collections.abc import Sequence

from kernelarc.bench import Score, datasheet, limit_us, score
from kernelarc.genomes import (
    Operator,
    Workload,
    axis_values,
    bytes_of,
    flops_of,
    matmul_job,
    tensor_bytes,
)
from kernelarc.storage import Best, CampaignRow

_WIDEST_FIRST = ("float64", "float32", "float16", "bfloat16", "float8_e5m2", "float8_e4m3fn")


def is_problem(operator: Operator) -> bool:
    """Tell whether an operator is a SOL-ExecBench problem: its reference is written for torch."""
    return operator.reference is not None and "import torch" in operator.reference


def score_of(row: CampaignRow, best: Best, workload: Workload) -> Score | None:
    """Return a best's score, or None where there is no baseline, data sheet or count of work.

    The baseline's time is the best's times their paired ratio.
    """
    operator, timed = row.spec.problem.operator, best.evaluation.measurement
    sheet = datasheet(row.environment.identity.get("device", ""))
    if not is_problem(operator) or sheet is None or timed is None or best.speedup is None:
        return None
    if timed.latency_us is None:
        return None
    flops, moved = work_of(operator, workload)
    least = limit_us(sheet, flops=flops, bytes_moved=moved, dtype=_factor_dtype(operator))
    if least is None:
        return None
    return score(timed.latency_us, timed.latency_us * best.speedup.value, least)


def work_of(operator: Operator, workload: Workload) -> tuple[float | None, float]:
    """Return FLOPs and least bytes of a workload.

    A definition that does not say is counted: a matrix product's FLOPs follow from its shape (of
    others they stay unknown), and every tensor passes through memory once.
    """
    flops, moved = flops_of(operator, workload), bytes_of(operator, workload)
    axes = axis_values(operator, workload)
    job = matmul_job(operator, workload, axes)
    if flops is None and job is not None:
        flops = job.flops
    return flops, tensor_bytes(operator, workload) if moved is None else moved


def _factor_dtype(operator: Operator) -> str:
    """Return the narrowest floating-point type that has a rate among the inputs' types."""
    held = {spec.dtype for spec in operator.inputs if spec.shape is not None}
    if any(dtype.startswith("float4") for dtype in held):
        return "bfloat16"  # widened before it is multiplied
    return next((dtype for dtype in reversed(_WIDEST_FIRST) if dtype in held), "bfloat16")


def mean_score(scores: Sequence[Score | None]) -> float | None:
    """Return the mean over a problem's workloads, None unless all of them have a score."""
    known = [found.value for found in scores if found is not None]
    return sum(known) / len(known) if known and len(known) == len(scores) else None


def score_remark(row: CampaignRow, scores: Sequence[Score | None]) -> str | None:
    """Say what the scores are, and what they are not."""
    if not any(scores):
        return None
    sheet = datasheet(row.environment.identity.get("device", ""))
    name = "" if sheet is None else sheet.name
    clamped = sum(found.clamped for found in scores if found is not None)
    text = (
        f"scores are {name} figures: limit by the data sheet's peaks, baseline as measured here; "
        f"they are not comparable with the public board's"
    )
    return text + (f"; {clamped} clamped at the limit: distrust those" if clamped else "")
