"""Comparing searches on recorded spaces: ours through the real engine, and its peers.

Every method is counted alike: a unique legal genome costs one evaluation, whether it worked or
failed; what is proposed again, or is illegal, costs nothing.

- compare: compare, Comparison, ComparisonResult
- what can be compared: METHODS, FAMILIES, methods_named
"""

from typing import TYPE_CHECKING

from kernelarc.genomes import on_first_use

if TYPE_CHECKING:
    from kernelarc.engine.comparison._compare import Comparison, ComparisonResult, compare
    from kernelarc.engine.comparison._methods import FAMILIES, METHODS, methods_named

__all__ = [
    "FAMILIES",
    "METHODS",
    "Comparison",
    "ComparisonResult",
    "compare",
    "methods_named",
]

# Imported on first use: the command line's help must not wait for everything.
_HOMES = {
    "_compare": ("Comparison", "ComparisonResult", "compare"),
    "_methods": ("FAMILIES", "METHODS", "methods_named"),
}

__getattr__ = on_first_use(__name__, _HOMES)
