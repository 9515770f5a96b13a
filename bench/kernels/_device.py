"""The device ``cuda:N`` for every operator that a compiled route serves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernelarc.bench._session import Session
from kernelarc.bench.cuda import CudaDevice, demand_parts
from kernelarc.bench.cuda._device import lock_to_open
from kernelarc.bench.kernels._session import KernelSession
from kernelarc.genomes import LT_ROUTE, MissingPartError, Problem
from kernelarc.genomes.kernels import KernelRoute, kernel_routes


class KernelDevice(CudaDevice):
    """An NVIDIA GPU with all routes that can be built here.

    A problem that no compiled route serves is a matrix product for cuBLASLt alone, or an error.

    Args:
        name: ``"cuda:0"``; ``"cuda"`` is the first one.
        routes: One's own, in place of the packaged ones.
        only: Names of the routes that may take part, ``cublaslt`` included; None is all.
        library: Whether cuBLASLt takes part in matrix products; None is yes, but for one's own
            routes and where ``only`` leaves it out.
        processes: Compile processes; one a core if None.

    Raises:
        InputError: The name is no such device's.
    """

    def __init__(
        self,
        name: str = "cuda:0",
        routes: Sequence[KernelRoute] | None = None,
        *,
        only: Sequence[str] | None = None,
        library: bool | None = None,
        processes: int | None = None,
    ) -> None:
        super().__init__(name)
        self._routes = None if routes is None else tuple(routes)
        self._only, self._processes = only, processes
        # Who brings routes of one's own compares those; who names routes says so.
        usual = routes is None if only is None else LT_ROUTE in only
        self._library = usual if library is None else library

    def split_routes(self, problem: Problem) -> tuple[tuple[KernelRoute, ...], dict[str, str]]:
        """Return the routes that serve a problem: those that can be built here, and what lacks."""
        chosen = kernel_routes(problem.operator) if self._routes is None else self._routes
        named = tuple(r for r in chosen if self._only is None or r.name in self._only)
        missing = {route.name: route.missing() for route in named}
        able = tuple(route for route in named if missing[route.name] is None)
        return able, {name: why for name, why in missing.items() if why is not None}

    def routes(self, problem: Problem) -> tuple[KernelRoute, ...]:
        """Return the routes that serve a problem and can be built here.

        Raises:
            MissingPartError: The routes that were asked for lack what builds them.
        """
        able, missing = self.split_routes(problem)
        asked = self._routes is not None or self._only is not None
        if missing and not able and asked:
            raise MissingPartError(next(iter(missing.values())))
        return able

    def open(  # type: ignore[override]
        self, problem: Problem, *, seed: int, artefacts: Path, margin: float = 0.0
    ) -> Session:
        """Take the device's lock, start a worker and the compile processes."""
        demand_parts()
        routes = self.routes(problem)
        if not routes:
            return super().open(problem, seed=seed, artefacts=artefacts, margin=margin)
        with lock_to_open(self.name) as lock:
            return KernelSession(
                self.name,
                self.ordinal,
                problem,
                routes,
                seed=seed,
                lock=lock,
                artefacts=artefacts,
                processes=self._processes,
                library=self._library,
            )
