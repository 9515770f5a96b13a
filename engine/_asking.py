"""One round of asking: seeds, reverts to attribute, islands, and what fills the rest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from kernelarc.bench import Session
from kernelarc.engine._arena import Arena
from kernelarc.engine._controller import advice, allocate, even, shares
from kernelarc.engine._firsts import PRIOR
from kernelarc.engine._nearness import nearest_first
from kernelarc.engine._resources import ResourceBandit
from kernelarc.engine._sharing import next_workload
from kernelarc.engine._state import REMATCH, CampaignState
from kernelarc.engine._streams import stream
from kernelarc.engine._view import DraftView
from kernelarc.genomes import Candidate, Genome, NothingValidError, Proposal
from kernelarc.storage import Round

# Fresh evaluations that attributing wins may take: this part of all that were made after the
# first ones. Early on nearly every gain is overtaken before its attribution is done.
_ATTRIBUTION_PART = 0.1
_ATTRIBUTION_AFTER = 40
# Rounds of asking and of sampling before a round stays short; proposals asked for each one that
# is wanted, at most, where many turn out illegal.
_ASK_TRIES = 6
_FILL_TRIES = 8
_MOST_SURPLUS = 4
# How many of the nearest workloads hand their bests on.
_NEIGHBOURS = 2
# Drafts for each candidate that is wanted, where the device sifts them.
_DRAFTS = 12
# How often islands draft for one round where the device takes too few of the drafts.
_SIFTS = 3
# Larger spaces are not swept: where islands and even sampling find nothing new, they count as
# exhausted.
_ENUMERATE_LIMIT = 2_000_000

ENGINE, RESOURCES = "engine", "resources"


class Asker:
    """Turns the state into the next round. Pure but for caches: same state, same round."""

    def __init__(
        self,
        session: Session,
        state: CampaignState,
        *,
        seed: int,
        learned: bool = True,
        firsts: Mapping[str, Sequence[tuple[str, Proposal]]],
        bandits: Mapping[str, Sequence[ResourceBandit]] | None = None,
    ) -> None:
        """Make an asker.

        Args:
            session: For its bulk legality check only.
            state: Read, never changed.
            seed: The campaign's.
            learned: Whether islands that brought gains are asked for more.
            firsts: Per workload, (source, proposal) to try before islands propose.
            bandits: Per workload, what sets the resource genes of the islands' proposals.
        """
        self._session = session
        self._state = state
        self._seed = seed
        self._learned = learned
        self._firsts = firsts
        self._bandits = bandits or {}
        self._unseen: dict[str, Iterator[Genome]] = {}
        self._exhausted: set[str] = set()
        self._nearest: dict[str, list[str]] = {}

    @property
    def exhausted(self) -> bool:
        """Whether every workload has run out of legal genomes that were not tried."""
        return len(self._exhausted) == len(self._state.arenas)

    def next_round(self, n: int) -> tuple[Round, list[Candidate]] | None:
        """Return the next round and its candidates, at most ``n``; None when all is exhausted."""
        while not self.exhausted:
            arena = self._pick()
            draft = _Draft(arena, self._session, self._state.next_round)
            self._forced(draft, n)
            if self._session.sifts:
                self._sift(draft, n)
            if not self._session.sifts or not self._session.lag:
                self._islands(draft, n)
            if draft.missing(n):
                self._fill(draft, n)
            if draft.accepted:
                return draft.finish(self._state.next_number)
            self._exhausted.add(arena.key)
        return None

    def _pick(self) -> Arena:
        """Return the workload that is farthest behind what its need entitles it to."""
        arenas = self._state.arenas
        needs = {key: a.need.value for key, a in arenas.items() if key not in self._exhausted}
        return arenas[next_workload(needs, self._state.handed)]

    def _forced(self, draft: _Draft, n: int) -> None:
        arena = draft.arena
        firsts = self._firsts.get(arena.key, ())
        draft.offer(list(islice((f for f in firsts if draft.fresh(f[1])), n)), count=False)
        near = [first for first in self._of_neighbours(arena) if draft.fresh(first[1])]
        draft.offer(near[: draft.missing(n)], count=False)
        room = min(draft.missing(n), self._for_attribution(arena) - arena.attribution.spent)
        reverts = (r for r in _reverts(arena) if draft.fresh(r[1]))
        draft.offer(list(islice(reverts, max(room, 0))), count=False)
        draft.invite(_nominee(arena))

    def _for_attribution(self, arena: Arena) -> int:
        """Return how many trials of attribution there may have been by now."""
        if not self._state.migrate:
            return 0  # what is concluded reaches nobody
        after = 0 if arena.closed else _ATTRIBUTION_AFTER
        return int(_ATTRIBUTION_PART * max(arena.evaluated - after, 0))

    def _of_neighbours(self, arena: Arena) -> Iterator[tuple[str, Proposal]]:
        """Yield the bests that stand on the nearest other workloads, where they fit here."""
        arenas = self._state.arenas
        if not self._state.migrate or len(arenas) < 2:
            return
        for key in self._near(arena)[:_NEIGHBOURS]:
            best = arenas[key].ledger.incumbent if arenas[key].ledger.keeps else None
            genome = None if best is None else best.evaluation.candidate.genome
            space = None if genome is None else arena.spaces.get(genome.route)
            if genome is not None and space is not None and space.contains(genome):
                yield PRIOR, Proposal(genome=genome, mutation="neighbour")

    def _near(self, arena: Arena) -> list[str]:
        if arena.key not in self._nearest:
            others = [a.workload for a in self._state.arenas.values() if a is not arena]
            near = nearest_first(arena.workload, others)
            self._nearest[arena.key] = [workload.fingerprint for workload in near]
        return self._nearest[arena.key]

    def rematch(self) -> tuple[Round, list[Candidate]] | None:
        """Return a round that holds nothing but a nominee of a final; None where there is none."""
        for arena in self._state.arenas.values():
            draft = _Draft(arena, self._session, self._state.next_round)
            draft.invite(_nominee(arena))
            if draft.accepted:
                return draft.finish(self._state.next_number)
        return None

    def _sift(self, draft: _Draft, n: int) -> None:
        """Let islands draft until the round is full, or until drafting finds little that is new.

        Nothing else is asked of them while a device works on: a proposal by a model, repaired,
        takes the time of a hundred drafts, and the device would wait for it.
        """
        for attempt in range(_SIFTS):
            missing = draft.missing(n)
            if not missing or not self._sifted(draft, n, attempt):
                return

    def _sifted(self, draft: _Draft, n: int, attempt: int) -> bool:
        """Let islands draft many, sift all drafts at once, and let islands choose of theirs.

        What one finds too little of is chosen from what others have left over.

        Returns:
            Whether anything was found that the device takes.
        """
        arena = draft.arena
        waiting = Counter(c.island for c in self._state.pending.values())
        wanted = self._allocate(arena, waiting, draft.missing(n))
        taken = set(draft.taken)
        drafts: list[tuple[str, Proposal]] = []
        for name, k in wanted.items():
            rng = stream(self._seed, name, arena.key, draft.number, "draft", attempt)
            view = DraftView(arena.view_of(name), taken)
            made = arena.islands[name].draft(_DRAFTS * k, rng, view)
            made = self._settled(draft, name, made, view, -1)
            taken |= {proposal.genome.fingerprint for proposal in made}
            drafts += [(name, proposal) for proposal in made]
        legal = draft.sift(drafts)
        left: dict[str, list[Proposal]] = {name: [] for name in wanted}
        for name, proposal in legal:
            left[name].append(proposal)
        for name, k in wanted.items():
            self._choose(draft, name, left, k, ("choose", attempt))
        for name in sorted(left, key=lambda name: -len(left[name])):
            self._choose(draft, name, left, draft.missing(n), ("spare", attempt))
        return bool(legal)

    def _choose(
        self,
        draft: _Draft,
        name: str,
        left: dict[str, list[Proposal]],
        k: int,
        what: tuple[str, int],
    ) -> None:
        """Let an island choose ``k`` of its legal drafts; those it leaves stay in ``left``."""
        if k <= 0 or not left[name]:
            return
        arena = draft.arena
        rng = stream(self._seed, name, arena.key, draft.number, *what)
        chosen = arena.islands[name].choose(left[name], k, rng, arena.view_of(name))[:k]
        for proposal in chosen:
            draft.invite((name, proposal))
        left[name] = [proposal for proposal in left[name] if draft.fresh(proposal)]

    def _islands(self, draft: _Draft, n: int) -> None:
        """Ask the islands until the round is full, more at once where most of it is illegal."""
        arena = draft.arena
        waiting = Counter(c.island for c in self._state.pending.values())
        for attempt in range(_ASK_TRIES):
            missing = draft.missing(n)
            if not missing:
                return
            wanted = self._allocate(arena, waiting, missing)
            surplus, illegal = draft.surplus(), draft.illegal
            asked: list[tuple[str, Proposal]] = []
            taken = set(draft.taken)
            for name, k in wanted.items():
                proposals = self._ask(draft, name, k * surplus, attempt, taken)
                taken |= {proposal.genome.fingerprint for proposal in proposals}
                asked += [(name, proposal) for proposal in proposals]
            if not asked:
                return
            waiting.update(draft.offer(asked, quota=wanted))
            if attempt and draft.illegal == illegal:
                return  # they have nothing new: asking again would not help

    def _allocate(self, arena: Arena, waiting: Mapping[str, int], n: int) -> dict[str, int]:
        """Divide a round among the islands, and advise those that are asked."""
        credits_, context = self._state.credits, self._state.credits.context(arena.key)
        wanted = shares(credits_, arena.islands, context) if self._learned else even(arena.islands)
        so_far = sum(tally.judged for tally in arena.tallies.values()) + sum(waiting.values())
        slots = allocate(wanted, so_far, n)
        for name in slots if self._learned else ():
            arena.islands[name].advise(advice(credits_, name, context))
        return slots

    def _ask(
        self, draft: _Draft, name: str, k: int, attempt: int, taken: set[str]
    ) -> list[Proposal]:
        arena = draft.arena
        rng = stream(self._seed, name, arena.key, draft.number, attempt)
        view = DraftView(arena.view_of(name), taken)
        return self._settled(draft, name, arena.islands[name].ask(k, rng, view)[:k], view, attempt)

    def _settled(
        self, draft: _Draft, name: str, proposals: list[Proposal], view: DraftView, attempt: int
    ) -> list[Proposal]:
        """Return an island's proposals with their resource genes set, where a bandit sets them."""
        arena = draft.arena
        for bandit in self._bandits.get(arena.key, ()):
            rng = stream(self._seed, RESOURCES, name, arena.key, draft.number, attempt + 1)
            proposals = bandit.settle(proposals, arena.view, view, rng)
        return proposals

    def _fill(self, draft: _Draft, n: int) -> None:
        """Complete a round by even sampling, and small spaces by what enumeration finds left."""
        arena = draft.arena
        rng = stream(self._seed, ENGINE, arena.key, draft.number)
        spaces = list(arena.spaces.values())
        for _ in range(_FILL_TRIES):
            missing = draft.missing(n)
            if not missing:
                return
            try:
                drawn = [
                    spaces[int(rng.integers(len(spaces)))].sample(rng)
                    for _ in range(missing * draft.surplus())
                ]
            except NothingValidError:
                break
            offers = [(ENGINE, Proposal(genome=g, mutation="sample")) for g in drawn]
            draft.offer(offers, most=missing, count=False)
        self._sweep(draft, n)

    def _sweep(self, draft: _Draft, n: int) -> None:
        arena = draft.arena
        if sum(space.size().legal for space in arena.spaces.values()) > _ENUMERATE_LIMIT:
            return
        unseen = self._unseen.setdefault(arena.key, _enumerate(arena))
        while draft.missing(n):
            chunk = list(islice(unseen, draft.missing(n)))
            if not chunk:
                return
            draft.offer(
                [(ENGINE, Proposal(genome=g, mutation="sweep")) for g in chunk], count=False
            )


