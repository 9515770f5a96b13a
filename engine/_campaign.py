"""A campaign in this process: search, audit, finish; started anew or from its log."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelarc.bench import Device, Session
from kernelarc.engine._arena import Arena
from kernelarc.engine._asking import Asker
from kernelarc.engine._auditing import Auditor
from kernelarc.engine._baselines import compared_otherwise, tried_by, tried_in
from kernelarc.engine._crash_points import crash_point
from kernelarc.engine._earlier_credit import earlier_credit
from kernelarc.engine._finals import Finals
from kernelarc.engine._firsts import firsts
from kernelarc.engine._identity import capability_of
from kernelarc.engine._journal import Journal
from kernelarc.engine._judging import Attributor, Judge, Rules
from kernelarc.engine._known import known_entries, reserve_known
from kernelarc.engine._observer import Observer
from kernelarc.engine._pipeline import Limits, Pipeline
from kernelarc.engine._pool import ConclusionPool
from kernelarc.engine._progress import progress_of
from kernelarc.engine._resource_lessons import bandits_of
from kernelarc.engine._seeds import Seed
from kernelarc.engine._settings import CampaignSettings
from kernelarc.engine._signals import StopRequest
from kernelarc.engine._spaces import campaign_spaces
from kernelarc.engine._state import CampaignState
from kernelarc.engine._targeting import TargetSpeedup
from kernelarc.genomes import Problem, Space, Strategy, Workload
from kernelarc.islands import Habitat, IslandSettings, build_islands
from kernelarc.storage import Event, StoreWriter

DEFAULT_MARGIN = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where a campaign happens: what stays the same over its sessions.

    Attributes:
        device: Opened once for searching and once for every audit.
        artefacts: Folder for build products.
        seeds: What the user wants tried first.
    """

    device: Device
    problem: Problem
    settings: CampaignSettings
    artefacts: Path
    seeds: tuple[Seed, ...] = ()

    @property
    def margin(self) -> float:
        """What a gain must exceed: the user's, or 0.2 %, or nothing on a deterministic device."""
        if self.settings.margin is not None:
            return self.settings.margin
        return 0.0 if self.device.deterministic else DEFAULT_MARGIN

    def open(self) -> Session:
        """Open a session on the device; the caller closes it.

        Raises:
            InputError: A baseline that was chosen is not on offer; or as for ``Device.open``.
        """
        session = self.device.open(
            self.problem,
            seed=self.settings.seed,
            artefacts=self.artefacts,
            margin=self.margin,
        )
        return limited(session, self.settings.baselines)


def limited(session: Session, baselines: Sequence[str] | None) -> Session:
    """Return a session that compares with a choice of baselines; it is closed where that fails."""
    try:
        session.limit_baselines(baselines)
    except BaseException:
        session.close()
        raise
    return session


def build_state(session: Session, settings: CampaignSettings) -> CampaignState:
    """Return the state of a campaign that has not begun: islands built, nothing known.

    Raises:
        InputError: Pins or strategies that do not fit.
        NothingValidError: There is no legal genome.
    """
    spaces = campaign_spaces(session, settings)
    arenas = {
        workload.fingerprint: Arena(
            workload,
            spaces[workload.fingerprint],
            build_islands(
                _habitat(spaces[workload.fingerprint], workload, settings, session),
                only=[Strategy(name) for name in settings.active_islands()],
                settings=IslandSettings(
                    models=settings.models,
                    studies=settings.optuna,
                    surrogate=settings.surrogate,
                    every_operator=len(settings.active_islands()) == 1,
                ),
            ),
            share_log=settings.share_log,
        )
        for workload in session.problem.workloads
    }
    return CampaignState(
        arenas=arenas,
        pool=ConclusionPool(settings.retention),
        migrate=settings.conclusions,
        lag=session.lag,
    )


def _habitat(
    spaces: Mapping[str, Space],
    workload: Workload,
    settings: CampaignSettings,
    session: Session,
) -> Habitat:
    return Habitat(
        spaces=spaces,
        workload=workload.fingerprint,
        axes=workload.axes,
        capability=capability_of(session.environment.identity),
        plateau=settings.plateau,
    )


