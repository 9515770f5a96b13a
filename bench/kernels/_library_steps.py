"""The library's products within a plan: descriptors, algorithms and launches, made once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernelarc.bench.cuda._binding import Lt
from kernelarc.bench.cuda._library import Algorithm, Matmul, Side
from kernelarc.genomes import LT_ATTRIBUTES, Allele, MatmulJob, canonical_json, fingerprint_of
from kernelarc.genomes.kernels import LaunchPlan, LibraryProduct, Step

Launcher = Callable[[int, int, int, int, int, int], None]
"""Takes the addresses of left, right, what is added, result and workspace, and the stream."""


class NoSuchChoiceError(Exception):
    """The library has fewer choices for a product than a plan asks for; one line."""


@dataclass(slots=True)
class _Form:
    """One form of product: its descriptors, and the library's choices by workspace ceiling."""

    matmul: Matmul
    choices: dict[int, list[Algorithm]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadyProduct:
    """A product of a plan with its algorithm.

    Attributes:
        step: The plan's.
        algorithm: What the library runs.
        launch: Launches it.
    """

    step: LibraryProduct
    algorithm: Algorithm
    launch: Launcher

    @property
    def attributes(self) -> tuple[int, ...]:
        """The algorithm's attributes: with them it can be made again."""
        return tuple(self.algorithm.row[: len(LT_ATTRIBUTES)])


def content_of(plan: LaunchPlan, products: Sequence[ReadyProduct]) -> str:
    """Return a fingerprint of what a plan launches: the algorithms themselves, not their numbers.

    Several numbers, and ceilings of scratch memory, may mean one algorithm.
    """
    ready = iter(products)
    rooms = {each.workspace.name for each in plan.products if each.workspace is not None}
    steps: list[Step] = []
    ran: list[Allele] = []
    for step in plan.steps:
        if isinstance(step, LibraryProduct):
            ran.append(next(ready).attributes)
            steps.append(replace(step, heuristic=0, workspace=None, workspace_bytes=0))
        else:
            steps.append(step)
    scratch = tuple(each for each in plan.scratch if each.name not in rooms)
    told = replace(plan, steps=tuple(steps), scratch=scratch)
    return fingerprint_of(canonical_json({"plan": told.fingerprint, "library": ran}))


class LibrarySteps:
    """Makes a plan's products ready on one handle. What was asked once is kept.

    Args:
        lt: The binding.
        handle: The library's handle.
    """

    def __init__(self, lt: Lt, handle: int) -> None:
        self._lt, self._handle = lt, handle
        self._forms: dict[tuple[Any, ...], _Form] = {}

    def ready(self, step: LibraryProduct) -> ReadyProduct:
        """Return a product with the algorithm that its step chooses.

        Raises:
            NoSuchChoiceError: The library has no such choice.
        """
        form, ceiling = self._form(step), step.workspace_bytes
        if ceiling not in form.choices:
            rows = form.matmul.heuristics(ceiling)
            made = (form.matmul.algorithm(row) for row in rows)
            form.choices[ceiling] = [algorithm for algorithm in made if algorithm is not None]
        choices = form.choices[ceiling]
        if step.heuristic >= len(choices):
            raise NoSuchChoiceError(
                f"the library has {len(choices)} choices for {step.rows} x {step.columns} x "
                f"{step.depth} with {ceiling >> 20} MiB, none of number {step.heuristic}"
            )
        algorithm = choices[step.heuristic]
        return ReadyProduct(step, algorithm, form.matmul.launcher(algorithm, ceiling))

    def _form(self, step: LibraryProduct) -> _Form:
        added = step.added is not None
        across = step.left_across, step.right_across
        key = (step.rows, step.columns, step.depth, step.dtype, *across, added)
        if key not in self._forms:
            job = MatmulJob(
                m=step.rows,
                n=step.columns,
                k=step.depth,
                dtype=step.dtype,
                out_dtype=step.dtype,
                transpose_a=step.left_across,
                transpose_b=not step.right_across,
                residual=added,
            )
            self._forms[key] = _Form(Matmul(self._lt, self._handle, job, Side()))
        return self._forms[key]
