"""Credit of islands and operators in the earlier campaigns of a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kernelarc.engine._credits import Credits, carried
from kernelarc.storage import StoreReader

_CAMPAIGNS, _OUTCOMES = 8, 2_000
# What did well for another operator counts half.
_OTHER_OPERATOR = 0.5


def credits_of(reader: StoreReader, campaign: int, *, most: int | None = None) -> Credits:
    """Return a campaign's credits, folded over its log as the campaign itself does it.

    Args:
        reader: Its store.
        campaign: Its number.
        most: Outcomes to read; all by default.
    """
    found = Credits()
    for event in reader.events(campaign):
        if event.kind == "started" and "credit" in event.payload:
            found.begin(event.payload["credit"])
    for told in reader.outcomes(campaign, most=most):
        found.judged(told.workload, told.island, told.mutation, told.verdict, told.objective)
    return found


def earlier_credit(reader: StoreReader, campaign: int) -> dict[str, Any]:
    """Return what the newest campaigns before this one hand on, as ``carried`` says.

    It goes into the log of the new campaign: what others add to theirs later changes nothing.
    """
    return carried(_earlier(reader, campaign))


def _earlier(reader: StoreReader, campaign: int) -> Iterator[tuple[int, Credits, float]]:
    own = reader.campaign(campaign).spec.problem.operator.fingerprint
    rows = [row for row in reader.campaigns() if row.id < campaign]
    for row in rows[-_CAMPAIGNS:]:
        same = row.spec.problem.operator.fingerprint == own
        found = credits_of(reader, row.id, most=_OUTCOMES)
        if found.arms():
            yield row.id, found, 1.0 if same else _OTHER_OPERATOR
