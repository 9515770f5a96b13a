"""Format ``optuna``: one study per workload, as ``optuna.load_study`` and its dashboard open it.

A name that ends in ``.log``, ``.jsonl`` or ``.journal`` becomes Optuna's journal file, every
other one an SQLite database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelarc.genomes import Workload
from kernelarc.storage.exports._domains import FlatTable, flat_table
from kernelarc.storage.exports._optuna_database import add_in_bulk
from kernelarc.storage.exports._placing import FileWriter
from kernelarc.storage.exports._subject import GenomeRow, Subject

if TYPE_CHECKING:
    import optuna

_JOURNAL_SUFFIXES = frozenset({".log", ".jsonl", ".journal"})


def optuna_files(subject: Subject, path: Path) -> Mapping[Path, FileWriter]:
    """Write a study file with one finished trial for each genome."""

    def write(aside: Path) -> None:
        import optuna  # noqa: PLC0415  (slow to import, and only this format needs it)

        earlier = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            _fill(subject, aside)
        finally:
            optuna.logging.set_verbosity(earlier)

    return {path: write}


def _fill(subject: Subject, aside: Path) -> None:
    import optuna  # noqa: PLC0415

    names = study_names(subject)
    with _Storage(aside) as storage:
        for workload in subject.workloads:
            best = subject.best(workload)
            if best is None:
                continue
            name = names[workload.fingerprint]
            study = optuna.create_study(storage=storage, study_name=name, direction="minimize")
            for key, value in _described(subject, workload).items():
                study.set_user_attr(key, value)
            rows = subject.rows(workload)
            trials = _trials(subject, rows, flat_table([row.genome for row in rows]))
            if isinstance(storage, optuna.storages.RDBStorage):
                add_in_bulk(storage, name, list(trials))
            else:
                study.add_trials(trials)


class _Storage:
    """An Optuna storage on one file, let go of at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database: optuna.storages.RDBStorage | None = None

    def __enter__(self) -> optuna.storages.BaseStorage:
        import optuna  # noqa: PLC0415
        from optuna.storages.journal import JournalFileBackend  # noqa: PLC0415

        if self._path.suffix in _JOURNAL_SUFFIXES:
            return optuna.storages.JournalStorage(JournalFileBackend(str(self._path)))
        self._database = optuna.storages.RDBStorage(f"sqlite:///{self._path.resolve()}")
        return self._database

    def __exit__(self, *_: object) -> None:
        if self._database is not None:
            self._database.remove_session()
            self._database.engine.dispose()


def study_names(subject: Subject) -> dict[str, str]:
    """Return the study's name of each workload, by fingerprint: operator and label."""
    names: dict[str, str] = {}
    for workload in subject.workloads:
        name = f"{subject.operator.name} {workload.label}"
        if name in names.values():
            name = f"{name} {workload.fingerprint[:8]}"
        names[workload.fingerprint] = name
    return names


def _described(subject: Subject, workload: Workload) -> dict[str, Any]:
    best = subject.best(workload)
    assert best is not None
    timed = best.evaluation.measurement
    return {
        "operator": subject.operator.name,
        "workload": workload.label,
        "device": subject.device_label,
        "campaign": subject.campaign.id,
        "unit": None if timed is None else timed.unit,
        "best": best.evaluation.candidate.genome.fingerprint,
        "audited": best.audited,
    }


def _trials(
    subject: Subject, rows: list[GenomeRow], table: FlatTable
) -> Iterator[optuna.trial.FrozenTrial]:
    """Yield one finished trial per row, one after another in time by what each cost."""
    import optuna  # noqa: PLC0415

    distributions: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.CategoricalDistribution(table.domains[name])
        for name in table.names
    }
    at = datetime.fromtimestamp(subject.campaign.created_unix_s)  # Optuna's times are naive
    for row in rows:
        cells = table.active_cells(row.genome)
        worked = row.objective is not None
        trial = optuna.trial.create_trial(
            state=optuna.trial.TrialState.COMPLETE if worked else optuna.trial.TrialState.FAIL,
            value=row.objective,
            params=dict(cells),
            distributions={name: distributions[name] for name in cells},
            user_attrs=_attributes(row),
        )
        trial.datetime_start = at
        at += timedelta(seconds=row.evaluation.cost_s)
        trial.datetime_complete = at
        yield trial


def _attributes(row: GenomeRow) -> dict[str, Any]:
    evaluation = row.evaluation
    found: dict[str, Any] = {
        "fingerprint": row.genome.fingerprint,
        "candidate": evaluation.candidate.number,
        "island": evaluation.candidate.island,
        "mutation": evaluation.candidate.mutation,
        "verdict": row.verdict.value,
        "cost_s": evaluation.cost_s,
    }
    if row.objective is None:
        return {**found, "status": evaluation.status.value, "failure": evaluation.failure}
    if row.objective != row.measured:
        found["refused_claim_measured"] = row.measured
    return {**found, "best": row.best, "audited": row.audited}
