"""What is tried before islands propose: the user's seeds, the device's, and priors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from kernelarc.bench import Session
from kernelarc.engine._nearness import nearest_first
from kernelarc.engine._seeds import Seed
from kernelarc.genomes import (
    Environment,
    Genome,
    Proposal,
    Space,
    Workload,
)
from kernelarc.storage import StoreReader

USER, DEVICE, PRIOR = "user", "device", "prior"
# Genomes that did well elsewhere: chosen among so many of the best, unlike one another. The best of
# another device are often one region, and where that is poor here, all of them are.
_PRIORS, _PRIORS_AMONG = 4, 64
_NEAREST = 4


def firsts(
    session: Session,
    spaces: Mapping[str, Mapping[str, Space]],
    reader: StoreReader | None,
    seeds: Sequence[Seed],
    *,
    pins: Mapping[str, str],
    campaign: int | None = None,
) -> dict[str, list[tuple[str, Proposal]]]:
    """Return per workload what to try first, as (source, proposal), best guess first.

    After the device's first seed come the bests that stand on the nearest other workloads.

    Args:
        session: For the device's own seeds.
        spaces: By workload fingerprint, then by route.
        reader: For priors: the best of other environments and workloads. None on a fresh store.
        seeds: The user's; each must fit every workload's space.
        pins: What the user pinned, by gene, for messages.
        campaign: Only what stood before this one counts as a best.
    """
    found = {}
    for workload in session.problem.workloads:
        own = spaces[workload.fingerprint]
        device = [
            (DEVICE, p) for p in session.seeds(workload) if own[p.genome.route].contains(p.genome)
        ]
        near = [
            (PRIOR, Proposal(genome=genome, mutation="prior"))
            for genome in _confirmed_nearby(reader, workload, campaign)
            if _fits(genome, own)
        ]
        found[workload.fingerprint] = [
            *((USER, Proposal(genome=seed.genome(own, pins), mutation="seed")) for seed in seeds),
            *device[:1],
            *near,
            *device[1:],
            *((PRIOR, p) for p in _priors(reader, session, workload, own, campaign)),
        ]
    return found


def _priors(
    reader: StoreReader | None,
    session: Session,
    workload: Workload,
    spaces: Mapping[str, Space],
    campaign: int | None,
) -> Iterator[Proposal]:
    if reader is None:
        return
    environment: Environment = session.environment
    found = reader.priors(
        workload.operator,
        workload.fingerprint,
        not_environment=environment.fingerprint,
        n=_PRIORS_AMONG,
        before=campaign,
    )
    fitting = [known.genome for known in found if _fits(known.genome, spaces)]
    for genome in _unlike(fitting, spaces, _PRIORS):
        yield Proposal(genome=genome, mutation="prior")


def _unlike(genomes: Sequence[Genome], spaces: Mapping[str, Space], n: int) -> list[Genome]:
    """Return the first genome, then each time the one farthest from those chosen, ``n`` in all.

    Of equally far ones the earlier is taken; what has another route is farthest of all.
    """
    codes = [spaces[genome.route].encode(genome) for genome in genomes]
    gaps = [math.inf] * len(genomes)
    chosen: list[int] = []
    while len(chosen) < min(n, len(genomes)):
        newest = max(range(len(genomes)), key=lambda place: (gaps[place], -place))
        chosen.append(newest)
        for place, genome in enumerate(genomes):
            if genome.route == genomes[newest].route:
                gap = round(float(((codes[place] - codes[newest]) ** 2).sum()), 9)
                gaps[place] = min(gaps[place], gap)
    return [genomes[place] for place in chosen]


def _confirmed_nearby(
    reader: StoreReader | None, workload: Workload, campaign: int | None
) -> list[Genome]:
    """Return the bests that stand on the nearest other workloads of the store, each once."""
    if reader is None or campaign is None:
        return []
    found: dict[str, tuple[Workload, Genome]] = {}
    for row in reader.campaigns():
        known = {other.fingerprint: other for other in row.spec.problem.workloads}
        for best in reader.bests(row.id) if row.id < campaign else ():
            other = known[best.workload]
            if other.operator == workload.operator and other.fingerprint != workload.fingerprint:
                found[best.workload] = other, best.evaluation.candidate.genome
    ranked = nearest_first(workload, (other for other, _ in found.values()))
    genomes = [found[other.fingerprint][1] for other in ranked[:_NEAREST]]
    return list({genome.fingerprint: genome for genome in genomes}.values())


def _fits(genome: Genome, spaces: Mapping[str, Space]) -> bool:
    """Tell whether the campaign can have this genome: pins may exclude it."""
    space = spaces.get(genome.route)
    return space is not None and space.contains(genome)
