"""What a store already knows of a kernel and key."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelarc.genomes import Allele, InputError, KernelarcError
from kernelarc.storage import CampaignRow, StoreReader, open_reader

FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What an earlier search found.

    Attributes:
        campaign: Its number.
        finished: Whether it came to its end.
        genome: The best that was upheld, as alleles; None where nothing valid was found.
    """

    campaign: int
    finished: bool
    genome: Mapping[str, Allele] | None


def look_up(store: str, identity: str, device_model: str) -> Known | None:
    """Return what a store knows of a job, None where nobody searched for it.

    Args:
        store: Path or URL; one that does not exist knows nothing.
        identity: The job's.
        device_model: Results of another model do not count.
    """
    if "://" not in store and not Path(store).exists():
        return None
    with contextlib.suppress(KernelarcError), open_reader(store) as reader:
        for row in reversed(list(reader.campaigns())):
            if _is_of(row, identity, device_model):
                return _known(reader, row)
    return None


def _is_of(row: CampaignRow, identity: str, device_model: str) -> bool:
    device = row.environment.identity.get("device")
    return Path(row.spec.target).stem.endswith(identity) and device == device_model


def _known(reader: StoreReader, row: CampaignRow) -> Known:
    finished = any(event.kind == FINISHED for event in reader.events(row.id))
    bests = [best for best in reader.bests(row.id) if best.audited]
    genome = bests[0].evaluation.candidate.genome.alleles() if bests else None
    return Known(campaign=row.id, finished=finished, genome=genome)


def demand_store_place(store: str) -> None:
    """Make the folder of a store.

    Raises:
        InputError: It cannot be made.
    """
    if "://" in store:
        return
    folder = Path(store).absolute().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}") from None
