"""Routes of the device ``cpu``: C sources whose macros are genes, and their spaces."""

from kernelarc.genomes.routes._host import HostShape
from kernelarc.genomes.routes._registry import cpu_routes
from kernelarc.genomes.routes._route import Route, macros_of

__all__ = ["HostShape", "Route", "cpu_routes", "macros_of"]
