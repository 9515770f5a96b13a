"""Why a component has no legal assignment: the constraints to blame, as few as possible."""

from __future__ import annotations

from collections.abc import Sequence

from kernelarc.genomes._component import EDGE_LIMIT, Component
from kernelarc.genomes._errors import InputError
from kernelarc.genomes._graph import TooLargeError, build
from kernelarc.genomes._order import plan
from kernelarc.genomes._rules import Rule


def why_empty(route: str, component: Component) -> str:
    """Say in one line why a component has no legal assignment.

    Args:
        route: For the message.
        component: One whose ``sample`` found nothing.
    """
    start = f"route {route!r} has no legal genome"
    if component.total:
        names = ", ".join(repr(rule.text) for rule in component.unbuilt)
        return f"{start}: a bounded search found none that satisfies {names}"
    blamed = _fewest(component, list(component.rules))
    if len(blamed) == 1:
        return f"{start}: the constraint {blamed[0].text!r} excludes every one"
    names = ", ".join(repr(rule.text) for rule in blamed)
    return f"{start}: together the constraints {names} exclude every one"


def _fewest(component: Component, rules: list[Rule]) -> list[Rule]:
    """Drop every rule without which nothing is legal still."""
    for rule in rules:
        if _empty(component, [rule]):
            return [rule]
    for rule in list(rules):
        rest = [other for other in rules if other is not rule]
        if _empty(component, rest):
            rules = rest
    return rules


def _empty(component: Component, rules: Sequence[Rule]) -> bool:
    try:
        planned = plan(component.positions, rules, component.links)
        return build(planned, component.links, EDGE_LIMIT).root.total == 0
    except (TooLargeError, InputError):
        return False
