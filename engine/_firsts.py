"""What is tried before islands propose: the user's seeds, the device's, and priors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kernelarc.bench import Session
from kernelarc.engine._nearness import nearest_first
from kernelarc.genomes import (
    Allele,
    Environment,
    Genome,
    IllegalGenomeError,
    InputError,
    Proposal,
    Space,
    Workload,
    allele_from_json,
    nearest,
)
from kernelarc.storage import StoreReader

USER, DEVICE, PRIOR = "user", "device", "prior"
_PRIORS = 8


def read_seed(path: Path) -> tuple[str | None, dict[str, Allele]]:
    """Read a seed genome file: ``{"route": ..., "genome": {...}}``, or the alleles alone.

    A JSON export is taken too: its first best.

    Returns:
        The route (None where the file names none) and the alleles.

    Raises:
        InputError: The file is missing, not JSON, or not of this form.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"seed genome {path}: is no regular file")  # it is read again on resume
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"seed genome {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"seed genome {path}: not JSON ({error})") from None
    if isinstance(content, dict) and isinstance(content.get("bests"), list) and content["bests"]:
        content = content["bests"][0]  # an export: its first best
    if not isinstance(content, dict):
        raise InputError(f"seed genome {path}: an object with a genome is expected")
    alleles = content.get("genome", content)
    if not isinstance(alleles, dict) or not alleles:
        raise InputError(f"seed genome {path}: 'genome' must be an object of gene: allele")
    try:
        parsed = {str(gene): allele_from_json(value) for gene, value in alleles.items()}
    except TypeError as error:
        raise InputError(f"seed genome {path}: {error}") from None
    route = content.get("route") if "genome" in content else None
    return (str(route) if route is not None else None), parsed


def seed_genome(path: Path, spaces: Mapping[str, Space]) -> Genome:
    """Read a seed genome and fit it into the space of its route.

    Raises:
        InputError: As in ``read_seed``; or an unknown route, or a genome outside the space.
    """
    route, alleles = read_seed(path)
    if route is None and len(spaces) == 1:
        route = next(iter(spaces))
    if route is None or route not in spaces:
        known = nearest(route or "", spaces)
        raise InputError(f"seed genome {path}: no route {route!r} here{known}")
    space = spaces[route]
    for gene in alleles:
        if gene not in space.names:
            raise InputError(f"seed genome {path}: no gene {gene!r}{nearest(gene, space.names)}")
    try:
        return space.genome(alleles)
    except IllegalGenomeError as error:
        raise InputError(f"seed genome {path} is outside the space: {error}") from None


def firsts(
    session: Session,
    spaces: Mapping[str, Mapping[str, Space]],
    reader: StoreReader | None,
    seeds: Sequence[Path],
) -> dict[str, list[tuple[str, Proposal]]]:
    """Return per workload what to try first, as (source, proposal), best guess first.

    Args:
        session: For the device's own seeds.
        spaces: By workload fingerprint, then by route.
        reader: For priors: the best of other environments and workloads. None on a fresh store.
        seeds: The user's files; each must fit every workload's space.
    """
    found = {}
    for workload in session.problem.workloads:
        own = spaces[workload.fingerprint]
        found[workload.fingerprint] = [
            *((USER, Proposal(genome=seed_genome(path, own), mutation="seed")) for path in seeds),
            *(
                (DEVICE, p)
                for p in session.seeds(workload)
                if own[p.genome.route].contains(p.genome)
            ),
            *((PRIOR, p) for p in _priors(reader, session, workload, own)),
        ]
    return found


def _priors(
    reader: StoreReader | None, session: Session, workload: Workload, spaces: Mapping[str, Space]
) -> Iterator[Proposal]:
    if reader is None:
        return
    near = _confirmed_nearby(reader, workload)
    yield from (Proposal(genome=g, mutation="prior") for g in near if _fits(g, spaces))
    environment: Environment = session.environment
    for known in reader.priors(
        workload.operator,
        workload.fingerprint,
        not_environment=environment.fingerprint,
        n=_PRIORS,
    ):
        if _fits(known.genome, spaces):
            yield Proposal(genome=known.genome, mutation="prior")


def _confirmed_nearby(reader: StoreReader, workload: Workload) -> list[Genome]:
    """Return the bests that stand on the nearest other workloads of the store, each once."""
    found: dict[str, tuple[Workload, Genome]] = {}
    for row in reader.campaigns():
        known = {other.fingerprint: other for other in row.spec.problem.workloads}
        for best in reader.bests(row.id):
            other = known[best.workload]
            if other.operator == workload.operator and other.fingerprint != workload.fingerprint:
                found[best.workload] = other, best.evaluation.candidate.genome
    ranked = nearest_first(workload, (other for other, _ in found.values()))
    genomes = [found[other.fingerprint][1] for other in ranked[:_PRIORS]]
    return list({genome.fingerprint: genome for genome in genomes}.values())


def _fits(genome: Genome, spaces: Mapping[str, Space]) -> bool:
    """Tell whether the campaign can have this genome: pins may exclude it."""
    space = spaces.get(genome.route)
    return space is not None and space.contains(genome)
