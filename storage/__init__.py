"""What is remembered: the append-only store, and the import and export of records.

Open one: ``open_reader``, ``open_writer``; call it in print, without a password: ``store_name``.
The contract: ``StoreReader``, ``StoreWriter``. What is appended, beside the records of
``kernelarc.genomes``: ``Round``, ``ContestRecord``, ``Event`` (``Entry`` is any of them all). What
is answered: ``CampaignRow`` with its ``CampaignSpec``, ``Known``, ``Best``, ``Counts``, ``Share``,
``Outcome``.
Written for other tools: ``export``, ``EXPORTERS``, ``FORMATS``, ``paths_for``.
"""

from typing import TYPE_CHECKING

from kernelarc.genomes import on_first_use

if TYPE_CHECKING:
    from kernelarc.storage._address import store_name
    from kernelarc.storage._contract import (
        Best,
        CampaignRow,
        CampaignSpec,
        ContestRecord,
        Counts,
        Entry,
        Event,
        Known,
        Outcome,
        Round,
        Share,
        StoreReader,
        StoreWriter,
    )
    from kernelarc.storage._open import open_reader, open_writer
    from kernelarc.storage.exports import EXPORTERS, FORMATS, export, paths_for

__all__ = [
    "EXPORTERS",
    "FORMATS",
    "Best",
    "CampaignRow",
    "CampaignSpec",
    "ContestRecord",
    "Counts",
    "Entry",
    "Event",
    "Known",
    "Outcome",
    "Round",
    "Share",
    "StoreReader",
    "StoreWriter",
    "export",
    "open_reader",
    "open_writer",
    "paths_for",
    "store_name",
]

# Imported on first use: the command line's help must not wait for everything.
_HOMES = {
    "_address": ("store_name",),
    "_contract": (
        "Best",
        "CampaignRow",
        "CampaignSpec",
        "ContestRecord",
        "Counts",
        "Entry",
        "Event",
        "Known",
        "Outcome",
        "Round",
        "Share",
        "StoreReader",
        "StoreWriter",
    ),
    "_open": ("open_reader", "open_writer"),
    "exports": ("EXPORTERS", "FORMATS", "export", "paths_for"),
}

__getattr__ = on_first_use(__name__, _HOMES)
