"""Everything a campaign knows about one workload: its islands, log, claims and evidence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kernelarc.engine._attribution import AttributionQueue
from kernelarc.engine._ledger import Ledger
from kernelarc.engine._sharing import Need
from kernelarc.engine._traps import TrapEvidence
from kernelarc.engine._view import LogView, OwnView
from kernelarc.genomes import Conclusion, ConclusionKind, Genome, Judged, Space, Status, Workload
from kernelarc.islands import Island

STORE = "store"
"""Source of evaluations that an earlier campaign of the same store made: they cost nothing."""

# What a search starts from (the user's seeds, the device's, priors, what the store knows) was
# proposed by no island and is told to every one: all begin with it in their population.
_COMMON = frozenset({"user", "device", "prior", STORE})


@dataclass(slots=True)
class Tally:
    """One island's told outcomes: candidates judged, and KEEPs."""

    judged: int = 0
    keeps: int = 0


@dataclass(slots=True)
class _Told:
    judged: list[Judged] = field(default_factory=list)
    conclusions: list[Conclusion] = field(default_factory=list)


class Arena:
    """State of one workload, changed only by the fold over the log (``CampaignState``).

    Attributes:
        key: The workload's fingerprint.
        islands: The awake ones by name, in a fixed order.
        asleep: Why each of the others proposes nothing.
        view: The whole log of this workload.
        objectives: By genome fingerprint, the objective of every OK evaluation.
        evaluated: How many unique evaluations were made here.
        need: How much this workload may still gain.
    """

    def __init__(
        self,
        workload: Workload,
        spaces: Mapping[str, Space],
        islands: Sequence[Island],
        *,
        share_log: bool,
    ) -> None:
        self.workload = workload
        self.key = workload.fingerprint
        self.spaces = dict(spaces)
        self.asleep = {i.name: why for i in islands if (why := i.asleep()) is not None}
        self.islands = {i.name: i for i in islands if i.name not in self.asleep}
        self.view = LogView()
        self._own = {} if share_log else {name: OwnView(self.view) for name in self.islands}
        self.ledger = Ledger()
        self.traps = {
            route: TrapEvidence([gene.name for gene in space.genes if gene.cardinality > 1])
            for route, space in self.spaces.items()
        }
        self.attribution = AttributionQueue()
        self.tallies = {name: Tally() for name in self.islands}
        self.objectives: dict[str, float] = {}
        self.evaluated = 0
        self.need = Need()
        self._rounds: dict[int, _Told] = {}
        self._next_told = 0

    @property
    def closed(self) -> bool:
        """Whether an island sees its own evaluations only."""
        return bool(self._own)

    def view_of(self, island: str) -> LogView:
        """Return what this island may see: the whole log, or its own part of it."""
        return self._own.get(island, self.view)

    def judged(self, judged: Judged) -> None:
        """Take in one verdict, in ask order."""
        evaluation = judged.evaluation
        self.view.add(judged)
        island = evaluation.candidate.island
        if island in self._own:
            self._own[island].add(judged)
        if evaluation.measurement is not None:
            genome = evaluation.candidate.genome
            self.objectives[genome.fingerprint] = evaluation.measurement.objective
        self._count(judged)
        self._told(evaluation.candidate.round).judged.append(judged)

    def _count(self, judged: Judged) -> None:
        evaluation = judged.evaluation
        island = evaluation.candidate.island
        if island != STORE:
            self.evaluated += 1
            self.need.evaluated()
        tally = self.tallies.get(island)
        if tally is None:
            return
        tally.judged += 1

    def kept(self, island: str, log_gain: float) -> None:
        """Count a KEEP of an island, worth ``log_gain`` (natural log of the speed-up)."""
        self.need.gained(log_gain)
        tally = self.tallies.get(island)
        if tally is not None:
            tally.keeps += 1

    def concluded(self, conclusion: Conclusion, round_number: int) -> None:
        """Hold a conclusion for the islands until the round it was drawn in is told."""
        self._told(round_number).conclusions.append(conclusion)

    def _told(self, round_number: int) -> _Told:
        number = max(round_number, self._next_told)
        told = self._rounds.get(number)
        if told is None:
            told = self._rounds[number] = _Told()
        return told

    def tell_until(self, round_number: int, *, migrate: bool) -> None:
        """Tell the islands everything of rounds up to ``round_number``, in round order."""
        for number in sorted(n for n in self._rounds if n <= round_number):
            self._tell(self._rounds.pop(number), migrate=migrate)
        self._next_told = max(self._next_told, round_number + 1)

    def _tell(self, told: _Told, *, migrate: bool) -> None:
        own: defaultdict[str, list[Judged]] = defaultdict(list)
        for judged in told.judged:
            source = judged.evaluation.candidate.island
            for name in self.islands if source in _COMMON else (source,):
                own[name].append(judged)
        for name, island in self.islands.items():
            if name in own:
                island.tell(own[name])
            if told.conclusions:
                heard = [c for c in told.conclusions if migrate or c.island == name]
                if heard:
                    island.receive(heard)
                    self._show(name, heard)

    def _show(self, name: str, heard: Sequence[Conclusion]) -> None:
        """Where the log is closed: a win brings the evaluation that it rests on."""
        for conclusion in heard if name in self._own else ():
            genome = conclusion.genome if conclusion.workload == self.key else None
            judged = None if genome is None else self.find(genome.fingerprint)
            if judged is not None and conclusion.kind is ConclusionKind.WIN:
                self._own[name].hear(judged)

    def find(self, fingerprint: str) -> Judged | None:
        """Return an evaluation whose genome is still at hand (recent, good, or a claim)."""
        for claim in reversed(self.ledger.claims):
            if claim.evaluation.candidate.genome.fingerprint == fingerprint:
                return claim
        return self.view.find(fingerprint)

    def parent_of(self, judged: Judged) -> Judged | None:
        """Return the direct parent's OK evaluation, where the parent is still at hand."""
        for fingerprint in judged.evaluation.candidate.parents[:1]:
            found = self.find(fingerprint)
            if found is not None and found.evaluation.status is Status.OK:
                return found
        return None

    def space_of(self, genome: Genome) -> Space:
        """Return the space of the genome's route."""
        return self.spaces[genome.route]
