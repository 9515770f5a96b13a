"""Numbers, genomes and tables as a person reads them, and JSON as a program does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from kernelarc.genomes import Estimate, Measurement

_TIMES = ((1e6, "s"), (1e3, "ms"), (1.0, "us"))


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line."""
    click.echo(json.dumps(value, allow_nan=False))


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with a few significant digits, never in exponent form where readable."""
    if value is None:
        return "-"
    if value == 0 or 1e-3 <= abs(value) < 10**digits:
        return f"{value:.{digits}g}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.{digits}g}"


def quantity(value: float, unit: str) -> str:
    """Return what was measured: a time in the unit that suits it, anything else in its own."""
    latency_us = Measurement(samples=(), objective=value, unit=unit).latency_us
    if latency_us is None:
        return f"{number(value)} {unit}".rstrip()
    scale, name = next((s, n) for s, n in _TIMES if latency_us >= s or n == "us")
    return f"{number(latency_us / scale)} {name}"


def interval(estimate: Estimate | None) -> str:
    """Return a speed-up with its interval: ``1.32 x (1.30 to 1.34)``."""
    if estimate is None:
        return "-"
    if estimate.low == estimate.high:
        return f"{estimate.value:.3f} x (exact)"
    return f"{estimate.value:.3f} x ({estimate.low:.3f} to {estimate.high:.3f})"


def duration(seconds: float) -> str:
    """Return a duration: ``42 s``, ``3 min 5 s``, ``2 h 10 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def allele(value: object) -> str:
    """Return one allele: ``8``, ``true``, ``i>j>k``, ``off`` for a gene that is switched off."""
    if value is None:
        return "off"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ">".join(allele(item) for item in value)
    return str(value)


def genome(alleles: Mapping[str, Any]) -> str:
    """Return a genome on one line: ``tile_m=64 tile_n=128``."""
    return " ".join(f"{name}={allele(value)}" for name, value in alleles.items())


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an aligned table; a column whose cells are all numbers is set to the right.

    Plain text without wrapping: it reads the same on a terminal, in a pipe and in a log.
    """
    body = [list(map(str, row)) for row in rows]
    columns = list(zip(headings, *body, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [bool(body) and all(_numeric(cell) for cell in column[1:]) for column in columns]
    lines = [_line(row, widths, right) for row in [list(headings), *body]]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    placed = (
        cell.rjust(width) if to_right else cell.ljust(width)
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    )
    return "  ".join(placed).rstrip()


def _numeric(cell: str) -> bool:
    return bool(cell) and all(letter in "0123456789.,-+%e" for letter in cell)


def count(n: int, noun: str) -> str:
    """Return a number with its noun: ``1 win``, ``2 wins``."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
