"""A comparison as a person reads it."""

from __future__ import annotations

import kernelarc.engine.comparison as comparing
from kernelarc.cli._text import duration, table
from kernelarc.genomes import Estimate


def comparison_text(result: comparing.ComparisonResult) -> str:
    """Return the tables of a comparison, with a line above each that says what it shows."""
    wanted = result.comparison
    count = f"{len(result.spaces)} spaces, {wanted.repeats} runs each"
    lines = [
        f"{count}, {duration(result.seconds)}; intervals are 95 %, from resampled seeds",
        "",
        "Geometric mean over spaces of the median best / optimum, by unique evaluations;",
        "share of all runs at the optimum; methodology score (0 random, 1 optimum throughout)",
        _overall(result),
        "",
        "Ours over each peer's (below 1: ours is better), and the chance p that methods of equal",
        "worth differ so much (permutation test within spaces, kernels weighing alike)",
        _advantages(result),
        "",
        "Median best / optimum by space, and the score up to its cut",
        *(_space(result, space) for space in result.spaces),
    ]
    if wanted.permute_seed is not None:
        lines.insert(1, "CONTROL: the recorded times were exchanged at random")
    return "\n".join(lines)


def ablation_text(result: comparing.AblationResult) -> str:
    """Return the table of ablations, with lines above it that say what it shows."""
    wanted = result.comparison
    kernels = len(set(result.kernels.values()))
    count = f"{len(result.kernels)} spaces of {kernels} kernels, {wanted.repeats} runs each"
    return "\n".join(
        [
            f"{count}, {duration(result.seconds)}; intervals are 95 %, from resampled seeds",
            "",
            "Geometric mean over spaces of the median best / optimum, by unique evaluations; in",
            "brackets the share of all runs at the optimum; spaces: where the arm changes anything",
            _reached(result),
            "",
            "Each arm's best over the full program's with the same seed, geometric mean, kernels",
            "weighing alike (above 1: the full program is better), and the chance p that equal",
            "searches differ so much (signs flipped, spaces of one kernel together; * where it",
            "stays below 0.05 corrected for the number of arms)",
            _ratios(result),
        ]
    )


def _reached(result: comparing.AblationResult) -> str:
    budgets = result.comparison.budgets
    rows = [
        (
            name,
            str(arm.spaces),
            *(f"{_interval(arm.means[b], 3)} ({arm.shares[b].value:.0%})" for b in budgets),
        )
        for name, arm in result.arms.items()
    ]
    return table(("arm", "spaces", *map(str, budgets)), rows)


def _ratios(result: comparing.AblationResult) -> str:
    budgets = result.comparison.budgets
    rows = [
        (
            name,
            *(
                f"{_interval(arm.ratios[b], 3)} p={arm.chances[b]:.4f}"
                + ("*" if arm.corrected[b] < 0.05 else "")
                for b in budgets
            ),
        )
        for name, arm in result.arms.items()
        if arm.ratios
    ]
    return table(("arm", *map(str, budgets)), rows)


def _overall(result: comparing.ComparisonResult) -> str:
    budgets = result.comparison.budgets
    headings = ("method", *map(str, budgets), f"at optimum, {budgets[-1]}", "score")
    rows = [
        (
            name,
            *(_interval(found.means[budget], 3) for budget in budgets),
            _percent(found.shares[budgets[-1]]),
            _interval(found.score, 2),
        )
        for name, found in result.methods.items()
    ]
    return table(headings, rows)


def _advantages(result: comparing.ComparisonResult) -> str:
    budgets = result.comparison.budgets
    rows = [
        (
            peer,
            *(
                f"{_interval(found[budget], 3)} p={result.chances[peer][budget]:.3f}"
                for budget in budgets
            ),
        )
        for peer, found in result.advantages.items()
    ]
    return table(("peer", *map(str, budgets)), rows)


def _space(result: comparing.ComparisonResult, space: str) -> str:
    budgets = result.comparison.budgets
    about = result.spaces[space]
    rows = [
        (
            name,
            *(f"{found.medians[space][budget]:.3f}" for budget in budgets),
            _interval(found.scores[space], 2),
        )
        for name, found in result.methods.items()
    ]
    exact = result.exact[space]
    rows.append(("random, exact", *(f"{exact[budget][0]:.3f}" for budget in budgets), "-"))
    title = f"{space}: {about['legal']} legal, {about['failed']} fail, cut {about['cut']}"
    return f"\n{title}\n" + table(("method", *map(str, budgets), "score"), rows)


def _interval(estimate: Estimate, digits: int) -> str:
    shown = f"{estimate.value:.{digits}f}"
    return f"{shown} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"


def _percent(estimate: Estimate) -> str:
    return f"{estimate.value:.0%} [{estimate.low:.0%}, {estimate.high:.0%}]"