def _enumerate(arena: Arena) -> Iterator[Genome]:
    for space in arena.spaces.values():
        for genome in space.enumerate():
            if not arena.view.evaluated(genome.fingerprint):
                yield genome


def _reverts(arena: Arena) -> Iterator[tuple[str, Proposal]]:
    """Yield what attribution still wants evaluated, what is quickly learned first."""
    for job in arena.attribution.by_worth():
        child = job.child.evaluation.candidate
        for genome in job.trials(arena.objectives).values():
            yield (
                child.island if child.island in arena.islands else ENGINE,
                Proposal(
                    genome=genome,
                    mutation="attribute.revert",
                    parents=(child.genome.fingerprint,),
                ),
            )


def _nominee(arena: Arena) -> tuple[str, Proposal] | None:
    """Return who won the newest final, in the name of the island that had proposed it."""
    best, name = arena.ledger.incumbent, arena.ledger.nominee
    found = None if name is None else arena.find(name)
    if found is None or best is None:
        return None
    candidate = found.evaluation.candidate
    # Beside the best it won: what it has to explain is how it differs from that.
    parents = (best.evaluation.candidate.genome.fingerprint,)
    return candidate.island, Proposal(genome=candidate.genome, mutation=REMATCH, parents=parents)


class _Draft:
    """A round in the making: what was accepted, and why the rest was not.

    Attributes:
        accepted: Source and proposal, in order.
        illegal: How many proposals the device refused so far.
        taken: Fingerprints of what was accepted or refused.
    """

    def __init__(self, arena: Arena, session: Session, number: int) -> None:
        self.arena = arena
        self.number = number
        self.accepted: list[tuple[str, Proposal]] = []
        self._session = session
        self.taken: set[str] = set()
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.illegal = self._legal = 0

    def missing(self, n: int) -> int:
        """Return how many of ``n`` places are free."""
        return n - len(self.accepted)

    def fresh(self, proposal: Proposal) -> bool:
        """Tell whether a genome is neither evaluated, nor in flight, nor in this draft."""
        key = proposal.genome.fingerprint
        return key not in self.taken and not self.arena.view.evaluated(key)

    def sift(self, drafts: Sequence[tuple[str, Proposal]]) -> list[tuple[str, Proposal]]:
        """Return the drafts that the device takes; the others are counted and not seen again."""
        new = self._new(drafts, count=True)
        faults = self._session.check(self.arena.workload, [p.genome for _, p in new]) if new else []
        legal = []
        for (island, proposal), fault in zip(new, faults, strict=True):
            self._legal += fault is None
            self.illegal += fault is not None
            if fault is None:
                legal.append((island, proposal))
                self.taken.discard(proposal.genome.fingerprint)  # may be drafted again
            else:
                self._counts[island]["rejected"] += 1
        return legal

    def invite(self, known: tuple[str, Proposal] | None) -> None:
        """Accept one that is known to be legal."""
        if known is not None:
            self.taken.add(known[1].genome.fingerprint)
            self.accepted.append(known)

    def surplus(self) -> int:
        """Return how many proposals to ask for each one wanted: what was illegal so far tells."""
        if not self.illegal:
            return 1
        checked = self.illegal + self._legal
        return min(-(-checked // max(self._legal, 1)), _MOST_SURPLUS)

    def offer(
        self,
        offers: Sequence[tuple[str, Proposal]],
        *,
        quota: Mapping[str, int] | None = None,
        most: int | None = None,
        count: bool = True,
    ) -> Counter[str]:
        """Accept the legal new ones, in order; return how many of each source.

        Args:
            offers: Source and proposal.
            quota: Most that each source may have accepted.
            most: Most that are accepted in all.
            count: Whether what is not accepted shows in the round's counts.
        """
        new = self._new(offers, count=count)
        accepted: Counter[str] = Counter()
        if not new:
            return accepted
        faults = self._session.check(self.arena.workload, [p.genome for _, p in new])
        for (island, proposal), fault in zip(new, faults, strict=True):
            self._legal += fault is None
            self.illegal += fault is not None
            if fault is not None:
                self._counts[island]["rejected"] += count
            elif (most is None or accepted.total() < most) and (
                quota is None or accepted[island] < quota[island]
            ):
                accepted[island] += 1
                self.accepted.append((island, proposal))
            else:
                self.taken.discard(proposal.genome.fingerprint)  # may come again, in its turn
        return accepted

    def _new(
        self, offers: Sequence[tuple[str, Proposal]], *, count: bool
    ) -> list[tuple[str, Proposal]]:
        new: list[tuple[str, Proposal]] = []
        for island, proposal in offers:
            self._counts[island]["asked"] += count
            if self.fresh(proposal):
                self.taken.add(proposal.genome.fingerprint)
                new.append((island, proposal))
            else:
                self._counts[island]["duplicate"] += count
        return new

    def finish(self, first: int) -> tuple[Round, list[Candidate]]:
        """Number the candidates and close the draft."""
        candidates = [
            Candidate(
                number=first + place,
                round=self.number,
                workload=self.arena.key,
                island=island,
                mutation=proposal.mutation,
                genome=proposal.genome,
                parents=proposal.parents,
            )
            for place, (island, proposal) in enumerate(self.accepted)
        ]
        counts = {
            name: {what: n for what, n in counter.items() if n}
            for name, counter in self._counts.items()
        }
        return Round(number=self.number, counts={n: c for n, c in counts.items() if c}), candidates
