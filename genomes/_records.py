"""The records that every folder passes on. All frozen; units stand in the names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kernelarc.genomes._alleles import Allele, canonical_json, fingerprint_of
from kernelarc.genomes._genome import Genome


class Status(StrEnum):
    """Outcome of an evaluation. The status decides which parts of the record exist."""

    OK = "OK"
    COMPILE_ERROR = "COMPILE_ERROR"
    LAUNCH_ERROR = "LAUNCH_ERROR"
    WRONG_RESULT = "WRONG_RESULT"
    TIMEOUT = "TIMEOUT"
    REJECTED = "REJECTED"
    INTERRUPTED = "INTERRUPTED"


class Verdict(StrEnum):
    """What the guardrails decided about a candidate, from worst to best."""

    REJECT = "REJECT"
    FAIL = "FAIL"
    REVERT = "REVERT"
    ACCEPT = "ACCEPT"
    KEEP = "KEEP"


class ConclusionKind(StrEnum):
    """What a conclusion states."""

    WIN = "win"
    TRAP = "trap"
    RETRACTION = "retraction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where a measurement was made.

    Attributes:
        identity: What makes measurements comparable: device model, driver, compiler and library
            versions, source hash. Its fingerprint is part of every evaluation's key.
        observations: What was seen but does not separate results: clocks, temperature, paths, host.
    """

    identity: Mapping[str, str]
    observations: Mapping[str, str] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Content fingerprint of the identity alone."""
        return fingerprint_of(canonical_json(dict(self.identity)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A genome that an island would like evaluated, and how it came about.

    Attributes:
        genome: A legal genome of one of the campaign's routes.
        mutation: Stable name of the mutation operator that made it, ``"sample"`` for a fresh one.
        parents: Fingerprints of the genomes it was made from; the first is the direct parent.
    """

    genome: Genome
    mutation: str
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One genome on one workload, handed out for evaluation.

    Attributes:
        number: Position in the campaign's ask order, from 0; results are told in this order.
        round: The round that asked it.
        workload: Fingerprint of the workload.
        island: Name of the island that proposed it (``"user"``, ``"prior"``, ``"engine"`` for
            genomes that no island proposed).
    """

    number: int
    round: int
    workload: str
    island: str
    mutation: str
    genome: Genome
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Raw timed samples of one candidate, in the device's own unit. Lower is better.

    Attributes:
        samples: One number per timed span, already divided by the launches in it.
        objective: The median of the samples, or the recorded objective.
        unit: ``"us"`` for latencies; what the recording says otherwise.
        censored: True when stopped early because clearly slower than the incumbent: the
            objective is then a lower bound.
        cache: ``"cold"`` or ``"warm"`` inputs, ``"recorded"`` for a replay.
        launches: Kernel launches in one span.
    """

    samples: tuple[float, ...]
    objective: float
    unit: str = "us"
    censored: bool = False
    cache: str = "cold"
    launches: int = 1

    @property
    def latency_us(self) -> float | None:
        """The objective in microseconds, or None when it is not a time."""
        scale = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}.get(self.unit)
        return None if scale is None else self.objective * scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A statistic with its interval. ``low <= value <= high``.

    For a speed-up the value is a ratio: 1.10 means ten per cent faster.
    """

    value: float
    low: float
    high: float
    n: int
    confidence: float = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The outcome of one candidate.

    ``measurement`` exists exactly when the status is OK; ``failure`` (a stable class, such as
    ``"compiler crashed"``) and ``message`` (one line, free text) exist exactly when it is not.

    Attributes:
        cost_s: What it cost: compile and device seconds; from the recording on ``replay``.
        properties: What else was observed: maximum error, bit-for-bit repeatability, binary hash.
    """

    candidate: Candidate
    status: Status
    measurement: Measurement | None = None
    failure: str | None = None
    message: str = ""
    cost_s: float = 0.0
    properties: Mapping[str, Allele] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.status is Status.OK) != (self.measurement is not None):
            raise ValueError("an evaluation has a measurement exactly when its status is OK")
        if (self.status is Status.OK) != (self.failure is None):
            raise ValueError("an evaluation names a failure exactly when its status is not OK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """An evaluation with its verdict: what an island is told."""

    evaluation: Evaluation
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Several contenders timed interleaved: A B C A B C ... with fresh inputs.

    Attributes:
        names: Contender names in column order: genome fingerprints, or ``"baseline:<name>"``.
        samples: One tuple per round, one number per contender, shape (rounds, contenders).
        failures: Failure class by contender name, for those that could not be timed. Their
            columns hold NaN. So do those of a slow baseline in rounds that went on without it.
        unit: As in Measurement.
    """

    names: tuple[str, ...]
    samples: tuple[tuple[float, ...], ...]
    failures: Mapping[str, str] = field(default_factory=dict)
    unit: str = "us"

    def column(self, name: str) -> tuple[float, ...]:
        """Return one contender's samples in round order."""
        place = self.names.index(name)
        return tuple(row[place] for row in self.samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneChange:
    """One gene's allele before and after. None stands for a gene that was switched off."""

    gene: str
    before: Allele | None
    after: Allele | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What an island learned, in the only form that other islands act on.

    Attributes:
        kind: win, trap or retraction.
        workload: Fingerprint of the exact workload it was seen on.
        changes: For a win, the smallest gene change against the parent that keeps the gain.
        genome: For a win, the genome that has the gain; for an exact trap, the trapped genome.
        region: For a region trap, the alleles that together fail.
        failure: For a trap, the failure class.
        speedup: For a win, the gain over the parent, with its interval.
        evidence: Candidate numbers of this campaign that support it.
        retracts: For a retraction, the fingerprint of what it takes back.
        predicate: Shape predicate in words of axes, once another workload confirmed it.
        why: One short sentence for a person.
    """

    kind: ConclusionKind
    operator: str
    workload: str
    route: str
    island: str
    why: str
    changes: tuple[GeneChange, ...] = ()
    genome: Genome | None = None
    region: Mapping[str, Allele] = field(default_factory=dict)
    failure: str | None = None
    speedup: Estimate | None = None
    evidence: tuple[int, ...] = ()
    retracts: str | None = None
    predicate: str | None = None

    @property
    def fingerprint(self) -> str:
        """Content fingerprint: what is claimed, without evidence, wording or who said it."""
        claim: dict[str, object] = {
            "kind": self.kind.value,
            "operator": self.operator,
            "workload": self.workload,
            "route": self.route,
            "changes": [[c.gene, c.before, c.after] for c in self.changes],
            "genome": self.genome.fingerprint if self.genome is not None else None,
            "region": dict(self.region),
            "failure": self.failure,
            "retracts": self.retracts,
        }
        if self.kind is ConclusionKind.RETRACTION:
            claim["evidence"] = list(self.evidence)
        return fingerprint_of(canonical_json(claim))
