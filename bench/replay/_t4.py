"""T4 results files: a list of results, each with its configuration, times and measurements."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelarc.bench.replay._answers import Answer, Answers
from kernelarc.bench.replay._domains import allele_of, gene_from_values
from kernelarc.bench.replay._kernel_tuner import ROUTE
from kernelarc.bench.replay._outcomes import failed, measured, seconds
from kernelarc.bench.replay._parsed import Parsed, RecordedRoute, job_of, lowered
from kernelarc.genomes import Allele, Gene, InputError

_COSTS = ("compilation", "compilation_time", "benchmark", "validation")
_TIME_UNITS = {"nanoseconds": "ns", "microseconds": "us", "milliseconds": "ms", "seconds": "s"}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


class T4Reader:
    """Takes a T4 file's members and results as they come and ends with its content."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._header: dict[str, Any] = {}
        self._results: list[Any] = []

    def member(self, name: str, value: Any) -> None:
        """Take a member beside the results."""
        self._header[name] = value

    def row(self, key: str | None, row: Any) -> None:
        """Take one result."""
        self._results.append(row)

    def finish(self, *, unclosed: bool) -> Parsed:
        """Return the content; a genome is legal where it has a result.

        Raises:
            InputError: No result has a configuration with genes.
        """
        metadata = self._header.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        unit = _TIME_UNITS.get(str(metadata.get("timeunit", "")).lower(), "ms")
        whole = [r for r in self._results if isinstance(r, dict) and _configuration(r)]
        objective, notes = lowered(whole[0].get("objectives") if whole else None)
        genes = self._genes(whole)
        answers, dropped = _answers(whole, genes, objective, unit)
        name = str(metadata.get("kernel_name") or self._path.name.split(".")[0] or "kernel")
        operator, workload = job_of(name, metadata.get("problem_size"))
        return Parsed(
            kind="t4",
            operator=operator,
            workload=workload,
            identity={"device": str(metadata.get("device_name") or "unknown")},
            objective=objective,
            unit=_unit(whole, objective, unit),
            routes=(RecordedRoute(ROUTE, genes, (), answers, "rows"),),
            rows=len(self._results),
            dropped=dropped + len(self._results) - len(whole),
            notes=notes,
        )

    def _genes(self, results: list[Any]) -> tuple[Gene, ...]:
        values: dict[str, list[object]] = {}
        for result in results:
            for name, value in _configuration(result).items():
                values.setdefault(name, []).append(value)
        if not values:
            raise InputError(f"{self._path}: names no genes: no result has a configuration")
        try:
            return tuple(gene_from_values(n, _distinct(seen)) for n, seen in values.items())
        except InputError as error:
            raise InputError(f"{self._path}: {error}") from error


def _answers(
    results: list[Any], genes: tuple[Gene, ...], objective: str, unit: str
) -> tuple[Answers, int]:
    names = [gene.name for gene in genes]
    answers, dropped = Answers(tuple(names)), 0
    for result in results:
        configuration = _configuration(result)
        if len(configuration) != len(names):
            dropped += 1
            continue
        alleles: dict[str, Allele] = {name: allele_of(configuration[name]) for name in names}
        answers.add(alleles, _answer(result, objective, unit))
    return answers, dropped


def _answer(result: Mapping[str, Any], objective: str, unit: str) -> Answer:
    times = result.get("times")
    times = times if isinstance(times, dict) else {}
    cost_s = seconds(times, _COSTS, _SECONDS[unit])
    invalidity = str(result.get("invalidity", "correct"))
    if invalidity != "correct":
        return failed(invalidity, cost_s)
    correctness = result.get("correctness", 1)
    if isinstance(correctness, int | float) and correctness <= 0:
        return failed("correctness", cost_s)
    found = _measurement(result, objective)
    samples = times.get("runtimes") if objective == "time" else None
    return measured(found.get("value"), cost_s, samples, name=objective)


def _measurement(result: Mapping[str, Any], objective: str) -> Mapping[str, Any]:
    listed = result.get("measurements")
    for found in listed if isinstance(listed, list) else ():
        if isinstance(found, dict) and found.get("name") == objective:
            return found
    return {}


def _unit(results: list[Any], objective: str, time_unit: str) -> str:
    for result in results:
        unit = _measurement(result, objective).get("unit")
        if isinstance(unit, str) and unit:
            return _TIME_UNITS.get(unit.lower(), unit)
    return time_unit if objective.startswith("time") else objective


def _configuration(result: Mapping[str, Any]) -> Mapping[str, Any]:
    found = result.get("configuration")
    return found if isinstance(found, dict) else {}


def _distinct(values: list[object]) -> list[object]:
    """Drop repeats quickly, before the slow and exact comparison of alleles."""
    return list({(type(v), str(v)): v for v in values}.values())
