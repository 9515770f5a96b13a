"""What a campaign would do, without writing anything: ``kernelarc run --dry-run``."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelarc.bench import Device
from kernelarc.engine._campaign import build_state
from kernelarc.engine._firsts import firsts
from kernelarc.engine._run import make_ground
from kernelarc.engine._settings import CampaignSettings
from kernelarc.genomes import Problem, SpaceSize


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a campaign with these settings would work on.

    Attributes:
        workloads: Label by workload fingerprint.
        spaces: Size by workload label and route.
        genes: Gene names by route, with how many alleles each has.
        awake: Islands that would propose.
        asleep: Why each of the others would not.
        baseline: Name of what a best is compared with, by workload label; None has none.
        identity: The environment's identity.
        budget: Unique evaluations, or None.
    """

    target: str
    device: str
    workloads: Mapping[str, str]
    spaces: Mapping[str, Mapping[str, SpaceSize]]
    genes: Mapping[str, Mapping[str, int]]
    awake: tuple[str, ...]
    asleep: Mapping[str, str]
    baseline: Mapping[str, str | None]
    identity: Mapping[str, str]
    budget: int | None
    seconds: float | None
    seed: int

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {
            "schema": 1,
            "target": self.target,
            "device": self.device,
            "workloads": dict(self.workloads),
            "spaces": {
                label: {
                    route: {"raw": s.raw, "legal": s.legal, "exact": s.exact}
                    for route, s in sizes.items()
                }
                for label, sizes in self.spaces.items()
            },
            "genes": {route: dict(genes) for route, genes in self.genes.items()},
            "islands": {"awake": list(self.awake), "asleep": dict(self.asleep)},
            "baseline": dict(self.baseline),
            "environment": dict(self.identity),
            "budget": self.budget,
            "seconds": self.seconds,
            "seed": self.seed,
        }


def plan(
    settings: CampaignSettings, *, device: Device | None = None, problem: Problem | None = None
) -> Plan:
    """Open the device, read the spaces, wake the islands, and write nothing.

    Raises:
        KernelarcError: Whatever ``run`` would raise before it writes.
    """
    with tempfile.TemporaryDirectory(prefix="kernelarc-plan-") as scratch:
        ground = replace(make_ground(settings, device, problem), artefacts=Path(scratch))
        with ground.open() as session:
            state = build_state(session, settings)
            arenas = list(state.arenas.values())
            spaces = {a.workload.fingerprint: a.spaces for a in arenas}
            firsts(session, spaces, None, ground.seeds, pins=settings.pins)
            routes = {route: space for a in arenas for route, space in a.spaces.items()}
            return Plan(
                target=settings.target,
                device=session.device,
                workloads={a.workload.fingerprint: a.workload.label for a in arenas},
                spaces={
                    a.workload.label: {r: s.size() for r, s in a.spaces.items()} for a in arenas
                },
                genes={r: {g.name: g.cardinality for g in s.genes} for r, s in routes.items()},
                awake=tuple(sorted({name for a in arenas for name in a.islands})),
                asleep={name: why for a in arenas for name, why in a.asleep.items()},
                baseline={a.workload.label: session.baseline_name(a.workload) for a in arenas},
                identity=session.environment.identity,
                budget=settings.budget,
                seconds=settings.seconds,
                seed=settings.seed,
            )
