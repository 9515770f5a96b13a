"""Comparing searches on recorded spaces: ours through the real engine, and its peers.

Every method is counted alike: a unique legal genome costs one evaluation, whether it worked or
failed; what is proposed again, or is illegal, costs nothing.

- compare: compare, Comparison, ComparisonResult
- what can be compared: METHODS, FAMILIES, methods_named
"""

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
