"""Trials into Optuna's SQLite schema in bulk: its own way takes a tenth of a second for each.

Optuna itself makes the file and the studies. What is added here is read back through Optuna, so
that a version with another schema is an error and not a broken file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import MetaData, func, insert, select
from sqlalchemy.exc import SQLAlchemyError

from kernelarc.genomes import MissingPartError

if TYPE_CHECKING:
    import optuna

_TABLES = ("trials", "trial_values", "trial_params", "trial_user_attributes")


def add_in_bulk(
    storage: optuna.storages.RDBStorage, study: str, trials: Sequence[optuna.trial.FrozenTrial]
) -> None:
    """Add finished trials to an empty study, in order.

    Raises:
        MissingPartError: The installed Optuna keeps its studies in another schema.
    """
    try:
        identity = storage.get_study_id_from_name(study)
        _insert(storage, identity, trials)
        as_meant = _read_back(storage, identity, trials)
    except (KeyError, SQLAlchemyError):
        as_meant = False
    if not as_meant:
        import optuna  # noqa: PLC0415

        raise MissingPartError(
            f"optuna {optuna.__version__} keeps studies in a schema that this version does not "
            f"know; export to a name that ends in .log for Optuna's journal instead"
        )


def _insert(
    storage: optuna.storages.RDBStorage, study: int, trials: Sequence[optuna.trial.FrozenTrial]
) -> None:
    tables = MetaData()
    tables.reflect(storage.engine, only=_TABLES)
    with storage.engine.begin() as connection:
        identity = tables.tables["trials"].c.trial_id
        last = connection.execute(select(func.max(identity))).scalar() or 0
        for name, rows in _rows(study, last + 1, trials).items():
            if rows:
                connection.execute(insert(tables.tables[name]), rows)


def _rows(
    study: int, first: int, trials: Sequence[optuna.trial.FrozenTrial]
) -> Mapping[str, list[dict[str, Any]]]:
    from optuna.distributions import distribution_to_json  # noqa: PLC0415

    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in _TABLES}
    texts: dict[int, str] = {}
    for number, trial in enumerate(trials):
        key = {"trial_id": first + number}
        rows["trials"].append(
            {
                **key,
                "number": number,
                "study_id": study,
                "state": trial.state.name,
                "datetime_start": trial.datetime_start,
                "datetime_complete": trial.datetime_complete,
            }
        )
        if trial.values:
            found = {"objective": 0, "value": trial.values[0], "value_type": "FINITE"}
            rows["trial_values"].append({**key, **found})
        for name, value in trial.params.items():
            domain = trial.distributions[name]
            if id(domain) not in texts:
                texts[id(domain)] = distribution_to_json(domain)
            found = {"param_name": name, "param_value": domain.to_internal_repr(value)}
            rows["trial_params"].append({**key, **found, "distribution_json": texts[id(domain)]})
        for name, value in trial.user_attrs.items():
            said = {"key": name, "value_json": json.dumps(value)}
            rows["trial_user_attributes"].append({**key, **said})
    return rows


def _read_back(
    storage: optuna.storages.RDBStorage, study: int, trials: Sequence[optuna.trial.FrozenTrial]
) -> bool:
    """Compare what Optuna reads with what was meant: the last trial, the best with its genes.

    The storage is asked and not a study, which would read every trial to answer.
    """
    last = storage.get_trial_id_from_study_id_trial_number(study, len(trials) - 1)
    if storage.get_trial(last).user_attrs != trials[-1].user_attrs:
        return False
    best = min((t for t in trials if t.values), key=lambda trial: trial.values[0])
    found = storage.get_best_trial(study)
    return found.values == best.values and found.params == best.params
