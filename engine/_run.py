"""Running and resuming a campaign: the public calls behind ``kernelarc run`` and ``resume``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import time
from typing import Any, Literal

from kernelarc.bench import Device, Session
from kernelarc.engine._baselines import chosen_in
from kernelarc.engine._campaign import Campaign, Ground, begin, build_state, fold
from kernelarc.engine._crash_points import crash_point
from kernelarc.engine._extending import demand_room, limits_elsewhere, spent_s
from kernelarc.engine._firsts import firsts
from kernelarc.engine._identity import changed_parts
from kernelarc.engine._journal import Journal
from kernelarc.engine._observer import Observer
from kernelarc.engine._results import CampaignResult, nothing_to_search, result_of
from kernelarc.engine._seeds import Seed, read_seed, stored_seeds
from kernelarc.engine._settings import CampaignSettings, check_extension, read_baselines
from kernelarc.engine._signals import StopRequest
from kernelarc.engine._state import CampaignState
from kernelarc.engine._targets import Target, device_for, resolve_target
from kernelarc.genomes import ALL_BASELINES, NothingValidError, Problem, StoppedError
from kernelarc.storage import (
    CampaignRow,
    CampaignSpec,
    Event,
    StoreWriter,
    open_reader,
    open_writer,
    store_name,
)


def artefacts_of(store: str) -> Path:
    """Return the folder for build products: beside a file, for a server's store in this folder."""
    file = store.removeprefix("sqlite:///")
    return Path("kernelarc-artefacts" if "://" in file else f"{file}-artefacts")


def run(
    settings: CampaignSettings,
    *,
    observer: Observer | None = None,
    device: Device | None = None,
    problem: Problem | None = None,
    stop: StopRequest | None = None,
) -> CampaignResult:
    """Run a new campaign in the settings' store, to its end or to an interruption.

    A space without a legal genome gives a result without a best; nothing is written then.

    Args:
        settings: What to search, and how.
        observer: Is told of every verdict, conclusion and event once committed.
        device: One's own device object (for routes of one's own), in place of the named one.
        problem: One's own problem, in place of the one that the target names.
        stop: Lets another thread ask for an orderly stop; signals ask by themselves.

    Raises:
        InputError: Bad settings, target or store; nothing was written.
        MissingPartError: The device or toolchain is missing; nothing was written.
        StoppedError: The store or the device is in use by another process.
    """
    try:
        return _run(settings, observer or Observer(), (device, problem), stop or StopRequest())
    except NothingValidError as error:
        return nothing_to_search(str(error), store=settings.store)


def _run(
    settings: CampaignSettings,
    observer: Observer,
    own: tuple[Device | None, Problem | None],
    stop: StopRequest,
) -> CampaignResult:
    with stop as request:
        ground = make_ground(settings, *own)
        with ground.open() as session:
            state = build_state(session, settings)
            _check_seeds(session, state, ground)
            # The log of a deterministic campaign can be made again: a loss of power may cost it
            # its newest rows. Measurements cannot.
            synchronous: Literal["NORMAL", "FULL"] = "NORMAL" if session.deterministic else "FULL"
            with open_writer(settings.store, create=True, synchronous=synchronous) as writer:
                running = _Running(ground, writer, observer, request)
                return running.anew(session, state, {})


