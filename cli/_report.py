"""A campaign's result in words: why it ended, what was tried, what stands, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence

from kernelarc import engine
from kernelarc.cli._text import count, duration, genome, interval, quantity, table

_REASONS = {
    "budget": "its budget of evaluations is used",
    "seconds": "its time is used",
    "plateau": "the genes change nothing",
    "exhausted": "every legal genome was tried",
    "target": "the wanted speed-up was reached",
    "signal": "",
    "": "another process runs it, or it was killed",
}


def result_text(result: engine.CampaignResult) -> str:
    """Return the whole report."""
    parts = [_headline(result), counts_line(result)]
    if result.bests:
        parts += ["", bests_table(result.bests), "", *map(genome_line, result.bests)]
    if result.score is not None:
        parts += ["", f"score (mean of {count(len(result.bests), 'workload')}): {result.score:.3f}"]
    if result.remarks:
        parts += ["", *(f"Note: {remark}." for remark in result.remarks)]
    return "\n".join(parts)


def _headline(result: engine.CampaignResult) -> str:
    if result.campaign_id is None:
        return "no campaign was begun: there is nothing to search"
    # What a running process has spent it writes when it ends.
    spent = "" if result.status == "running" else f" after {duration(result.seconds)}"
    why = _REASONS.get(result.reason, result.reason)
    why = f": {why}" if why else ""
    return f"campaign {result.campaign_id} {result.status}{spent}{why}"


def counts_line(result: engine.CampaignResult) -> str:
    """Return what was proposed, and what became of it."""
    counts = result.evaluations
    # Seeds, and what is undone to find out why a genome gained, were no island's proposals.
    beyond = counts.unique > counts.asked - counts.rejected - counts.duplicate
    also = ", seeds and undone changes included" if beyond else ""
    return (
        f"{count(counts.asked, 'proposal')}: {counts.rejected} illegal, "
        f"{counts.duplicate} known already; {counts.unique} evaluated{also} "
        f"({counts.measured} measured, {counts.failed} failed); "
        f"{count(counts.confirmations, 'confirmation')}, {count(counts.audits, 'audit')}"
    )


def bests_table(bests: Sequence[engine.BestResult]) -> str:
    """Return one row a workload: its number, the speed-up over the baseline, audited or not.

    Where a workload has a score there is a column of them: ``!`` is clamped at the limit, ``~``
    rests on torch's eager mode alone, or on some of the baselines only, by choice.
    """
    headings = ["workload", "best", "speed-up (95 % interval)", "over", "audited", "genome"]
    rows = [list(_row(best)) for best in bests]
    if any(best.score is not None for best in bests):
        headings.insert(4, "score")
        for row, best in zip(rows, bests, strict=True):
            row.insert(4, _score(best))
    return table(headings, rows)


def _score(best: engine.BestResult) -> str:
    if best.score is None:
        return "-"
    flags = ("!" if best.score.clamped else "") + ("~" if best.only_eager or best.left_out else "")
    return f"{best.score.value:.3f}{flags}"


def _row(best: engine.BestResult) -> tuple[str, ...]:
    return (
        best.workload,
        objective(best),
        interval(best.speedup),
        (best.against or "-").removeprefix("baseline:"),
        "yes" if best.audited else "no",
        best.fingerprint[:12],
    )


def objective(best: engine.BestResult) -> str:
    """Return the best's number as a person reads it."""
    return quantity(best.objective, best.unit)


def genome_line(best: engine.BestResult) -> str:
    """Return the best's route and genome on one line."""
    return f"{best.workload}: {best.route}: {genome(best.genome)}"
