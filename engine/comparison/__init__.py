"""Comparing searches on recorded spaces: ours through the real engine, and its peers.

Every method is counted alike: a unique legal genome costs one evaluation, whether it worked or
failed; what is proposed again, or is illegal, costs nothing.

- compare: compare, Comparison, ComparisonResult
- ours beside itself with one thing changed: ablate, AblationResult
- what can be compared: METHODS, FAMILIES, ARM_NAMES, methods_named
"""

from typing import TYPE_CHECKING

from kernelarc.genomes import on_first_use

if TYPE_CHECKING:
    from kernelarc.engine.comparison._ablate import AblationResult, ablate
    from kernelarc.engine.comparison._arms import ARM_NAMES
    from kernelarc.engine.comparison._compare import Comparison, ComparisonResult, compare
    from kernelarc.engine.comparison._methods import FAMILIES, METHODS, methods_named

__all__ = [
    "ARM_NAMES",
    "FAMILIES",
    "METHODS",
    "AblationResult",
    "Comparison",
    "ComparisonResult",
    "ablate",
    "compare",
    "methods_named",
]

# Imported on first use: the command line's help must not wait for everything.
_HOMES = {
    "_ablate": ("AblationResult", "ablate"),
    "_arms": ("ARM_NAMES",),
    "_compare": ("Comparison", "ComparisonResult", "compare"),
    "_methods": ("FAMILIES", "METHODS", "methods_named"),
}

__getattr__ = on_first_use(__name__, _HOMES)