def resume(
    store: str,
    campaign: int | None = None,
    *,
    budget: int | None = None,
    seconds: float | None = None,
    baselines: str | Sequence[str] | None = None,
    observer: Observer | None = None,
    device: Device | None = None,
    stop: StopRequest | None = None,
) -> CampaignResult:
    """Go on with a campaign where its log ends. A finished one gives its result again.

    One that is to be compared with other baselines than before audits its bests again.

    Args:
        store: Where it is kept.
        campaign: Its id; the newest by default.
        budget: Unique evaluations to add.
        seconds: Wall seconds to add.
        baselines: What bests are compared with from now on (``"all"``, ``"eager"`` or names); None
            is what they were compared with before.
        observer: As in ``run``.
        device: As in ``run``.
        stop: As in ``run``.

    Raises:
        InputError: There is no such store or campaign; or what is added does not let it go on,
            because its other limit is used up. Nothing was written.
        StoppedError: The store or the device is in use by another process.
        MissingPartError: The device or toolchain is missing.
    """
    check_extension(budget, seconds)
    # What is refused, or finished, is only read: that works on read-only media too.
    with open_reader(store) as reader:
        row = reader.campaign(campaign)
        demand_room(reader, row, budget=budget, seconds=seconds)
        events = reader.events(row.id)
        before = read_baselines(chosen_in(events, row.spec.settings))
        wanted = before if baselines is None else read_baselines(baselines)
        if budget is None and seconds is None and wanted == before and _is_finished(events):
            return result_of(reader, row.id, store=store)
    with stop or StopRequest() as request, open_writer(store) as writer:
        row = writer.campaign(campaign)
        writer.claim(row.id)
        spent = spent_s(writer, row.id)
        settings = settings_of(row, store, seconds, spent_s=spent, baselines=wanted)
        target = Target(device or device_for(settings), row.spec.problem)
        ground = _ground(target, settings, stored_seeds(row.spec.settings))
        running = _Running(ground, writer, observer or Observer(), request)
        with ground.open() as session:
            if session.environment.fingerprint != row.environment.fingerprint:
                return running.elsewhere(session, row, budget)
            return running.again(session, row, budget, chosen=baselines is not None)


@dataclass(frozen=True, slots=True)
class _Running:
    """One call of ``run`` or ``resume``."""

    ground: Ground
    writer: StoreWriter
    observer: Observer
    request: StopRequest

    def anew(
        self, session: Session, state: CampaignState, origin: Mapping[str, Any]
    ) -> CampaignResult:
        """Begin a campaign and drive it. ``origin`` says what it continues, if anything."""
        campaign = self.writer.begin(_spec(self.ground), session.environment)
        crash_point("campaign-begun")
        facts = {**_facts(self.ground, state, session), **origin}
        self._begin(state, campaign, facts)
        return self._drive(campaign, session, state)

    def _begin(self, state: CampaignState, campaign: int, facts: Mapping[str, Any]) -> None:
        learned = self.ground.settings.controller
        begin(state, self.writer, campaign, self.observer, facts, learned=learned)

    def again(
        self, session: Session, row: CampaignRow, budget: int | None, *, chosen: bool
    ) -> CampaignResult:
        """Go on with a campaign where its log ends; its baselines may have been chosen anew."""
        state = build_state(session, self.ground.settings)
        if not self.writer.events(row.id):
            # It died between its row and its first entry.
            facts = _facts(self.ground, state, session)
            self._begin(state, row.id, facts)
        else:
            fold(state, self.writer, row.id)
        payload: dict[str, Any] = {"unique": state.counts.unique}
        if chosen:
            payload["baselines"] = list(self.ground.settings.baselines or (ALL_BASELINES,))
        events = [Event(kind="resumed", payload=payload, unix_s=time())]
        if budget is not None:
            events.append(Event(kind="extended", payload={"budget": budget}, unix_s=time()))
        journal = Journal(self.writer, row.id, state, self.observer)
        journal.write(events)
        journal.commit()
        return self._drive(row.id, session, state)

    def elsewhere(self, session: Session, row: CampaignRow, budget: int | None) -> CampaignResult:
        """Continue as a new campaign: what another environment measured is only a prior."""
        settings = limits_elsewhere(self.writer, row, self.ground.settings, budget)
        changed = changed_parts(row.environment.identity, session.environment.identity)
        there = replace(self, ground=replace(self.ground, settings=settings))
        state = build_state(session, settings)
        return there.anew(session, state, {"continues": row.id, "changed": changed})

    def _drive(self, campaign: int, session: Session, state: CampaignState) -> CampaignResult:
        store = self.ground.settings.store
        facts = _facts(self.ground, state, session)
        self.observer.on_start({"campaign_id": campaign, "store": store_name(store), **facts})
        try:
            driven = Campaign(self.ground, self.writer, campaign, self.observer)
            driven.run(session, state, self.request)
        except StoppedError as error:
            return self._stopped(campaign, error)
        return result_of(self.writer, campaign, store=store)

    def _stopped(self, campaign: int, error: StoppedError) -> CampaignResult:
        """Say why the campaign stopped; where even that cannot be written, say it all the same."""
        reason = f"fault: {error}"
        store = self.ground.settings.store
        event = Event(kind="stopped", payload={"reason": reason}, unix_s=time())
        try:
            self.writer.append(campaign, [event])
        except StoppedError:
            # The store itself is the fault (disk full): what was acknowledged is there.
            found = result_of(self.writer, campaign, store=store)
            return replace(found, status="stopped", reason=reason)
        return result_of(self.writer, campaign, store=store)


