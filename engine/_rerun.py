"""Measuring one remembered genome once more, to look at it. Nothing is recorded."""

from __future__ import annotations

from dataclasses import replace

from kernelarc.bench import Device
from kernelarc.engine._run import artefacts_of, settings_of
from kernelarc.engine._targets import device_for
from kernelarc.genomes import Evaluation, InputError
from kernelarc.storage import open_reader, store_name


def rerun(
    store: str, fingerprint: str, *, campaign: int | None = None, device: Device | None = None
) -> list[Evaluation]:
    """Evaluate a genome once on each workload on which its campaign evaluated it.

    Args:
        store: Where it is remembered.
        fingerprint: Of the genome; a beginning that only it has is enough.
        campaign: Of which campaign; the newest that evaluated it by default.
        device: One's own device object, in place of the campaign's.

    Raises:
        InputError: There is no such store, campaign or genome, or several begin so.
        StoppedError: The device is in use by another process.
        MissingPartError: The device or toolchain is missing.
    """
    with open_reader(store) as reader:
        found = [
            (number, judged.evaluation.candidate)
            for number, judged in reader.find(fingerprint)
            if campaign in {None, number}
        ]
        if not found:
            raise InputError(
                f"campaign {campaign} of {store_name(store)} evaluated no genome {fingerprint!r}"
            )
        newest = max(number for number, _ in found)
        row = reader.campaign(newest)
    candidates = {c.workload: c for number, c in found if number == newest}
    settings = settings_of(row, store, None)
    opened = (device or device_for(settings)).open(
        row.spec.problem, seed=settings.seed, artefacts=artefacts_of(store)
    )
    with opened as session:
        session.submit(
            [replace(c, number=place) for place, c in enumerate(candidates.values())], limit={}
        )
        return sorted(session.collect(), key=lambda e: e.candidate.number)
