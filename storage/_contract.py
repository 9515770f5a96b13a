"""The store's contract: what every backend must do, and the records it holds beyond genomes'."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeAlias

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
    Verdict,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """What stands as the best of one workload: a query over the log, outside every population.

    It is the newest KEEP whose claim was not taken back: the newest audit of that genome
    on that workload decides, so where one was not upheld, the KEEP before it stands.
    Where no KEEP stands, it is the genome the search started from (the first OK evaluation),
    unless that was taken back too.

    Attributes:
        workload: Fingerprint.
        verdict: KEEP, or the verdict of the starting genome.
        speedup: Over the baseline, from the newest upheld audit against one; None while there
            is none.
        against: Name of that baseline, such as ``"baseline:numpy"``; None like ``speedup``.
        audited: Whether the newest audit upheld it.
    """

    workload: str
    evaluation: Evaluation
    verdict: Verdict
    speedup: Estimate | None
    against: str | None
    audited: bool

    @property
    def number(self) -> int:
        """The candidate's number in its campaign."""
        return self.evaluation.candidate.number


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """A campaign's counters, as the command line's JSON names them.

    Attributes:
        asked: Sum over the rounds' counts, like ``rejected`` and ``duplicate``.
        rejected: Of the rounds, plus candidates that were handed out and then REJECTED.
        unique: Distinct (genome, workload) pairs: ``failed`` + ``measured``. INTERRUPTED and
            REJECTED ones are not counted, nor those copied from an earlier campaign (mutation
            ``"known"``).
        failed: Pairs that never came out OK.
        measured: Pairs with at least one OK evaluation.
        confirmations: Contests with purpose ``"confirm"``.
        audits: Contests with purpose ``"audit"``.
    """

    asked: int = 0
    rejected: int = 0
    duplicate: int = 0
    unique: int = 0
    failed: int = 0
    measured: int = 0
    confirmations: int = 0
    audits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One island's part in a campaign. Shares are of all islands together, 0 where that is 0.

    Attributes:
        proposals: Candidates of this island that were handed out.
        evaluations: Those that have an outcome.
        keeps: Those judged KEEP.
    """

    island: str
    proposals: int
    evaluations: int
    keeps: int
    proposal_share: float
    keep_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What credit needs to know of an evaluation: no genome, no samples.

    Attributes:
        workload: Fingerprint.
        island: Who proposed it, or another source's name.
        mutation: How it came about.
        objective: None where it failed.
    """

    workload: str
    island: str
    mutation: str
    verdict: Verdict
    objective: float | None


class StoreReader(ABC):
    """Read-only view of a store. Never writes, not even a lock file or a WAL.

    Iterators hold no transaction open between two records, so one that is left half read
    keeps nobody waiting.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

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
        """Yield (position, entry) in the order of appending, positions growing from 1.

        It ends at the entry that was the last when the first one was asked for; go on from
        there with ``after``.
        """

    @abstractmethod
    def evaluations(
        self, campaign: int, *, workload: str | None = None, newest: int | None = None
    ) -> Iterator[Judged]:
        """Yield judged evaluations in ask order."""

    @abstractmethod
    def outcomes(self, campaign: int, *, most: int | None = None) -> Sequence[Outcome]:
        """Return the campaign's outcomes in the order of the verdicts, the first ``most``."""

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
        """Yield what was measured, or failed reproducibly, in this environment, by any campaign.

        One for each genome: an uncensored measurement before a censored one before a failure,
        the newest among equals. Compile errors, launch errors and wrong results count as
        reproducible; timeouts, rejections and interruptions do not.
        """

    @abstractmethod
    def priors(
        self,
        operator: str,
        workload: str,
        *,
        not_environment: str,
        n: int,
        before: int | None = None,
    ) -> Sequence[Known]:
        """Return the best OK evaluations of other environments or workloads, best first each.

        Numbers of different environments or workloads do not compare, so each such pair is
        ranked by itself and they take turns: every first one, then every second one, the same
        workload elsewhere before other workloads. Each genome once, censored ones never.

        Args:
            operator: Fingerprint of the operator.
            workload: Fingerprint of the workload that priors are wanted for.
            not_environment: Fingerprint of the environment that is not a prior on that workload.
            n: At most so many in all.
            before: Only what campaigns with a smaller number measured.
        """

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
    def bests(self, campaign: int) -> Sequence[Best]:
        """Return what stands as best of each workload, in the problem's order.

        A workload without one is left out.
        """

    @abstractmethod
    def counts(self, campaign: int) -> Counts:
        """Return the campaign's counters."""

    @abstractmethod
    def shares(self, campaign: int) -> Sequence[Share]:
        """Return each island's part, by name."""

    @abstractmethod
    def failures(self, campaign: int) -> Mapping[str, int]:
        """Return how many evaluations failed, by failure class, the most frequent first."""

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
    def claim(self, campaign: int) -> None:
        """Become the campaign's one writer before its log is read, so that nobody adds to it.

        Whoever begins a campaign or appends to it has claimed it already.

        Raises:
            InputError: Another process writes it (PostgreSQL; the message says which), or there
                is no such campaign.
        """

    @abstractmethod
    def append(
        self, campaign: int, entries: Sequence[Entry], *, allow_repeats: bool = False
    ) -> int:
        """Commit all entries in one transaction, in order; return the last position.

        When this returns, the entries are acknowledged: they survive a crash of every process.
        A round's and a candidate's number, and a candidate's evaluation, are keys: each is
        stored once. Contests, conclusions and events have no key.

        Args:
            campaign: Id of a campaign of this store.
            entries: A Judged's candidate must have been appended before, or earlier in these.
            allow_repeats: Skip entries whose key is there already with the same content.

        Raises:
            StoppedError: The disk is full, the file read-only or locked; nothing was written.
            InputError: A key exists already (with ``allow_repeats``: with other content), an
                evaluation has no candidate, a workload is not the campaign's, or a value cannot
                be stored; nothing was written.
        """

    @abstractmethod
    def environment(self, environment: Environment) -> None:
        """Record an environment (resume on another machine); the same one twice is one row.

        What this writer appends from now on was measured there. Until it is called, that is the
        environment the campaign was begun in.
        """
