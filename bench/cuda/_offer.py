"""What a library offers for one job: the route's domains, its seeds and its baseline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernelarc.bench.cuda._binding import Numbering
from kernelarc.bench.cuda._capabilities import offered, sift, widened
from kernelarc.bench.cuda._library import Matmul
from kernelarc.bench.cuda._protocol import DomainReply
from kernelarc.genomes import (
    InputError,
    LtAlgoDomain,
    LtDomain,
    LtRow,
    MatmulJob,
    workspace_levels_mib,
)

FIRST, PER_ALGORITHM = "heuristic", "heuristic of one algorithm"
"""Names of the seeds' mutations."""


def library_domain(matmul: Matmul, numbers: Numbering, rng: np.random.Generator) -> DomainReply:
    """Ask a library what it offers for a job, sift it, and ask its heuristics.

    Args:
        matmul: The job's descriptors.
        numbers: The binding's enumerations.
        rng: For the probes of the sifting.

    Raises:
        InputError: It offers nothing at all.
    """
    job = matmul.job
    first = taken(matmul, matmul.heuristics(job.workspace_bytes))
    seeds: dict[LtRow, str] = dict.fromkeys(first, FIRST)
    kept: list[LtAlgoDomain] = []
    dormant: list[int] = []
    for algo in matmul.ids():
        mine = [row for row in first if row[0] == algo]
        mine += taken(matmul, matmul.heuristics(job.workspace_bytes, algo))
        mine = list(dict.fromkeys(mine))
        narrow = _narrow(matmul, algo, mine, numbers, rng)
        if narrow is None:
            dormant.append(algo)
        else:
            kept.append(narrow)
            seeds |= {row: PER_ALGORITHM for row in mine if row not in seeds}
    if not kept:
        raise InputError(
            f"the library offers nothing for {job.dtype} {job.layout} M={job.m} N={job.n} K={job.k}"
        )
    return DomainReply(
        domain=_domain(matmul, numbers, kept, job),
        seeds=tuple((name, row) for row, name in seeds.items()),
        baseline=first[0] if first else None,
        dormant=tuple(dormant),
    )


def _narrow(
    matmul: Matmul,
    algo: int,
    mine: Sequence[LtRow],
    numbers: Numbering,
    rng: np.random.Generator,
) -> LtAlgoDomain | None:
    facts = matmul.facts(algo)
    if facts is None:
        return None
    domain = widened(offered(facts, numbers, matmul.job.k), mine)
    tail = (matmul.job.workspace_bytes, int(matmul.job.in_place))
    return sift(domain, mine, lambda rows: matmul.check(rows)[0], rng, tail)


def taken(matmul: Matmul, rows: Sequence[LtRow]) -> list[LtRow]:
    """Return those rows that the library itself takes when asked, in order, once each."""
    unique = list(dict.fromkeys(rows))
    if not unique:
        return []
    status, _ = matmul.check(np.array(unique, dtype=np.int64))
    return [row for row, code in zip(unique, status, strict=True) if code == 0]


def _domain(
    matmul: Matmul, numbers: Numbering, algos: list[LtAlgoDomain], job: MatmulJob
) -> LtDomain:
    return LtDomain(
        version=int(matmul.lt.get_version()),
        tiles=numbers.tiles,
        stages=numbers.stages,
        clusters=numbers.clusters,
        algos=tuple(algos),
        workspace_mib=workspace_levels_mib(job.workspace_bytes),
        aliased=(True, False) if job.in_place else (),
    )
