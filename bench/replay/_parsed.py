"""What every format's reader hands over: one job, its routes, and what was counted on the way."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernelarc.bench.replay._answers import Answers
from kernelarc.genomes import (
    Axis,
    Constraint,
    ExpressionConstraint,
    Gene,
    InputError,
    Operator,
    Proposal,
    Workload,
    nearest,
)

_AXIS_NAMES = ("x", "y", "z")
_HIGHER_IS_BETTER = re.compile(r"flop|/s\b|/w\b|/j\b|^(fitness|score|reward|accuracy)$", re.I)


@dataclass(frozen=True, slots=True)
class RecordedRoute:
    """One route's space and rows.

    Attributes:
        legality: ``"constraints"`` where they say all about what is legal and every legal genome
            was recorded; ``"rows"`` where a genome is legal only if it has a row.
    """

    name: str
    genes: tuple[Gene, ...]
    constraints: tuple[Constraint, ...]
    answers: Answers
    legality: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """A recording's content.

    Attributes:
        kind: ``"kernel_tuner"``, ``"t4"`` or ``"kernelarc"``.
        objective: Name of the recorded number that is minimised.
        unit: Its unit.
        rows: Whole rows in the file.
        dropped: Rows among them that name no genome of the space.
        notes: What a person should know about how the file was read.
        seeds: What the recorded device knew to be worth trying first.
        checked: Genomes that the device was asked about; 0 where the file does not say.
        refused: Those of them that it refused.
    """

    kind: str
    operator: Operator
    workload: Workload
    identity: Mapping[str, str]
    objective: str
    unit: str
    routes: tuple[RecordedRoute, ...]
    rows: int
    dropped: int
    observations: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seeds: tuple[Proposal, ...] = ()
    checked: int = 0
    refused: int = 0


def job_of(kernel: str, problem_size: object) -> tuple[Operator, Workload]:
    """Return the operator and workload that a kernel's name and problem size describe.

    Positive integers become the axes x, y, z; anything else is kept as an option's text.
    """
    sizes = problem_size if isinstance(problem_size, list) else [problem_size]
    axes = {
        _AXIS_NAMES[i] if i < len(_AXIS_NAMES) else f"d{i}": size for i, size in enumerate(sizes)
    }
    numbers = {n: s for n, s in axes.items() if type(s) is int and s > 0}
    whole = len(numbers) == len(axes)
    operator = Operator(
        name=kernel,
        axes={name: Axis(name=name, kind="var") for name in numbers} if whole else {},
        inputs=(),
        outputs=(),
        op_type="recorded",
        description="A recorded kernel: its source and reference are not part of the recording.",
    )
    said = problem_size is not None and not whole
    return operator, Workload(
        operator=operator.fingerprint,
        axes=numbers if whole else {},
        options={"problem_size": str(problem_size)} if said else {},
    )


def lowered(objective: object) -> tuple[str, tuple[str, ...]]:
    """Return the name of the number to minimise and notes on how it was chosen."""
    notes: list[str] = []
    name = objective
    if isinstance(name, list) and name:
        if len(name) > 1:
            notes.append(f"of the objectives {', '.join(map(str, name))} the first is used")
        name = name[0]
    if not isinstance(name, str) or not name:
        name = "time"
    if _HIGHER_IS_BETTER.search(name):
        notes.append(f"the objective {name!r} is better when higher, so time is used instead")
        name = "time"
    return name, tuple(notes)


def expressions(path: Path, texts: object, names: Sequence[str]) -> tuple[Constraint, ...]:
    """Return the constraints that a file lists as text.

    Raises:
        InputError: Not a list of texts, or one does not parse or names an unknown gene.
    """
    listed = [texts] if isinstance(texts, str) else texts or []
    if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
        raise InputError(f"{path}: restrictions must be a list of expression texts")
    try:
        return tuple(ExpressionConstraint(text, names) for text in listed)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def check_names(path: Path, names: Sequence[object], domains: Mapping[str, object]) -> list[str]:
    """Return the gene names after checking that they are different texts with a domain each.

    Raises:
        InputError: None, not text, one twice, or one without a domain where others have one.
    """
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InputError(f"{path}: names no genes; 'tune_params' must list at least one")
    texts = [str(name) for name in names]
    twice = {name for name in texts if texts.count(name) > 1}
    if twice:
        raise InputError(f"{path}: names the gene {min(twice)!r} twice")
    missing = [name for name in texts if name not in domains]
    if domains and missing:
        hint = nearest(missing[0], domains)
        raise InputError(f"{path}: 'tune_params' has no domain for gene {missing[0]!r}{hint}")
    return texts
