"""The contract of a device and of an open session on it. The engine knows nothing else of bench."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kernelarc.bench._baseline_choice import Tell, demand_offered
from kernelarc.genomes import (
    EAGER_BASELINE,
    Candidate,
    Contest,
    Environment,
    Evaluation,
    Genome,
    Problem,
    Proposal,
    Space,
    Workload,
)


class Device(ABC):
    """Something that candidates can be judged on.

    Attributes:
        name: As the user says it: ``"cpu"``, ``"replay"``, ``"cuda:0"``.
        deterministic: Whether the same genome always gives the same number (``replay``).
    """

    name: str
    deterministic: bool

    @abstractmethod
    def environment(self) -> Environment:
        """Return identity and observations. Opens no session and takes no lock.

        Raises:
            MissingPartError: The device or toolchain is missing.
        """

    @abstractmethod
    def open(self, problem: Problem, *, seed: int, artefacts: Path, margin: float = 0.0) -> Session:
        """Take the device's lock, start a fresh worker, prepare the problem.

        Args:
            problem: What will be evaluated.
            seed: Root of the streams that fill inputs.
            artefacts: Folder for build products, kept by content hash; made when needed.
            margin: A candidate slower than the limit by more than a multiple of this may be
                censored.

        Raises:
            MissingPartError: The device or toolchain is missing.
            InputError: The problem cannot run on this device; the message says why.
            StoppedError: Another process holds the device.
        """


class Session(ABC):
    """An open device with one problem. Holds the device's lock until closed.

    One thread uses a session. Nothing a candidate does raises here: crash, hang and wrong result
    are evaluations. What raises is the instrument itself failing (StoppedError) or bad usage.

    Attributes:
        device: The device's name.
        deterministic: As on the device.
        environment: Where it measures.
        problem: What it evaluates.
        window: How many candidates it likes to have in flight at once.
        lag: Rounds that proposing may run ahead of telling: 0 is a barrier after every round.
        sifts: Whether ``check`` refuses much of what the space allows: islands then draft many
            genomes, and choose among those that it takes.
        finalists: How many may meet in one contest of the best; below 2 none is held. For
            devices on which a contest costs little beside checking a candidate.
        patience: How often a contest that is near a decision is held again, each time with
            three times the rounds.
    """

    device: str
    deterministic: bool
    environment: Environment
    problem: Problem
    window: int
    lag: int
    sifts: bool = False
    finalists: int = 0
    patience: int = 1

    @abstractmethod
    def spaces(self, workload: Workload) -> Mapping[str, Space]:
        """Return the space of every route that can run the workload, by route name."""

    @abstractmethod
    def seeds(self, workload: Workload) -> tuple[Proposal, ...]:
        """Return genomes that the device knows to be worth trying first (library heuristics)."""

    @abstractmethod
    def check(self, workload: Workload, genomes: Sequence[Genome]) -> list[str | None]:
        """Say for each genome why it is illegal, or None. In bulk; launches nothing.

        This is the one legality function: it includes the space's own constraints.
        """

    @abstractmethod
    def submit(self, candidates: Sequence[Candidate], *, limit: Mapping[str, float]) -> None:
        """Queue candidates for evaluation.

        Args:
            candidates: Legal ones, any workloads of the problem.
            limit: Per workload fingerprint, the incumbent's objective: sets time limits, and
                what is clearly slower may be censored. An absent workload has no incumbent.
        """

    def withdraw(self) -> None:  # noqa: B027 - nothing waits on most devices
        """Give up what nobody has begun with: it comes back as ``INTERRUPTED``, untried."""

    @abstractmethod
    def collect(self) -> Iterator[Evaluation]:
        """Yield evaluations as they finish, in any order, until nothing is in flight."""

    @abstractmethod
    def contest(
        self, workload: Workload, genomes: Sequence[Genome], *, rounds: int, baseline: bool = False
    ) -> Contest:
        """Time contenders interleaved with fresh inputs, each checked for correctness again.

        Args:
            workload: On which workload.
            genomes: At least one; their fingerprints name the columns.
            rounds: How often each is timed.
            baseline: Whether the device's baseline takes part, as the last column,
                named ``"baseline:<name>"``.
        """

    @abstractmethod
    def baseline_name(self, workload: Workload) -> str | None:
        """Name what the user would run without us, or None where there is none (replay)."""

    def baselines_tried(self, workload: Workload) -> Mapping[str, Mapping[str, Any]]:
        """Return what came of each baseline on offer, by name, as JSON: ``us`` or ``failed``.

        With ``seconds`` it says what trying took; what a choice keeps out is ``left_out``. Empty
        where there is no choice, or none was made yet.
        """
        return {}

    def limit_baselines(self, choice: Sequence[str] | None) -> None:
        """Let only some of the baselines on offer be one. Comes before the first contest.

        Args:
            choice: Their names; None is all, ``("eager",)`` is eager mode, or what there is where
                there is no choice.

        Raises:
            InputError: A name is not on offer; says which are.
        """
        if choice is not None and tuple(choice) != (EAGER_BASELINE,):
            named = {w.label: self.baseline_name(w) for w in self.problem.workloads}
            demand_offered(
                choice, {label: () if name is None else (name,) for label, name in named.items()}
            )

    def baselines_left_out(self, workload: Workload) -> tuple[str, ...]:
        """Return the names that are on offer and that ``limit_baselines`` keeps out."""
        return ()

    def follow_baselines(self, tell: Tell) -> None:  # noqa: B027 - most devices have one
        """Tell of every baseline that is tried, in the thread that asks for the contest."""

    @abstractmethod
    def observe(self) -> Mapping[str, str]:
        """Return current observations: load, clocks, temperature, foreign processes."""

    def idle_s(self) -> float | None:
        """Return for how long since the last call the device had nothing to do, in seconds.

        None where the session does not know.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """End workers and compilers within a bounded time and release the lock. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
