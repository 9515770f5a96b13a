"""What is remembered: the append-only store, and the import and export of records.

Open one: ``open_reader``, ``open_writer``. The contract: ``StoreReader``, ``StoreWriter``. What
is appended, beside the records of ``kernelarc.genomes``: ``Round``, ``ContestRecord``, ``Event``
(``Entry`` is any of them all). What is answered: ``CampaignRow`` with its ``CampaignSpec``,
``Known``, ``Best``, ``Counts``, ``Share``. Written for other tools: ``export``, ``EXPORTERS``.
"""

from kernelarc.storage._contract import (
    Best,
    CampaignRow,
    CampaignSpec,
    ContestRecord,
    Counts,
    Entry,
    Event,
    Known,
    Round,
    Share,
    StoreReader,
    StoreWriter,
)
from kernelarc.storage._open import open_reader, open_writer
from kernelarc.storage.exports import EXPORTERS, export

__all__ = [
    "EXPORTERS",
    "Best",
    "CampaignRow",
    "CampaignSpec",
    "ContestRecord",
    "Counts",
    "Entry",
    "Event",
    "Known",
    "Round",
    "Share",
    "StoreReader",
    "StoreWriter",
    "export",
    "open_reader",
    "open_writer",
]
