"""A campaign's result in words: why it ended, what was tried, what stands, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelarc.cli._text import count, duration, genome, number, ratio, table

_REASONS = {
    "budget": "its budget of evaluations is used",
    "seconds": "its time is used",
    "plateau": "nothing improved for long",
    "exhausted": "every legal genome was tried",
    "target": "the wanted speed-up was reached",
    "signal": "it was interrupted",
}


def result_text(result: Mapping[str, Any]) -> str:
    """Return the report of a result, given as the command line's JSON object."""
    parts = [_headline(result), _counts(result["evaluations"])]
    if result["best"] is None:
        parts.append(_nothing(result["evaluations"]))
    else:
        parts += ["", bests_table(result["bests"])]
        parts += [line for best in result["bests"] for line in ("", *best_words(best))]
    return "\n".join(parts)


def _headline(result: Mapping[str, Any]) -> str:
    reason = result["reason"]
    why = _REASONS.get(reason, reason)
    return (
        f"campaign {result['campaign_id']} {result['status']} after "
        f"{duration(result['seconds'])}: {why}"
    )


def _counts(counts: Mapping[str, int]) -> str:
    return (
        f"{count(counts['asked'], 'proposal')}: {counts['rejected']} illegal, "
        f"{counts['duplicate']} known already, {counts['unique']} evaluated "
        f"({counts['measured']} measured, {counts['failed']} failed); "
        f"{count(counts['confirmations'], 'confirmation')}, {count(counts['audits'], 'audit')}"
    )


def _nothing(counts: Mapping[str, int]) -> str:
    return (
        "Nothing valid was found: "
        f"{counts['rejected']} proposals were illegal and {counts['failed']} candidates failed. "
        "'kernelarc status' says how they failed."
    )


def bests_table(bests: list[Mapping[str, Any]]) -> str:
    """Return one row a workload: objective, speed-up over the baseline, audited or not."""
    headings = ("workload", "best", "over baseline (95 % interval)", "audited", "genome")
    return table(headings, [_row(best) for best in bests])


def _row(best: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        best.get("label") or best["workload"],
        objective(best),
        ratio(best["speedup"]),
        "yes" if best["audited"] else "no",
        best["fingerprint"][:12],
    )


def objective(best: Mapping[str, Any]) -> str:
    """Return the best's number: a time in microseconds, or the device's own."""
    if best["latency_us"] is not None:
        return f"{number(best['latency_us'])} us"
    return f"{number(best['objective'])} {best.get('unit', '')}".rstrip()


def best_words(best: Mapping[str, Any]) -> list[str]:
    """Return what a best is worth, in sentences, and its genome."""
    label = best.get("label") or best["workload"]
    lines = [f"{label}: route {best['route']}, {genome(best['genome'])}"]
    return [*lines, *(f"  {sentence}" for sentence in _worth(best))]


def _worth(best: Mapping[str, Any]) -> list[str]:
    found = [*_against_start(best), *_against_baseline(best)]
    if not best["audited"]:
        found.append("Not audited: no fresh process has upheld it, so it is not exported.")
    return found


def _against_start(best: Mapping[str, Any]) -> list[str]:
    if best.get("keeps") != 0:
        return []
    tried = best.get("tried", {})
    return [
        "The best equals the starting genome: nothing that was tried beat it "
        f"({tried.get('slower', 0)} slower, {tried.get('within_margin', 0)} within the margin, "
        f"{tried.get('failed', 0)} failed)."
    ]


def _against_baseline(best: Mapping[str, Any]) -> list[str]:
    speedup = best["speedup"]
    if speedup is None:
        return []
    over = best.get("baseline") or "the baseline"
    if speedup["low"] > 1.0:
        return [f"Faster than {over}: {ratio(speedup)}."]
    if speedup["high"] < 1.0:
        return [f"Slower than {over}: {ratio(speedup)}. Keep what you have."]
    return [f"No faster than {over}, as far as was measured: {ratio(speedup)}."]
