"""Compiling samples of a target's spaces for an architecture, without a device."""

from __future__ import annotations

import os
import select
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kernelarc.bench.kernels import BuildReply, BuildShelf, CompilePool, KernelDevice, Order
from kernelarc.engine._sampling import SAMPLES
from kernelarc.engine._serving import serving, serving_text
from kernelarc.engine._settings import CampaignSettings
from kernelarc.engine._spaces import demand_genes, legal_space
from kernelarc.engine._targets import FIRST_GPU, Target, resolve_target
from kernelarc.genomes import Genome, InputError, MissingPartError, Space, Workload
from kernelarc.genomes.kernels import DeviceLimits, KernelReport, KernelRoute

_DRAWS = 20
_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Least, middle and largest of a figure over builds."""

    least: int
    median: float
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteCheck:
    """What came of one route on one workload.

    Attributes:
        legal: Legal genomes of the space; an upper bound where ``exact`` is false.
        sampled: Genomes that were compiled.
        built: Of those, how many could be launched by their report.
        distinct: How many different builds that made.
        failures: How often each class of failure occurred.
        examples: One message for each class.
        registers: Of a thread, the hungriest kernel of each build.
        shared_bytes: Static and dynamic, likewise.
        spilling: Builds with a stack: spilled registers, or arrays that found none.
        spill_bytes: The largest such stack.
        instructions: In how many builds an instruction of note occurs.
        compile_s: Seconds of one build, in the middle.
    """

    route: str
    workload: str
    legal: int
    exact: bool
    sampled: int
    built: int
    distinct: int
    failures: Mapping[str, int]
    examples: Mapping[str, str]
    registers: Spread | None
    shared_bytes: Spread | None
    spilling: int
    spill_bytes: int
    instructions: Mapping[str, int]
    compile_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What came of all routes.

    Attributes:
        missing: Routes that serve the target and cannot be built here, with what is missing.
    """

    target: str
    arch: str
    routes: tuple[RouteCheck, ...]
    missing: Mapping[str, str]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether every route gave something that can be launched."""
        return all(route.built for route in self.routes)

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {"schema": 1, "ok": self.ok, **asdict(self)}


def check(settings: CampaignSettings, *, arch: str, samples: int = SAMPLES) -> CheckResult:
    """Compile legal genomes of every compiled route of a target; needs no GPU.

    Args:
        settings: Target, axes, options, routes, pins and seed count.
        arch: ``"sm_90a"`` or ``"sm_100a"``.
        samples: Genomes of each route and workload, fewer where the space holds fewer.

    Raises:
        InputError: The architecture is unknown, or no compiled route serves the target.
        MissingPartError: What would compile is not installed.
        NothingValidError: A space has no legal genome.
    """
    begun, limits = time.monotonic(), DeviceLimits.of_arch(arch)
    target, (routes, missing) = _compiled(settings)
    if not routes and not missing:
        raise _nothing_compiled(settings, target)
    if not routes:
        raise MissingPartError("; ".join(f"{name}: {why}" for name, why in missing.items()))

    served = [
        (route, workload, route.space(workload, limits))
        for route in routes
        for workload in target.problem.workloads
        if route.unsuited(workload) is None
    ]
    demand_genes([space for *_, space in served], settings)

    def sample(space: Space) -> _Sample:
        space = legal_space(space, settings)
        return _Sample(space, _drawn(space, samples, settings.seed))

    with tempfile.TemporaryDirectory(prefix="kernelarc-check-") as folder:
        cores = len(os.sched_getaffinity(0))
        pool = CompilePool(routes, arch, BuildShelf(Path(folder)), processes=cores)
        try:
            checked = [
                _checked(pool, route, workload, limits, sample(space))
                for route, workload, space in served
            ]
        finally:
            pool.close()
    return CheckResult(
        target=settings.target,
        arch=arch,
        routes=tuple(checked),
        missing=missing,
        seconds=round(time.monotonic() - begun, 3),
    )


def _compiled(
    settings: CampaignSettings,
) -> tuple[Target, tuple[tuple[KernelRoute, ...], dict[str, str]]]:
    """Return the target, its routes that can be built here, and what the others lack."""
    target = resolve_target(replace(settings, device=settings.device or FIRST_GPU))
    if not isinstance(target.device, KernelDevice):
        raise InputError(f"{settings.target}: check compiles for cuda:N, not {target.device.name}")
    return target, target.device.split_routes(target.problem)


def _nothing_compiled(settings: CampaignSettings, target: Target) -> InputError:
    """Say what there is in place of what was asked for."""
    if settings.routes is not None:
        able, missing = _compiled(replace(settings, routes=None))[1]
        if able or missing:
            names = ", ".join([*(route.name for route in able), *missing])
            asked = ", ".join(settings.routes)
            return InputError(f"{settings.target}: check compiles its routes {names}, not {asked}")
    served = serving_text(serving(target.problem.operator, target.problem.workloads))
    return InputError(
        f"{settings.target}: no compiled route serves it: it runs on {served}; check compiles "
        "routes triton and cuda of cuda:N ('kernelarc operators' lists what each serves)"
    )


def _checked(
    pool: CompilePool,
    route: KernelRoute,
    workload: Workload,
    limits: DeviceLimits,
    sample: _Sample,
) -> RouteCheck:
    space, drawn = sample.space, sample.genomes
    replies = _built(pool, route, workload, drawn)
    failures: Counter[str] = Counter()
    examples: dict[str, str] = {}
    good: dict[str, tuple[KernelReport, ...]] = {}
    built = 0
    for reply in replies:
        fault = _fault(route, reply, limits)
        if fault is not None:
            failures[fault[0]] += 1
            examples.setdefault(*fault)
        elif reply.build is not None:
            built += 1
            good[reply.build.content] = reply.build.kernels
    size = space.size()
    return RouteCheck(
        route=route.name,
        workload=workload.label,
        legal=size.legal,
        exact=size.exact,
        sampled=len(drawn),
        built=built,
        distinct=len(good),
        failures=dict(failures.most_common()),
        examples=examples,
        compile_s=round(statistics.median(r.seconds for r in replies), 3) if replies else 0.0,
        **_figures(list(good.values())),
    )


@dataclass(frozen=True, slots=True)
class _Sample:
    """Different legal genomes of a space, evenly drawn; all of them where there are no more."""

    space: Space
    genomes: list[Genome]


def _drawn(space: Space, samples: int, seed: int) -> list[Genome]:
    size = space.size()
    if size.exact and size.legal <= samples:
        return list(space.enumerate())
    rng = np.random.default_rng(seed)
    found: dict[str, Genome] = {}
    for _ in range(_DRAWS * samples):
        genome = space.sample(rng)
        found.setdefault(genome.fingerprint, genome)
        if len(found) == samples:
            break
    return list(found.values())


def _built(
    pool: CompilePool, route: KernelRoute, workload: Workload, drawn: Sequence[Genome]
) -> list[BuildReply]:
    for ticket, genome in enumerate(drawn):
        pool.submit(Order(ticket=ticket, route=route.name, workload=workload, genome=genome))
    replies = pool.harvest()
    while len(replies) < len(drawn):
        select.select(pool.filenos(), [], [], _PAUSE_S)
        replies += pool.harvest()
    return replies


def _fault(route: KernelRoute, reply: BuildReply, limits: DeviceLimits) -> tuple[str, str] | None:
    if reply.build is None:
        return reply.failure or "compile error", reply.message
    return route.fault(reply.build, limits)


def _figures(builds: Sequence[tuple[KernelReport, ...]]) -> dict[str, Any]:
    spills = [max(kernel.spill_bytes for kernel in kernels) for kernels in builds]
    noted: Counter[str] = Counter()
    for kernels in builds:
        noted.update({n for kernel in kernels for n, count in kernel.instructions.items() if count})
    return {
        "registers": _spread([max(k.registers for k in kernels) for kernels in builds]),
        "shared_bytes": _spread(
            [max(k.static_shared_bytes + k.shared_bytes for k in kernels) for kernels in builds]
        ),
        "spilling": sum(nbytes > 0 for nbytes in spills),
        "spill_bytes": max(spills, default=0),
        "instructions": dict(sorted(noted.items())),
    }


def _spread(values: Sequence[int]) -> Spread | None:
    if not values:
        return None
    return Spread(least=min(values), median=float(statistics.median(values)), most=max(values))
