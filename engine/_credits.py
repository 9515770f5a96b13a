"""What islands and their operators have brought, by name and by the situation it was brought in.

A fold over the log, like all state. Credit is relative: the gains of an arm (an island, or one of
its operators) over those that as many average proposals brought in the same situations. So an arm
that is only asked early, when gains are easy, is compared with others at that time; and kernels on
which gains are rare teach as much as others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kernelarc.genomes import Verdict

Arm: TypeAlias = "tuple[str, str]"
"""Island and operator; the operator of an island as a whole is ALL."""

ALL = "all"
# Log-gain from which a new best counts in full: early ones are often larger by luck alone.
_FULL_GAIN = 0.05
# An arm's credit starts where earlier campaigns left it, or at 1, as if it had been seen to bring
# so many whole gains.
_PRIOR_GAINS = 2.0
_MOST = 3.0  # earlier campaigns' credit, and its inverse
# Situations: how much was evaluated on the workload, and whether that still brings gains.
_FIRST, _STUCK = 50, 20
# A new best is worth something, even where its own sample looks no faster than the last one's.
_LEAST_GAIN = 0.002
# What the engine asks for is no island's idea; winners of finals are.
_ENGINES = ("attribute.", "audit.")
_NO_ISLANDS = frozenset({"user", "device", "prior", "store", "engine"})
_DIGITS = 9


@dataclass(slots=True)
class _Account:
    proposals: int = 0
    gains: int = 0
    worth: float = 0.0

    def book(self, worth: float) -> None:
        self.proposals += 1
        self.gains += worth > 0.0
        self.worth += worth


@dataclass(slots=True)
class _Standing:
    """Where the search of one workload stands."""

    evaluated: int = 0
    since_gain: int = 0
    best: float | None = None

    @property
    def context(self) -> str:
        phase = f"first {_FIRST}" if self.evaluated < _FIRST else "later"
        return f"{phase}, {'stuck' if self.since_gain >= _STUCK else 'gaining'}"

    def judged(self, verdict: Verdict, objective: float | None) -> float:
        """Take in one outcome; return what it was worth, 0 to 1."""
        self.evaluated += 1
        self.since_gain += 1
        if objective is None or not objective > 0.0:
            return 0.0
        if self.best is None:
            self.best = objective
        elif verdict is Verdict.KEEP:
            gain, self.best = math.log(self.best / objective), objective
            self.since_gain = 0
            return min(max(gain, _LEAST_GAIN) / _FULL_GAIN, 1.0)
        return 0.0


@dataclass(slots=True)
class Credits:
    """Relative credit by arm and situation. Changes only by ``judged`` and ``begin``.

    Attributes:
        earlier: Credit of arms in earlier campaigns: where they start.
        campaigns: Which campaigns those were.
    """

    earlier: dict[Arm, float] = field(default_factory=dict)
    campaigns: tuple[int, ...] = ()
    _standings: defaultdict[str, _Standing] = field(default_factory=lambda: defaultdict(_Standing))
    _accounts: defaultdict[str, defaultdict[Arm, _Account]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(_Account))
    )
    _totals: defaultdict[str, _Account] = field(default_factory=lambda: defaultdict(_Account))

    def begin(self, value: Mapping[str, Any]) -> None:
        """Start where earlier campaigns left it; ``value`` is what ``carried`` returned."""
        self.campaigns = tuple(int(number) for number in value["campaigns"])
        self.earlier = {
            (island, name): min(max(float(credit), 1.0 / _MOST), _MOST)
            for island, operators in value["credit"].items()
            for name, credit in operators.items()
        }

    def judged(
        self, workload: str, island: str, mutation: str, verdict: Verdict, objective: float | None
    ) -> None:
        """Take in one outcome, in ask order.

        Args:
            workload: Fingerprint.
            island: Who proposed it; sources that are no island change the standing only.
            mutation: The operator.
            verdict: What the guardrails said.
            objective: None where it failed.
        """
        standing = self._standings[workload]
        context, worth = standing.context, standing.judged(verdict, objective)
        if island in _NO_ISLANDS or mutation.startswith(_ENGINES):
            return
        self._accounts[context][island, mutation].book(worth)
        self._accounts[context][island, ALL].book(worth)
        self._totals[context].book(worth)

    def context(self, workload: str) -> str:
        """Return the situation that a workload's search is in, in words."""
        return self._standings[workload].context

    def count(self, arm: Arm) -> tuple[int, int]:
        """Return an arm's (proposals, gains)."""
        found = [accounts[arm] for accounts in self._accounts.values() if arm in accounts]
        return sum(one.proposals for one in found), sum(one.gains for one in found)

    def arms(self) -> list[Arm]:
        """Return every arm that was told of, islands as a whole included, in a fixed order."""
        return sorted({arm for accounts in self._accounts.values() for arm in accounts})

    def operators(self, island: str) -> list[str]:
        """Return an island's operators that are known here or were earlier, in a fixed order."""
        known = {*self.arms(), *self.earlier}
        return sorted(name for owner, name in known if owner == island and name != ALL)

    def evidence(self, arm: Arm) -> tuple[float, float]:
        """Return what an arm brought, and what average proposals would have, in whole gains."""
        parts = [self._part(arm, context) for context in self._accounts]
        return sum(brought for brought, _ in parts), sum(expected for _, expected in parts)

    def _part(self, arm: Arm, context: str) -> tuple[float, float]:
        account, total = self._accounts[context].get(arm), self._totals[context]
        if account is None:
            return 0.0, 0.0
        return account.worth, account.proposals * total.worth / total.proposals

    def credit(self, arm: Arm, context: str | None = None) -> float:
        """Return an arm's credit, 1 for an average one.

        Args:
            arm: Island and operator.
            context: The situation it is asked for, as ``context``; None is all of them.
        """
        found = relative(self.evidence(arm), self.earlier.get(arm, 1.0))
        if context is not None and context in self._accounts:
            found = relative(self._part(arm, context), found)
        return round(found, _DIGITS)


def relative(evidence: tuple[float, float], before: float) -> float:
    """Return gains brought over gains expected, drawn towards what was believed before."""
    brought, expected = evidence
    return (brought + _PRIOR_GAINS * before) / (expected + _PRIOR_GAINS)


def carried(earlier: Iterator[tuple[int, Credits, float]]) -> dict[str, Any]:
    """Return what earlier campaigns hand to a new one, as JSON values for its log.

    Args:
        earlier: Number, credits and weight of each campaign.
    """
    campaigns: list[int] = []
    evidence: defaultdict[Arm, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for number, credits_, weight in earlier:
        campaigns.append(number)
        for arm in credits_.arms():
            brought, expected = credits_.evidence(arm)
            before = evidence[arm]
            evidence[arm] = before[0] + weight * brought, before[1] + weight * expected
    found: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for (island, name), sums in sorted(evidence.items()):
        found[island][name] = round(relative(sums, 1.0), 4)
    return {"campaigns": campaigns, "credit": dict(found)}