def make_ground(
    settings: CampaignSettings, device: Device | None = None, problem: Problem | None = None
) -> Ground:
    """Return where a campaign with these settings happens; opens nothing.

    Raises:
        InputError: A seed genome that cannot be read; or as for ``resolve_target``.
        MissingPartError: As for ``resolve_target``.
    """
    seeds = tuple(read_seed(path) for path in settings.seed_genomes)
    if device is None or problem is None:
        found = resolve_target(settings)
        device, problem = device or found.device, problem or found.problem
    return _ground(Target(device, problem), settings, seeds)


def _ground(target: Target, settings: CampaignSettings, seeds: tuple[Seed, ...]) -> Ground:
    return Ground(
        device=target.device,
        problem=target.problem,
        settings=settings,
        artefacts=artefacts_of(settings.store),
        seeds=seeds,
    )


def _spec(ground: Ground) -> CampaignSpec:
    settings = ground.settings
    # A file is remembered by its absolute path: a campaign may be resumed from anywhere.
    target = settings.target
    absolute = str(Path(target).absolute()) if Path(target).exists() else target
    kept = {**settings.to_json(), "target": absolute}
    if ground.seeds:  # by content: no file is needed again
        kept["seeds"] = [seed.to_json() for seed in ground.seeds]
    return CampaignSpec(
        target=target,
        device=ground.device.name,
        seed=settings.seed,
        problem=ground.problem,
        settings=kept,
    )


def settings_of(
    row: CampaignRow,
    store: str,
    seconds: float | None,
    *,
    spent_s: float = 0.0,
    baselines: Any = None,
) -> CampaignSettings:
    """Return the settings a campaign was begun with, kept in ``store``, ``seconds`` added.

    Seconds are added to what was allowed or, where an audit or a campaign without a limit took
    longer, to what was spent: that many seconds are there to search. The ``baselines`` that it was
    begun with need not be those that count (``chosen_in``).
    """
    values = {key: value for key, value in row.spec.settings.items() if key != "seeds"}
    if seconds is not None:
        values["seconds"] = max(float(values.get("seconds") or 0.0), spent_s) + seconds
    return CampaignSettings.from_json({**values, "store": store, "baselines": baselines})


def _check_seeds(session: Session, state: CampaignState, ground: Ground) -> None:
    """Fit the seed genomes into their spaces before anything is written."""
    spaces = {key: arena.spaces for key, arena in state.arenas.items()}
    firsts(session, spaces, None, ground.seeds, pins=ground.settings.pins)


def _facts(ground: Ground, state: CampaignState, session: Session) -> dict[str, Any]:
    """Return what a person wants to see when a campaign starts."""
    arenas = list(state.arenas.values())
    return {
        "target": ground.settings.target,
        "device": session.device,
        "seed": ground.settings.seed,
        "budget": ground.settings.budget,
        "seconds": ground.settings.seconds,
        "workloads": {a.key: a.workload.label for a in arenas},
        "routes": sorted({route for a in arenas for route in a.spaces}),
        "awake": sorted({name for a in arenas for name in a.islands}),
        "asleep": {name: why for a in arenas for name, why in a.asleep.items()},
        "baseline": {a.key: session.baseline_name(a.workload) for a in arenas},
    }


def _is_finished(events: Sequence[Event]) -> bool:
    kinds = [event.kind for event in events if event.kind in _LIFECYCLE]
    return bool(kinds) and kinds[-1] == "finished"


_LIFECYCLE = frozenset({"started", "resumed", "extended", "finished", "interrupted", "stopped"})
