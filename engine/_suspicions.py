"""What a campaign without a find points to: a wrong reference, a kernel that ignores its genes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

from kernelarc.genomes import Evaluation, Status
from kernelarc.storage import StoreReader

_LOOKED_AT = 500
_LEAST = 2
_DRIVER_REFUSES, _DEVICE_BUSY = "launch refused", "device busy"


def suspicions(reader: StoreReader, campaign: int) -> tuple[str, ...]:
    """Return remarks on a campaign in which nothing beat the start or nothing was valid.

    Looks at the first evaluations only.
    """
    judged = islice(reader.evaluations(campaign), _LOOKED_AT)
    evaluations = [one.evaluation for one in judged]
    known = _wrong_reference(evaluations) or _refused(evaluations) or _all_failed(evaluations)
    return tuple(filter(None, (known, _idle_genes(evaluations))))


def busy_remark(failures: Mapping[str, int]) -> str:
    """Say that other work on the device kept genomes from being judged; empty where none did.

    Args:
        failures: How often each class was met.
    """
    times = failures.get(_DEVICE_BUSY, 0)
    if not times:
        return ""
    return (
        f"{times} candidates could not be timed because other work ran on the device: they count "
        f"for nothing; search when it is free, and distrust close calls of this campaign"
    )


def _wrong_reference(evaluations: Sequence[Evaluation]) -> str | None:
    """Say that the reference may be wrong, where all that ran disagree with it."""
    ran = [e for e in evaluations if e.status in {Status.OK, Status.WRONG_RESULT}]
    if len(ran) < _LEAST or any(e.status is Status.OK for e in ran):
        return None
    return (
        f"each of the {len(ran)} genomes that ran gave another result than the reference: the "
        f"reference may be wrong ({ran[0].message})"
    )


def _refused(evaluations: Sequence[Evaluation]) -> str | None:
    """Say that compiler and driver do not go together, where the driver takes no binary."""
    tried = [e for e in evaluations if e.status not in {Status.COMPILE_ERROR, Status.REJECTED}]
    if len(tried) < _LEAST or any(e.failure != _DRIVER_REFUSES for e in tried):
        return None
    return (
        f"the driver refuses each of the {len(tried)} kernels that were built: the compiler may "
        f"be newer than the driver ({tried[0].message})"
    )


def _all_failed(evaluations: Sequence[Evaluation]) -> str | None:
    """Say how most of them failed, with the words of the first, where none was right."""
    evaluations = [e for e in evaluations if e.status is not Status.INTERRUPTED]
    if len(evaluations) < _LEAST or any(e.status is Status.OK for e in evaluations):
        return None
    ((failure, times),) = Counter(e.failure for e in evaluations).most_common(1)
    first = next(e for e in evaluations if e.failure == failure)
    return f"{times} of {len(evaluations)} failed with: {failure} ({first.message})"


def _idle_genes(evaluations: Sequence[Evaluation]) -> str | None:
    """Say that the genes change nothing, where every genome is the same machine code."""
    binaries = [e.properties["binary"] for e in evaluations if "binary" in e.properties]
    if len(binaries) < _LEAST or len(set(binaries)) > 1 or len(binaries) < len(evaluations):
        return None
    return f"all {len(binaries)} genomes compile to one and the same code: it ignores its genes"
