"""The campaign's spaces: the device's, with the user's pins and strategies laid over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from kernelarc.bench import Session
from kernelarc.engine._settings import CampaignSettings
from kernelarc.genomes import InputError, Space, Strategy, Workload, assign_strategies, nearest


def campaign_spaces(session: Session, settings: CampaignSettings) -> dict[str, dict[str, Space]]:
    """Return the spaces by workload fingerprint and route.

    Raises:
        InputError: A pin or strategy names an unknown gene or allele.
        NothingValidError: Pins and constraints leave no legal genome.
    """
    return {
        workload.fingerprint: workload_spaces(session, settings, workload)
        for workload in session.problem.workloads
    }


def workload_spaces(
    session: Session, settings: CampaignSettings, workload: Workload
) -> dict[str, Space]:
    """Return one workload's spaces by route. Errors as in ``campaign_spaces``."""
    spaces = _chosen(session.spaces(workload), settings.routes)
    demand_genes(spaces.values(), settings)
    return {route: legal_space(space, settings) for route, space in spaces.items()}


def demand_genes(spaces: Iterable[Space], settings: CampaignSettings) -> None:
    """Refuse pins and strategies of genes that none of the spaces has.

    Raises:
        InputError: There is one.
    """
    genes = sorted({name for space in spaces for name in space.names})
    for what, named in (("pin", settings.pins), ("strategy", settings.strategies)):
        for gene in named:
            if gene not in genes:
                raise InputError(f"{what}: no gene {gene!r} here{nearest(gene, genes)}")


def legal_space(space: Space, settings: CampaignSettings) -> Space:
    """Return a space with the user's pins, and strategies on every gene.

    Raises:
        InputError: A pin names an allele that is not there.
        NothingValidError: Pins and constraints leave no legal genome.
    """
    owners = {gene: Strategy(name) for gene, name in settings.strategies.items()}
    found = _pinned(assign_strategies(space, _of(space, owners)), settings.pins)
    if found.size().legal == 0:
        found.sample(np.random.default_rng(0))  # raises, and says which constraint is to blame
    return found


def _chosen(spaces: Mapping[str, Space], routes: Sequence[str] | None) -> Mapping[str, Space]:
    if routes is None:
        return spaces
    for name in routes:
        if name not in spaces:
            raise InputError(f"routes: no route {name!r} here{nearest(name, spaces)}")
    return {name: spaces[name] for name in routes}


def _of(space: Space, owners: Mapping[str, Strategy]) -> dict[str, Strategy]:
    return {gene: owner for gene, owner in owners.items() if gene in space.names}


def _pinned(space: Space, pins: Mapping[str, str]) -> Space:
    held = {
        gene: space.gene(gene).parse(text) for gene, text in pins.items() if gene in space.names
    }
    return space.pin(held) if held else space