class Campaign:
    """Runs one campaign row of a store to its next stop."""

    def __init__(
        self, ground: Ground, writer: StoreWriter, campaign: int, observer: Observer
    ) -> None:
        self._ground = ground
        self._writer = writer
        self._id = campaign
        self._observer = observer
        self._began = time.monotonic()
        self._before_s = 0.0

    def run(self, session: Session, state: CampaignState, stop: StopRequest) -> str:
        """Search, audit and finish; return the reason why it ended.

        Args:
            session: Open; closed by this call.
            state: Folded over what the log holds so far.
            stop: Asks for an orderly stop.
        """
        self._before_s = state.elapsed_s
        journal = Journal(self._writer, self._id, state, self._observer)
        try:
            reason = self._search(session, state, journal, stop)
            while reason == "audit":
                with self._ground.open() as again:
                    reason = self._search(again, state, journal, stop)
            journal.commit()
        finally:
            session.close()
        if reason == "signal":
            journal.event("interrupted", reason=reason, signal=stop.name, **self._spent())
            return reason
        return self._finish(state, journal, reason)

    def _spent(self) -> dict[str, float]:
        return {"process_seconds": round(time.monotonic() - self._began, 3)}

    def _elapsed_s(self) -> float:
        return self._before_s + time.monotonic() - self._began

    def _search(
        self, session: Session, state: CampaignState, journal: Journal, stop: StopRequest
    ) -> str:
        """Search in one session, which is closed before an audit opens its own."""
        session.follow_baselines(self._observer.on_baseline)
        pipeline = self._pipeline(session, state, journal, stop)
        session.idle_s()
        begun = time.monotonic()
        reason = pipeline.run()
        idle_s = session.idle_s()
        if idle_s is not None:
            seconds = round(time.monotonic() - begun, 3)
            journal.event("searched", seconds=seconds, idle_s=round(idle_s, 3))
        if reason not in {"signal", "audit"}:
            pipeline.close()
            for unit in self._attributor(session, state).units(final=True):
                journal.write(unit)
            journal.commit()
        if reason == "audit":
            session.close()
            self._audit(state, journal)
        return reason

    def _pipeline(
        self, session: Session, state: CampaignState, journal: Journal, stop: StopRequest
    ) -> Pipeline:
        settings = self._ground.settings
        spaces = {key: arena.spaces for key, arena in state.arenas.items()}
        asker = Asker(
            session,
            state,
            seed=settings.seed,
            learned=settings.controller,
            firsts=firsts(
                session,
                spaces,
                self._writer,
                self._ground.seeds,
                pins=settings.pins,
                campaign=self._id,
            ),
            bandits=bandits_of(state, session, self._writer, self._id)
            if settings.resources
            else None,
        )
        return Pipeline(
            session=session,
            state=state,
            journal=journal,
            asker=asker,
            judge=Judge(session, state, self._rules()),
            attributor=self._attributor(session, state),
            finals=Finals(
                session, state, margin=self._ground.margin, rounds=settings.confirm_rounds
            ),
            limits=Limits(
                budget=settings.budget,
                seconds=settings.seconds,
                audit_every=settings.audit_every,
                window=settings.window or session.window,
            ),
            stop=stop,
            on_round=lambda: self._observer.on_progress(self._progress(state, "search")),
            target_reached=TargetSpeedup(session, state, journal, settings.target_speedup),
            elapsed_s=self._elapsed_s,
        )

    def _rules(self) -> Rules:
        settings = self._ground.settings
        return Rules(
            margin=self._ground.margin,
            confirm_rounds=settings.confirm_rounds,
            traps=settings.traps,
        )

    def _attributor(self, session: Session, state: CampaignState) -> Attributor:
        return Attributor(session, state, self._rules())

    def _progress(self, state: CampaignState, stage: str) -> Any:
        elapsed = time.monotonic() - self._began
        return progress_of(state, self._ground.settings, elapsed_s=elapsed, stage=stage)

    def _audit(self, state: CampaignState, journal: Journal) -> None:
        crash_point("before-audit")
        self._observer.on_progress(self._progress(state, "audit"))
        settings, begun = self._ground.settings, time.monotonic()
        with self._ground.open() as fresh:
            opened = time.monotonic()
            fresh.follow_baselines(self._observer.on_baseline)
            workloads = [arena.workload for arena in state.arenas.values()]
            before = tried_in(self._writer.events(self._id))
            auditor = Auditor(
                fresh,
                state,
                top=settings.audit_top,
                rounds=settings.audit_rounds,
                again=compared_otherwise(fresh, workloads, before),
            )
            for unit in auditor.units():
                journal.write(unit)
                journal.commit()
            baselines = tried_by(fresh, workloads)
            ended = time.monotonic()
        spent_s = {
            "opening_s": opened - begun,
            **auditor.spent_s,
            "closing_s": time.monotonic() - ended,
        }
        spent_s = {name: round(seconds, 3) for name, seconds in spent_s.items()}
        told: dict[str, Any] = {"baselines": baselines} if baselines else {}
        journal.event("audited", unique=state.counts.unique, **spent_s, **told)
        crash_point("after-audit")

    def _finish(self, state: CampaignState, journal: Journal, reason: str) -> str:
        self._audit(state, journal)
        crash_point("before-finish")
        journal.event("finished", reason=reason, **self._spent())
        self._observer.on_progress(self._progress(state, "finished"))
        return reason


def fold(state: CampaignState, writer: StoreWriter, campaign: int) -> None:
    """Bring a new state to where the campaign's log ends. Conclusions come from the log."""
    reserve_known(state, writer, campaign)
    with _no_collection():
        for _, entry in writer.log(campaign):
            state.apply(entry)
            state.findings.clear()


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Read a log without looking for cycles: there are none, and a look takes in all that is read.

    What is not kept is freed at once all the same.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def begin(
    state: CampaignState,
    writer: StoreWriter,
    campaign: int,
    observer: Observer,
    facts: Mapping[str, Any],
    *,
    learned: bool,
) -> None:
    """Start a campaign: what the store already knows in this environment is not measured again.

    Args:
        state: Nothing known yet.
        writer: The store.
        campaign: Its row, without a log.
        observer: Is told of what is written.
        facts: What a person wants to see when a campaign starts.
        learned: Whether the controller begins with the credit of earlier campaigns.
    """
    reserve_known(state, writer, campaign)
    journal = Journal(writer, campaign, state, observer)
    if learned:
        facts = {**facts, "credit": earlier_credit(writer, campaign)}
    # One unit: a campaign that has started knows what was known before it.
    started = Event(kind="started", payload=facts, unix_s=time.time())
    journal.write([started, *known_entries(state, writer, campaign)])
    journal.commit()
