"""Recording a measured space: many genomes of every workload, written as replayable files.

What is measured must let a replayed search find something: the device's own seeds, genomes spread
over the whole space, and steps around good ones, out of which the best regions are filled. The best
are measured again, so that the file's optimum is no lucky sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from kernelarc.bench import Device, Session, write_recording
from kernelarc.engine._run import make_ground
from kernelarc.engine._sampling import CHECK, MEASURE
from kernelarc.engine._settings import CampaignSettings
from kernelarc.engine._signals import StopRequest
from kernelarc.engine._spaces import campaign_spaces
from kernelarc.engine._streams import stream
from kernelarc.genomes import (
    Allele,
    Candidate,
    Evaluation,
    Genome,
    InputError,
    NothingValidError,
    Problem,
    Space,
    Status,
    Workload,
)
from kernelarc.storage import paths_for

_SPREAD_PART = 0.4  # of what is measured: spread over the space, before steps around good ones
_BATCH, _CHUNK, _WINDOWS = 320, 64, 8
_ELITES, _STEPS = 6.0, 12
_ELITE_PARENTS = 0.7
_DRY = 12  # batches without anything new after which the space counts as used up
_AGAIN, _TIMES = 64, 2
_SQLITE_MAGIC = b"SQLite format 3\0"
_DIGITS = 4  # of a microsecond: a tenth of a nanosecond

Telling = Callable[[str, int, int], None]
"""Told of a workload's label, genomes measured so far, genomes wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One file.

    Attributes:
        checked: Genomes that the device was asked about.
        legal: Those that it took.
        measured: Genomes with a time.
        failed: Genomes that were tried and failed.
        best: The lowest objective.
    """

    path: str
    workload: str
    checked: int
    legal: int
    measured: int
    failed: int
    best: float | None
    unit: str

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordResult:
    """What ``record`` wrote; ``interrupted`` where it was asked to stop before the end."""

    recordings: Sequence[Recorded]
    interrupted: bool

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        return {
            "schema": 1,
            "status": "interrupted" if self.interrupted else "finished",
            "recordings": [one.to_json() for one in self.recordings],
        }


def record(
    settings: CampaignSettings,
    path: Path,
    *,
    measure: int = MEASURE,
    check: int = CHECK,
    device: Device | None = None,
    problem: Problem | None = None,
    telling: Telling = lambda label, done, wanted: None,
    stop: StopRequest | None = None,
) -> RecordResult:
    """Measure a space through its device and write it, one file a workload.

    Args:
        settings: Target, device, axes, options, pins and seed; limits are not used.
        path: Where to; of several workloads each has its label before the suffix.
        measure: Genomes to measure of each workload.
        check: Genomes to ask the device about, of each workload, at least.
        device: One's own device object, in place of the named one.
        problem: One's own problem, in place of the one that the target names.
        telling: Is told how far it is.
        stop: Lets another thread ask for an orderly stop; what is measured is then written.

    Raises:
        InputError: Bad settings or target, or the place cannot be written.
        NothingValidError: There is no legal genome.
        MissingPartError: The device or toolchain is missing.
    """
    ground = make_ground(settings, device, problem)
    places = paths_for(path, ground.problem.workloads)
    for place in places.values():
        _demand_place(place, settings.target)
    done: list[Recorded] = []
    with (
        # A recording has no store beside which builds could lie.
        TemporaryDirectory(prefix="kernelarc-record-") as folder,
        stop or StopRequest() as request,
        replace(ground, artefacts=Path(folder)).open() as session,
    ):
        spaces = campaign_spaces(session, settings)
        for workload in session.problem.workloads:
            recorder = _Recorder(session, workload, spaces[workload.fingerprint], settings.seed)
            recorder.run(measure, check, telling, request)
            if recorder.known:
                done.append(recorder.write(places[workload.fingerprint]))
            if request.name is not None:
                break
    return RecordResult(recordings=done, interrupted=request.name is not None)


def _demand_place(path: Path, target: str) -> None:
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}")
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is no regular file, so no recording can be written there")
    if path.exists() and Path(target).exists() and path.samefile(target):
        raise InputError(f"{path}: is the target itself, so it is not replaced")
    if path.exists() and _is_database(path):
        raise InputError(f"{path}: is a database, so it is not replaced")


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC


class _Recorder:
    """Records one workload.

    Attributes:
        known: Evaluations by genome fingerprint.
    """

    def __init__(
        self, session: Session, workload: Workload, spaces: Mapping[str, Space], seed: int
    ) -> None:
        self._session, self._workload, self._spaces = session, workload, spaces
        self._rng = stream(seed, "record", workload.fingerprint)
        self._drawers = [_Drawer(space) for space in spaces.values()]
        self.known: dict[str, Evaluation] = {}
        self._refused: dict[str, Genome] = {}
        self._unmeasured: set[str] = set()
        self._steps_from: dict[str, list[Genome]] = {}
        self._seeds = tuple(
            seed
            for seed in session.seeds(workload)
            if seed.genome.route in spaces and spaces[seed.genome.route].contains(seed.genome)
        )

    @property
    def _chunk(self) -> int:
        """How many are handed out at once: enough that a device with many compilers keeps busy."""
        return max(_CHUNK, _WINDOWS * self._session.window)

    @property
    def _checked(self) -> int:
        return len(self.known) + len(self._refused) + len(self._unmeasured)

    def run(self, measure: int, check: int, telling: Telling, request: StopRequest) -> None:
        """Measure until there is enough, nothing new is found, or a stop is asked for."""
        spread = int(measure * _SPREAD_PART)
        self._measure([seed.genome for seed in self._seeds], request)
        stages = ((self._spread, spread), (self._steps, measure), (self._spread, measure))
        told = -1
        for draw, wanted in stages:
            dry = 0
            while len(self.known) < wanted and dry < _DRY and request.name is None:
                before = len(self.known)
                if before != told:
                    telling(self._workload.label, before, measure)
                told = before
                legal = self._legal(draw())
                chosen = self._rng.permutation(len(legal))[: min(wanted - before, self._chunk)]
                self._measure([legal[int(i)] for i in chosen], request)
                dry = dry + 1 if len(self.known) == before else 0
        self._again(request)
        dry = 0
        while self._checked < check and dry < _DRY and request.name is None:
            before = self._checked
            self._legal(self._spread())
            dry = dry + 1 if self._checked == before else 0

    # What is tried

    def _spread(self) -> list[Genome]:
        """Draw over the whole space: evenly, and so that every allele has its turn."""
        drawers = [self._drawers[i % len(self._drawers)] for i in range(_BATCH)]
        return [drawer.draw(self._rng) for drawer in drawers]

    def _steps(self) -> list[Genome]:
        """Draw steps around good genomes and some around any, and mixtures of two."""
        ranked = [e.candidate.genome for e in self._ranked()]
        if not ranked:
            return self._spread()
        drawn: list[Genome] = []
        while len(drawn) < _BATCH:
            parent, mate = self._parent(ranked), self._parent(ranked)
            near = self._near(parent)
            if not near:
                return [*drawn, *self._spread()]
            drawn += [near[int(i)] for i in self._rng.permutation(len(near))[:_STEPS]]
            if parent.route == mate.route:
                drawn += [g for _ in range(_STEPS) if (g := self._mixed(parent, mate)) is not None]
        return drawn

    def _parent(self, ranked: Sequence[Genome]) -> Genome:
        if self._rng.random() < _ELITE_PARENTS:
            place = int(self._rng.exponential(_ELITES))
        else:
            place = int(self._rng.integers(len(ranked)))
        return ranked[min(place, len(ranked) - 1)]

    def _near(self, genome: Genome) -> list[Genome]:
        """Return all steps from a genome, found once."""
        key = genome.fingerprint
        if key not in self._steps_from:
            self._steps_from[key] = self._spaces[genome.route].neighbours(genome)
        return self._steps_from[key]

    def _mixed(self, left: Genome, right: Genome) -> Genome | None:
        """Return alleles of two genomes mixed: coupled genes move together."""
        space = self._spaces[left.route]
        alleles = {
            name: (left if self._rng.random() < 0.5 else right)[name]
            for name in space.names
            if name in left and name in right
        }
        return None if space.violation(alleles) else space.genome(alleles)

    def _ranked(self) -> list[Evaluation]:
        timed = [e for e in self.known.values() if e.measurement is not None]
        return sorted(timed, key=lambda e: e.measurement.objective if e.measurement else 0.0)

    def _legal(self, genomes: Sequence[Genome]) -> list[Genome]:
        """Ask the device about new genomes; return those that it takes."""
        new = [
            genome
            for key, genome in {g.fingerprint: g for g in genomes}.items()
            if key not in self.known and key not in self._refused
        ]
        if not new:
            return []
        faults = self._session.check(self._workload, new)
        legal = [g for g, fault in zip(new, faults, strict=True) if fault is None]
        taken = {g.fingerprint for g in legal}
        self._unmeasured |= taken
        self._refused |= {g.fingerprint: g for g in new if g.fingerprint not in taken}
        return legal

    # Measuring

    def _measure(self, genomes: Sequence[Genome], request: StopRequest) -> None:
        for evaluation in self._evaluated(genomes, request):
            if evaluation.status not in (Status.REJECTED, Status.INTERRUPTED):
                key = evaluation.candidate.genome.fingerprint
                self.known[key] = _rounded(evaluation)
                self._unmeasured.discard(key)

    def _evaluated(self, genomes: Sequence[Genome], request: StopRequest) -> Iterator[Evaluation]:
        """Evaluate without a limit: nothing is stopped early, every time is a whole one."""
        chunk = self._chunk
        for first in range(0, len(genomes), chunk):
            if request.name is not None:
                return
            candidates = [
                Candidate(
                    number=first + place,
                    round=0,
                    workload=self._workload.fingerprint,
                    island="record",
                    mutation="record",
                    genome=genome,
                )
                for place, genome in enumerate(genomes[first : first + chunk])
            ]
            self._session.submit(candidates, limit={})
            yield from self._session.collect()

    def _again(self, request: StopRequest) -> None:
        """Measure the best again and join the samples."""
        if self._session.deterministic:
            return
        for _ in range(_TIMES):
            best = [e.candidate.genome for e in self._ranked()[:_AGAIN]]
            for evaluation in self._evaluated(best, request):
                key = evaluation.candidate.genome.fingerprint
                self.known[key] = _joined(self.known[key], _rounded(evaluation))

    def write(self, path: Path) -> Recorded:
        """Write the file."""
        evaluations = list(self.known.values())
        write_recording(
            path,
            operator=self._session.problem.operator,
            workload=self._workload,
            spaces=self._spaces,
            environment=self._session.environment,
            evaluations=evaluations,
            seeds=[seed for seed in self._seeds if seed.genome.fingerprint in self.known],
            checked=self._checked,
            refused=self._refused.values(),
        )
        ranked = self._ranked()
        timed = ranked[0].measurement if ranked else None
        return Recorded(
            path=str(path),
            workload=self._workload.label,
            checked=self._checked,
            legal=self._checked - len(self._refused),
            measured=len(ranked),
            failed=len(evaluations) - len(ranked),
            best=None if timed is None else timed.objective,
            unit="" if timed is None else timed.unit,
        )


class _Drawer:
    """Draws genomes of one space: every second one with one allele held."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._parts: dict[tuple[str, int], Space | None] = {}

    def draw(self, rng: np.random.Generator) -> Genome:
        """Draw one genome."""
        part = self._part(rng) if rng.random() < 0.5 else None
        return (part or self._space).sample(rng)

    def _part(self, rng: np.random.Generator) -> Space | None:
        gene = self._space.genes[int(rng.integers(len(self._space.genes)))]
        place = int(rng.integers(min(gene.cardinality, 256)))
        key = gene.name, place
        if key not in self._parts:
            self._parts[key] = self._held(gene.name, gene.at(place))
        return self._parts[key]

    def _held(self, gene: str, allele: Allele) -> Space | None:
        part = self._space.pin({gene: allele})
        try:
            part.sample(np.random.default_rng(0))
        except NothingValidError:
            return None
        return part


def _rounded(evaluation: Evaluation) -> Evaluation:
    timed = evaluation.measurement
    if timed is None or timed.cache == "recorded":
        return evaluation
    samples = tuple(round(sample, _DIGITS) for sample in timed.samples)
    held = replace(timed, samples=samples, objective=round(timed.objective, _DIGITS))
    return replace(evaluation, measurement=held, cost_s=round(evaluation.cost_s, 6))


def _joined(first: Evaluation, second: Evaluation) -> Evaluation:
    """Join the samples of two evaluations; a failure in either is what counts."""
    if first.measurement is None or second.measurement is None:
        return first if first.measurement is None else second
    samples = (*first.measurement.samples, *second.measurement.samples)
    objective = round(median(samples), _DIGITS)
    return replace(
        first, measurement=replace(first.measurement, samples=samples, objective=objective)
    )
