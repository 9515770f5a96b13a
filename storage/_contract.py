"""The store's contract: what every backend must do, and the records it holds beyond genomes'."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kernelarc.genomes import (
    Candidate,
    Conclusion,
    Contest,
    Environment,
    Estimate,
    Evaluation,
    Genome,
    Judged,
    Operator,
    Problem,
    Workload,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignSpec:
    """All that is needed to run a campaign again: problem, device, settings, seed.

    Attributes:
        target: As the user named it: an operator's name or a file.
        settings: Every setting by its TOML key, JSON values only.
    """

    target: str
    device: str
    seed: int
    problem: Problem
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignRow:
    """A campaign as the store knows it. ``id`` counts from 1 within the store."""

    id: int
    created_unix_s: float
    spec: CampaignSpec
    environment: Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A stream position: what one round asked. Committed together with its candidates.

    Attributes:
        number: From 0 without gaps.
        counts: Free-form counters by island, for example ``{"memory": {"asked": 4,
            "rejected": 1, "duplicate": 2}}``.
    """

    number: int
    counts: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContestRecord:
    """A confirmation, attribution, audit or verification: raw contest and what it decided.

    Attributes:
        purpose: ``"confirm"``, ``"attribute"``, ``"audit"`` or ``"verify"``.
        workload: Workload fingerprint.
        subject: Fingerprint of the genome whose claim was tried.
        speedup: Over what it was compared with; None when the contest failed.
        upheld: Whether the claim stands.
        against: Contender name it was compared with.
    """

    purpose: str
    workload: str
    subject: str
    against: str
    contest: Contest
    speedup: Estimate | None
    upheld: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to the campaign: started, resumed, extended, finished, ..."""

    kind: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    unix_s: float = 0.0


Entry: TypeAlias = "Round | Candidate | Judged | ContestRecord | Conclusion | Event"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the store already knows of a genome on a workload in one environment."""

    genome: Genome
    evaluation: Evaluation
    campaign: int


class StoreReader(ABC):
    """Read-only view of a store. Never writes, not even a lock file or a WAL."""

    @abstractmethod
    def campaigns(self) -> Sequence[CampaignRow]:
        """Return all campaigns, oldest first."""

    @abstractmethod
    def campaign(self, campaign: int | None = None) -> CampaignRow:
        """Return one campaign, the newest by default.

        Raises:
            InputError: There is no such campaign (the message lists those there are), or none.
        """

    @abstractmethod
    def log(self, campaign: int, *, after: int = 0) -> Iterator[tuple[int, Entry]]:
        """Yield (position, entry) in the order of appending, positions growing from 1."""

    @abstractmethod
    def evaluations(
        self, campaign: int, *, workload: str | None = None, newest: int | None = None
    ) -> Iterator[Judged]:
        """Yield judged evaluations in ask order."""

    @abstractmethod
    def conclusions(
        self, *, campaign: int | None = None, operator: str | None = None
    ) -> Sequence[tuple[int, Conclusion]]:
        """Return (campaign, conclusion) in order, retractions included as they are."""

    @abstractmethod
    def contests(self, campaign: int, *, purpose: str | None = None) -> Sequence[ContestRecord]:
        """Return confirmations, attributions, audits and verifications in order."""

    @abstractmethod
    def events(self, campaign: int) -> Sequence[Event]:
        """Return the campaign's events in order."""

    @abstractmethod
    def rounds(self, campaign: int) -> Sequence[Round]:
        """Return the campaign's rounds in order."""

    @abstractmethod
    def known(self, environment: str, workload: str) -> Iterator[Known]:
        """Yield what was measured, or failed reproducibly, in this environment, by any campaign."""

    @abstractmethod
    def priors(
        self, operator: str, workload: str, *, not_environment: str, n: int
    ) -> Sequence[Known]:
        """Return the best OK evaluations of other environments or workloads, best first each."""

    @abstractmethod
    def operators(self) -> Sequence[Operator]:
        """Return every operator in the store."""

    @abstractmethod
    def workloads(self, operator: str) -> Sequence[Workload]:
        """Return every workload of the operator in the store."""

    @abstractmethod
    def find(self, fingerprint: str) -> Sequence[tuple[int, Judged]]:
        """Return (campaign, evaluation) of the genomes whose fingerprint starts so.

        Raises:
            InputError: None matches, or several genomes do (the message names them).
        """

    @abstractmethod
    def size_bytes(self) -> int:
        """Return the store's size on disk, WAL included."""

    @abstractmethod
    def close(self) -> None:
        """Release files. Idempotent."""


class StoreWriter(StoreReader):
    """The one writer of a store (SQLite) or of a campaign (PostgreSQL)."""

    @abstractmethod
    def begin(self, spec: CampaignSpec, environment: Environment) -> int:
        """Add a campaign and its operator, workloads and environment; return its id."""

    @abstractmethod
    def append(self, campaign: int, entries: Sequence[Entry]) -> int:
        """Commit all entries in one transaction, in order; return the last position.

        When this returns, the entries are acknowledged: they survive a crash of every process.

        Raises:
            StoppedError: The disk is full, the file read-only or locked; nothing was written.
            InputError: A key exists already with other content; nothing was written.
        """

    @abstractmethod
    def environment(self, environment: Environment) -> None:
        """Record an environment (resume on another machine); the same one twice is one row."""
