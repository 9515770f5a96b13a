"""The island that all eight strategies are: a DEAP population, operators chosen by credit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from kernelarc.genomes import (
    Allele,
    Candidate,
    Conclusion,
    Gene,
    Genome,
    Judged,
    Proposal,
    Space,
    Strategy,
    Verdict,
)
from kernelarc.islands._credit import Credit, draw
from kernelarc.islands._fence import fenced
from kernelarc.islands._island import Habitat, Island, View
from kernelarc.islands._population import Individual, Population, individual_of
from kernelarc.islands._settings import IslandSettings
from kernelarc.islands._spread import Encoder, farthest
from kernelarc.islands._sweep import Sweep
from kernelarc.islands._terrain import Scene, pick, survey
from kernelarc.islands._traps import Traps
from kernelarc.islands._turn import Turn
from kernelarc.islands._waking import legal
from kernelarc.islands._wins import Wins
from kernelarc.islands.models import (
    Proposer,
    Ranker,
    StudyProposer,
    Surrogate,
    SurrogateProposer,
    one_thread,
)
from kernelarc.islands.operators import DRAFTING, FAMILIES, GENERIC, every_family, toolbox_for

_WIN_SHARE = 0.15  # at most; among proposals never more than all operators together
_SURROGATE = "model.surrogate"
# What the engine asked for: reverts that explain a gain, winners of finals evaluated again.
_NOT_OURS = ("attribute.", "final.")
_PRIOR = "prior"  # what did well elsewhere replaces none of the start
_KNOWN_POINTS = 64
# Of what is chosen among drafts: the model's part, and of the rest the smallest steps' part.
_RANKED, _SMALL_STEPS = 0.7, 0.6
_DRAFT_TRIES, _DRAFT_RIVALS = 3, 3
_OLD_PARENTS = 0.3  # drafts made from the best ever, not from the colony
_STUDY_CHANCE = 0.1  # a study takes the time of some hundred other drafts
_SAMPLED = 12  # drawn for one sample: the hint says which
_FEW = 16  # alleles up to which all of a gene are tried beside the best genome's others
_SAMPLES = 16


class EvolvingIsland(Island):
    """One strategy's island on one habitat.

    What changes only by ``tell`` and ``receive``: population, traps, wins, credit, plateau
    counter, visits per route, priors. Everything else is made once or is a cache.

    Attributes:
        owner: The strategy, fixed by the class.

    Args:
        habitat: Workload, spaces and device.
        settings: Tuning constants and switches.
        surrogates: The model of each route, shared by the habitat's islands.
        rankers: What ranks the drafts of each route, shared likewise.
        sleeps: Why it has nothing to propose, or None.
    """

    owner: ClassVar[Strategy]

    def __init__(
        self,
        habitat: Habitat,
        settings: IslandSettings,
        surrogates: Mapping[str, Surrogate],
        rankers: Mapping[str, Ranker],
        *,
        sleeps: str | None = None,
    ) -> None:
        self.strategy = self.owner
        self.name = self.owner.value
        self._habitat = habitat
        self._settings = settings
        self._sleeps = sleeps
        self._routes = tuple(habitat.spaces)
        self._terrains = {r: survey(s, self.strategy) for r, s in habitat.spaces.items()}
        self._encoders = {r: Encoder(s) for r, s in habitat.spaces.items()}
        self._sweeps = {r: Sweep(s) for r, s in habitat.spaces.items()}
        self._family = every_family() if settings.every_operator else FAMILIES[self.strategy]
        self._toolbox = toolbox_for(self._family)
        self._models = self._make_models(surrogates) if settings.models else {}
        self._rankers = rankers if settings.models else {}
        self._priors = self._prior_weights()
        self._population = Population(settings.elites, settings.hall)
        self._traps = Traps(habitat.workload)
        self._wins = Wins(habitat.axes)
        self._credit = Credit(memory=settings.memory, floor=settings.floor)
        self._visits = dict.fromkeys(self._routes, 0)
        self._stale = 0
        self._priors_told = 0
        self._chances: Mapping[str, float] | None = None
        self._moves: Mapping[str, float] | None = None
        self._advice: Mapping[str, float] = {}

    # -- the contract ------------------------------------------------------------------------

    def asleep(self) -> str | None:
        return self._sleeps

    def advise(self, factors: Mapping[str, float]) -> None:
        if factors != self._advice:
            self._advice = dict(factors)
            self._chances = self._moves = None

    def ask(self, n: int, rng: np.random.Generator, view: View) -> list[Proposal]:
        if self._sleeps is not None:
            return []
        turn = Turn(rng, view, self._traps, self._settings.trapped_share)
        proposals: list[Proposal] = []
        with fenced(rng):
            while len(proposals) < n:
                turn.next()
                proposal = self._propose(turn)
                if proposal is None:
                    break
                turn.taken.add(proposal.genome.fingerprint)
                proposals.append(proposal)
        return proposals

    def draft(self, n: int, rng: np.random.Generator, view: View) -> list[Proposal]:
        if self._sleeps is not None:
            return []
        turn = Turn(rng, view, self._traps, self._settings.trapped_share)
        with fenced(rng):
            return self._drafts(turn, n)

    def choose(
        self, drafts: Sequence[Proposal], n: int, rng: np.random.Generator, view: View
    ) -> list[Proposal]:
        """Choose what leaves a plateau, then by the model, then small steps, some at random."""
        shuffled = [drafts[int(place)] for place in rng.permutation(len(drafts))]
        chosen = [draft for draft in shuffled if draft.mutation.startswith("plateau.")][:n]
        routes = {draft.genome.route for draft in shuffled}
        for route in self._routes:
            if route in routes and route in self._rankers:
                share = int(rng.binomial(n - len(chosen), _RANKED)) // len(routes)
                mine = [d for d in shuffled if d.genome.route == route and d not in chosen]
                genomes = [draft.genome for draft in mine]
                places = self._rankers[route].pick(view, genomes, share) if share else None
                chosen += [mine[place] for place in places or ()]
        keys = {draft.genome.fingerprint for draft in chosen}
        rest = [draft for draft in shuffled if draft.genome.fingerprint not in keys]
        small = int(rng.binomial(max(n - len(chosen), 0), _SMALL_STEPS))
        known = {
            i.genome.fingerprint: i for i in (*self._population.hall, *self._population.colony)
        }
        steps = sorted(rest, key=lambda draft: _step(draft, known))[:small]
        keys = {draft.genome.fingerprint for draft in steps}
        rest = [draft for draft in rest if draft.genome.fingerprint not in keys]
        return [*chosen, *steps, *rest][:n]

    def tell(self, judged: Sequence[Judged]) -> None:
        self._chances = self._moves = None
        for one in judged:
            candidate, individual = one.evaluation.candidate, individual_of(one)
            self._priors_told += candidate.mutation == _PRIOR
            better = individual is not None and self._improves(individual, candidate)
            self._credit.record(candidate.mutation, one.verdict, better=better)
            if candidate.genome.route in self._visits:
                self._visits[candidate.genome.route] += 1
            if individual is not None and candidate.genome.route in self._terrains:
                self._settle(candidate, individual, one.verdict)

    def receive(self, conclusions: Sequence[Conclusion]) -> None:
        self._chances = self._moves = None
        for conclusion in conclusions:
            self._traps.receive(conclusion)
            self._wins.receive(conclusion)

    def elites(self) -> Sequence[Genome]:
        return self._population.genomes()

    def credit(self) -> Mapping[str, tuple[int, int]]:
        return self._credit.counts()

    # -- learning ----------------------------------------------------------------------------

    def _improves(self, individual: Individual, candidate: Candidate) -> bool:
        if individual.bound or not candidate.parents:
            return False
        before = self._population.score_of(candidate.parents[0])
        return before is not None and individual.score > before

    def _settle(self, candidate: Candidate, individual: Individual, verdict: Verdict) -> None:
        """Let an individual in; what was measured and is no improvement advances the counter."""
        moved = candidate.mutation.startswith("plateau.")
        if moved and self._stale >= self._habitat.plateau:
            self._population.scatter()
            self._stale = 0
        improved = self._population.add(individual)
        if improved or verdict is Verdict.KEEP:
            self._stale = 0
        elif not candidate.mutation.startswith(_NOT_OURS):
            self._stale += 1

    # -- proposing ---------------------------------------------------------------------------

    def _propose(self, turn: Turn) -> Proposal | None:
        found: Proposal | None = None
        if self._stale >= self._habitat.plateau:
            found = self._leave(turn)
        elif (
            not self._population.colony
            or turn.view.count() - self._priors_told < self._settings.start
        ):
            found = self._begin(turn)
        return found or self._breed(turn) or self._sample(turn) or self._sweep(turn)

    def _begin(self, turn: Turn) -> Proposal | None:
        """Fill the space: the sample farthest from everything that was evaluated."""
        route = min(self._routes, key=lambda r: (self._visits[r], self._routes.index(r)))
        drawn = self._drawn(turn, route, self._settings.spread)
        recent = turn.view.recent(_KNOWN_POINTS)
        genomes = [judged.evaluation.candidate.genome for judged in recent]
        return self._far(turn, drawn, genomes, "sample")

    def _breed(self, turn: Turn) -> Proposal | None:
        """Draft by operators drawn by credit until one draft is admitted."""
        if not self._population.colony:
            return None
        names, weights = self._choices()
        for _ in range(self._settings.attempts):
            name = draw(turn.rng, names, weights)
            parent = self._population.parent(self._settings.tournament).genome
            if name in self._models:
                weights[names.index(name)] = 0.0  # a model is asked once a proposal
                proposal = self._by_model(turn, name, parent)
                if sum(weights) == 0.0:
                    weights = [1.0] * len(names)
            elif name == "win.genome":
                proposal = self._by_win_genome(turn)
            else:
                proposal = self._by_operator(turn, name, parent)
            if proposal is not None:
                return proposal
        return None

    # -- drafting ----------------------------------------------------------------------------

    def _drafts(self, turn: Turn, n: int) -> list[Proposal]:
        """Draft by cheap moves; nothing is repaired, and models are asked for one draft at most."""
        found = [draft for draft in self._dear_drafts(turn) if draft is not None]
        turn.taken.update(draft.genome.fingerprint for draft in found)
        found = [*found, *self._own_steps(turn)][:n]
        chances = self._credit.chances(self._advised(self._drafting_priors()))
        names, weights = list(chances), list(chances.values())
        for _ in range(_DRAFT_TRIES * n):
            if len(found) >= n:
                break
            turn.next()
            draft = self._cheap_draft(turn, draw(turn.rng, names, weights))
            if draft is not None and turn.admits(draft.genome):
                turn.taken.add(draft.genome.fingerprint)
                found.append(draft)
        return found

    def _dear_drafts(self, turn: Turn) -> Iterator[Proposal | None]:
        turn.next()
        if self._stale >= self._habitat.plateau:
            yield self._leave(turn)
        if not self._population.colony:
            return
        if len(self._wins):
            yield self._by_win_genome(turn)
        studies = [name for name in self._models if name != _SURROGATE]
        if studies and turn.rng.random() < _STUDY_CHANCE:
            parent = self._population.parent(self._settings.tournament).genome
            yield self._by_model(turn, studies[int(turn.rng.random() * len(studies))], parent)

    def _own_steps(self, turn: Turn) -> Iterator[Proposal]:
        """Yield the best genome with one own gene changed, every allele of those that are few."""
        if not self._population.hall:
            return
        best = self._population.hall[0].genome
        terrain = self._terrains[best.route]
        for gene in terrain.own:
            if gene.name not in best:
                continue
            few = gene.cardinality <= _FEW
            for allele in gene.values() if few else gene.neighbours(best[gene.name]):
                genome = terrain.space.legal(best.replace({gene.name: allele}))
                if genome is not None and turn.admits(genome):
                    turn.taken.add(genome.fingerprint)
                    parents = (best.fingerprint,)
                    yield Proposal(genome=genome, mutation="draft.step", parents=parents)

    def _cheap_draft(self, turn: Turn, name: str) -> Proposal | None:
        colony, hall = self._population.colony, self._population.hall
        if name == "sample" or not colony:
            space = self._terrains[pick(turn.rng, self._routes)].space
            return Proposal(genome=space.guessed(turn.rng, _SAMPLED), mutation="sample")
        old = turn.rng.random() < _OLD_PARENTS
        parent = (pick(turn.rng, hall) if old else self._population.parent(_DRAFT_RIVALS)).genome
        alleles = self._moved(turn, name, parent)
        if alleles is None:
            return None
        genome = self._terrains[parent.route].space.legal(alleles)
        if genome is None:
            return None
        return Proposal(genome=genome, mutation=name, parents=(parent.fingerprint,))

    def _drafting_priors(self) -> dict[str, float]:
        """Return the operators' weights for drafting; wins where there are any."""
        own, common = self._family, (*DRAFTING, *GENERIC)
        priors = {name: 0.3 / len(own) for name in own}
        priors |= {name: 0.65 / len(common) for name in common} | {"sample": 0.05}
        return priors | {"win.apply": _WIN_SHARE} if len(self._wins) else priors

    def _moved(self, turn: Turn, name: str, parent: Genome) -> Mapping[str, Allele] | None:
        """Apply an operator or a win to a genome; the outcome may be illegal."""
        if name == "win.apply":
            win = self._wins.draw(turn.rng)
            return win.apply(parent) if win and win.conclusion.route == parent.route else None
        alleles: Mapping[str, Allele] | None = getattr(self._toolbox, name)(
            parent, self._scene(parent.route), turn.rng
        )
        return alleles

    # -- proposing by models and operators ---------------------------------------------------

    def _by_model(self, turn: Turn, name: str, parent: Genome) -> Proposal | None:
        model = self._models[name].get(parent.route)
        if model is None:
            return None
        with one_thread():
            genome = model.propose(turn, parent, partial(self._draft, turn, parent))
        if genome is None:
            return None
        return Proposal(genome=genome, mutation=name, parents=(parent.fingerprint,))

    def _draft(self, turn: Turn, parent: Genome) -> Genome | None:
        """Draft by an operator or a win, drawn by credit, without asking whether it is new."""
        if self._moves is None:
            moves = {n: p for n, p in self._offered().items() if n not in self._models}
            moves.pop("win.genome", None)
            self._moves = self._credit.chances(self._advised(moves))
        name = draw(turn.rng, list(self._moves), list(self._moves.values()))
        drawn = self._population.parent(self._settings.tournament).genome
        parent = drawn if drawn.route == parent.route else parent
        alleles = self._moved(turn, name, parent)
        return None if alleles is None else self._legal(turn, alleles, parent.route)

    def _legal(self, turn: Turn, alleles: Mapping[str, Allele], route: str) -> Genome | None:
        """Make a draft whole by what the best have, and repair it."""
        known = (*self._population.hall, *self._population.colony)
        return legal(alleles, self._terrains[route], known, turn.rng)

    def _by_win_genome(self, turn: Turn) -> Proposal | None:
        for genome in self._wins.genomes():
            terrain = self._terrains.get(genome.route)
            if terrain and terrain.space.contains(genome) and turn.admits(genome):
                return Proposal(genome=genome, mutation="win.genome")
        return None

    def _by_operator(self, turn: Turn, name: str, parent: Genome) -> Proposal | None:
        """Draft by a mutation operator or a win, repair, and admit or refuse."""
        alleles = self._moved(turn, name, parent)
        if alleles is None:
            return None
        genome = self._legal(turn, alleles, parent.route)
        if genome is None or not turn.admits(genome):
            return None
        return Proposal(genome=genome, mutation=name, parents=(parent.fingerprint,))

    def _leave(self, turn: Turn) -> Proposal | None:
        """Answer a plateau: another route, else another algorithm, else far away."""
        colony = self._population.colony
        here = colony[0].genome if colony else None
        others = [route for route in self._routes if here is None or route != here.route]
        if others and here is not None:
            route = min(others, key=lambda r: (self._visits[r], self._routes.index(r)))
            return self._far(
                turn, self._drawn(turn, route, self._settings.spread), [], "plateau.route"
            )
        route = self._routes[0] if here is None else here.route
        drawn = self._drawn(turn, route, 2 * self._settings.spread)
        branches = [gene.name for gene in self._terrains[route].branches]
        elsewhere = [g for g in drawn if here and any(g.get(b) != here.get(b) for b in branches)]
        elites = [genome for genome in self._population.genomes() if genome.route == route]
        if elsewhere:
            return self._far(turn, elsewhere, elites, "plateau.algorithm")
        return self._far(turn, drawn, elites, "plateau.restart")

    def _far(
        self, turn: Turn, drawn: Sequence[Genome], known: Sequence[Genome], name: str
    ) -> Proposal | None:
        if not drawn:
            return None
        encoder = self._encoders[drawn[0].route]
        rows = encoder.rows(genome for genome in known if genome.route == drawn[0].route)
        for genome in farthest(drawn, rows, encoder):
            if turn.admits(genome):
                return Proposal(genome=genome, mutation=name)
        return None

    def _sample(self, turn: Turn) -> Proposal | None:
        for _ in range(_SAMPLES):
            genome = self._terrains[pick(turn.rng, self._routes)].space.sample(turn.rng)
            if turn.admits(genome):
                return Proposal(genome=genome, mutation="sample")
        return None

    def _sweep(self, turn: Turn) -> Proposal | None:
        """Walk small spaces in order: the way the last genomes of a space are found."""
        for route in self._routes:
            if self._terrains[route].space.size().raw > self._settings.exhaustive:
                continue
            genome = self._sweeps[route].first(turn.view.evaluated, turn.admits)
            if genome is not None:
                return Proposal(genome=genome, mutation="sweep")
        return None

    # -- made once ---------------------------------------------------------------------------

    def _studied(self, space: Space) -> Mapping[str, Sequence[Gene]]:
        """Return the genes of each Optuna study by operator name; most islands have none."""
        return {}

    def _make_models(
        self, surrogates: Mapping[str, Surrogate]
    ) -> Mapping[str, Mapping[str, Proposer]]:
        """Return models by operator name and route."""
        models: dict[str, dict[str, Proposer]] = {}
        for route, space in self._habitat.spaces.items():
            if self._settings.surrogate:
                proposer = SurrogateProposer(_SURROGATE, surrogates[route], space)
                models.setdefault(_SURROGATE, {})[route] = proposer
            studied = self._studied(space) if self._settings.studies else {}
            for name, genes in studied.items():
                study = StudyProposer(name, space, genes, self._settings)
                models.setdefault(name, {})[route] = study
        return models

    def _prior_weights(self) -> dict[str, float]:
        """Share the weight: models first, then own operators by the ownership bias.

        The process ranks what the island's operators draft, so little is left to them alone.
        """
        settings = self._settings
        studies = [name for name in self._models if name != _SURROGATE]
        weights = {name: settings.study_share / len(studies) for name in studies}
        weights |= {name: settings.model_share for name in self._models if name == _SURROGATE}
        models = sum(weights.values())
        own = (1.0 - models) * settings.ownership
        rest = 1.0 - models - own
        weights |= {n: own / len(self._family) for n in self._family}
        weights |= {n: rest / len(GENERIC) for n in GENERIC}
        return weights

    def _offered(self) -> dict[str, float]:
        """Return prior weights of the operators that can apply now."""
        if not len(self._wins):
            return self._priors
        operators = sum(p for name, p in self._priors.items() if name not in self._models)
        share = min(_WIN_SHARE, operators)
        return self._priors | {"win.apply": share, "win.genome": share / 3}

    def _choices(self) -> tuple[list[str], list[float]]:
        """Return operators and their chances; they change only when something is learned."""
        if self._chances is None:
            self._chances = self._credit.chances(self._advised(self._offered()))
        return list(self._chances), list(self._chances.values())

    def _advised(self, weights: Mapping[str, float]) -> dict[str, float]:
        """Return weights times what the controller advises."""
        return {name: weight * self._advice.get(name, 1.0) for name, weight in weights.items()}

    def _scene(self, route: str) -> Scene:
        mates = [i.genome for i in self._population.colony if i.genome.route == route]
        return Scene(self._terrains[route], tuple(mates))

    def _drawn(self, turn: Turn, route: str, n: int) -> list[Genome]:
        space: Space = self._terrains[route].space
        drawn = {
            genome.fingerprint: genome for genome in (space.sample(turn.rng) for _ in range(n))
        }
        return list(drawn.values())


def _step(draft: Proposal, known: Mapping[str, Individual]) -> tuple[int, float]:
    """Return in how many genes a draft differs from its parent, and how bad that one is."""
    parent = known.get(draft.parents[0]) if draft.parents else None
    if parent is None:
        return len(draft.genome) + 1, 0.0
    old = parent.genome
    differing = sum(old.get(name) != allele for name, allele in draft.genome.items())
    return differing, -parent.score
