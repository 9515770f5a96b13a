"""T1 input files: a search space without results, its domains written as Python text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelarc.bench.replay._domains import gene_from_values
from kernelarc.bench.replay._kernel_tuner import ROUTE
from kernelarc.bench.replay._literals import values_from_text
from kernelarc.bench.replay._parsed import check_names, expressions
from kernelarc.bench.replay._reading import read_text
from kernelarc.genomes import Gene, InputError, Space, assign_strategies


def load_input_space(path: Path | str) -> Space:
    """Read the space of a T1 input file. It holds no results, so it cannot be replayed.

    Raises:
        InputError: The file is missing, no T1 input, or a domain or condition is malformed.
    """
    path = Path(path)
    try:
        document = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: is not JSON: {error}") from error
    described = document.get("ConfigurationSpace") if isinstance(document, dict) else None
    if not isinstance(described, dict):
        raise InputError(f"{path}: is no T1 input: it has no 'ConfigurationSpace'")
    listed = [p for p in described.get("TuningParameters") or () if isinstance(p, dict)]
    names = check_names(path, [parameter.get("Name") for parameter in listed], {})
    try:
        genes = [_gene(parameter) for parameter in listed]
        texts = [_condition(entry) for entry in described.get("Conditions") or ()]
        constraints = expressions(path, texts, names)
        return assign_strategies(Space(ROUTE, genes, constraints))
    except InputError as error:
        shown = str(error)
        raise InputError(shown if str(path) in shown else f"{path}: {shown}") from error


def _gene(parameter: Mapping[str, Any]) -> Gene:
    name, text = str(parameter["Name"]), parameter.get("Values")
    values = values_from_text(text) if isinstance(text, str) else text
    if not isinstance(values, list):
        raise InputError(f"gene {name!r} lists no values")
    if parameter.get("Type") == "bool":
        values = [bool(value) for value in values]
    return gene_from_values(name, values)


def _condition(entry: object) -> object:
    return entry.get("Expression") if isinstance(entry, dict) else entry
