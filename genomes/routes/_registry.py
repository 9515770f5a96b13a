"""Which routes of the device ``cpu`` come with the package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from kernelarc.genomes._operators import Operator
from kernelarc.genomes.routes._add_rmsnorm import add_rmsnorm_route
from kernelarc.genomes.routes._gemm import gemm_route
from kernelarc.genomes.routes._route import Route

_MAKERS: Mapping[str, tuple[Callable[[], Route], ...]] = MappingProxyType(
    {"gemm": (gemm_route,), "add_rmsnorm": (add_rmsnorm_route,)}
)


def cpu_routes(operator: Operator | str) -> Mapping[str, Route]:
    """Return the packaged routes of an operator on ``cpu`` by name; none for other operators."""
    name = operator if isinstance(operator, str) else operator.name
    return MappingProxyType({route.name: route for route in (m() for m in _MAKERS.get(name, ()))})
