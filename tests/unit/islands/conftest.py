"""A small world for islands: spaces, a log to read, and a judge with a smooth landscape."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from kernelarc.genomes import (
    Boolean,
    Candidate,
    Choice,
    Conclusion,
    ConclusionKind,
    Estimate,
    Evaluation,
    ExpressionConstraint,
    Genome,
    IntegerRange,
    Judged,
    Measurement,
    Permutation,
    PowerOfTwo,
    Proposal,
    Space,
    Status,
    Strategy,
    Verdict,
    When,
)
from kernelarc.islands import Habitat, Island, IslandSettings, build_islands

WORKLOAD = "w" * 24


class Log:
    """The readable log: what View asks for."""

    def __init__(self) -> None:
        self.judged: list[Judged] = []
        self.seen: set[str] = set()

    def add(self, judged: Judged) -> None:
        self.judged.append(judged)
        self.seen.add(judged.evaluation.candidate.genome.fingerprint)

    def evaluated(self, fingerprint: str) -> bool:
        return fingerprint in self.seen

    def recent(self, n: int) -> Sequence[Judged]:
        return self.judged[-n:] if n else []

    def best(self, n: int) -> Sequence[Judged]:
        ranked = [
            (one.evaluation.measurement.objective, one.evaluation.candidate.genome.fingerprint, one)
            for one in self.judged
            if one.evaluation.measurement is not None
        ]
        return [one for _, _, one in sorted(ranked, key=lambda entry: entry[:2])[:n]]

    def count(self) -> int:
        return len(self.judged)


class World:
    """Spaces by name, islands on them, and one deterministic judge."""

    workload = WORKLOAD

    def __init__(self) -> None:
        self.spaces = _spaces()

    @staticmethod
    def log() -> Log:
        return Log()

    def islands(
        self,
        space: str = "plain",
        *,
        models: bool = False,
        plateau: int = 60,
        only: Sequence[str] | None = None,
        settings: IslandSettings | None = None,
    ) -> list[Island]:
        habitat = Habitat(
            spaces={name: self.spaces[name] for name in space.split("+")},
            workload=WORKLOAD,
            plateau=plateau,
        )
        chosen = settings or IslandSettings(models=models)
        built = build_islands(habitat, only=only, settings=chosen)
        return [island for island in built if island.asleep() is None]

    def objective(self, genome: Genome) -> float | None:
        """Return a smooth objective, or None for one genome in eight: it fails."""
        if int(genome.fingerprint[0], 16) < 2:
            return None
        space = self.spaces[genome.route]
        places = [
            space.gene(name).index(allele) / max(space.gene(name).cardinality - 1, 1)
            for name, allele in genome.items()
        ]
        return 1.0 + float(np.square(np.array(places) - 0.37).sum())

    @staticmethod
    def judge(
        proposal: Proposal,
        objective: float | None,
        *,
        number: int = 0,
        island: str = "memory",
        verdict: Verdict = Verdict.REVERT,
        censored: bool = False,
    ) -> Judged:
        candidate = Candidate(
            number=number,
            round=number,
            workload=WORKLOAD,
            island=island,
            mutation=proposal.mutation,
            genome=proposal.genome,
            parents=proposal.parents,
        )
        if objective is None:
            failed = Evaluation(
                candidate=candidate, status=Status.COMPILE_ERROR, failure="compiler error"
            )
            return Judged(evaluation=failed, verdict=Verdict.FAIL)
        measurement = Measurement(samples=(objective,), objective=objective, censored=censored)
        passed = Evaluation(candidate=candidate, status=Status.OK, measurement=measurement)
        return Judged(evaluation=passed, verdict=verdict)

    def play(
        self,
        islands: Sequence[Island],
        rounds: int,
        *,
        seed: int = 0,
        log: Log | None = None,
        objective: Callable[[Genome], float | None] | None = None,
    ) -> Log:
        """Let islands propose in turn, one genome each; judge, tell and log it."""
        log = Log() if log is None else log
        judge_by = objective or self.objective
        best = math.inf
        for turn in range(rounds):
            island = islands[turn % len(islands)]
            rng = np.random.default_rng([seed, turn])
            for proposal in island.ask(1, rng, log):
                found = judge_by(proposal.genome)
                verdict = Verdict.KEEP if (found or math.inf) < best else Verdict.REVERT
                best = min(best, found or math.inf)
                judged = self.judge(
                    proposal, found, number=log.count(), island=island.name, verdict=verdict
                )
                log.add(judged)
                island.tell([judged])
        return log

    @staticmethod
    def conclusion(
        kind: ConclusionKind, genome: Genome | None = None, **more: object
    ) -> Conclusion:
        gain = Estimate(value=1.2, low=1.1, high=1.3, n=5)
        wins = kind is ConclusionKind.WIN
        fields: Mapping[str, object] = {
            "operator": "o" * 24,
            "workload": WORKLOAD,
            "route": "plain",
            "island": "fusion",
            "why": "seen in a test",
            "speedup": gain if wins else None,
            "failure": "compiler error" if kind is ConclusionKind.TRAP else None,
            **more,
        }
        return Conclusion(kind=kind, genome=genome, **fields)  # type: ignore[arg-type]


def _spaces() -> Mapping[str, Space]:
    s = Strategy
    tiles = [
        PowerOfTwo(name="tile_m", low=16, high=256, strategy=s.TENSOR_CORE),
        PowerOfTwo(name="tile_n", low=16, high=256, strategy=s.TENSOR_CORE),
    ]
    plain = [
        *tiles,
        Choice(name="warps", options=(1, 2, 4, 8), strategy=s.TENSOR_CORE),
        IntegerRange(name="stages", low=1, high=6, strategy=s.MEMORY),
        Choice(name="vector", options=(1, 2, 4, 8), strategy=s.MEMORY),
        Boolean(name="fuse_bias", strategy=s.FUSION),
        Choice(name="dequantise", options=("load", "use", "store"), strategy=s.FUSION),
        Boolean(name="fast_math", strategy=s.PRECISION),
        Choice(name="accumulator", options=("f16", "f32"), strategy=s.PRECISION),
        PowerOfTwo(name="split", low=1, high=16, strategy=s.REDUCTION),
        Choice(name="scheme", options=("atomic", "two_pass"), strategy=s.REDUCTION),
        Permutation(name="order", items=("m", "n", "k"), strategy=s.SCHEDULING),
        Choice(name="raster", options=("row", "column"), strategy=s.SCHEDULING),
    ]
    rules = [
        ExpressionConstraint("tile_m * tile_n <= 16384", ("tile_m", "tile_n")),
        ExpressionConstraint("stages * tile_m <= 768", ("stages", "tile_m")),
        ExpressionConstraint(
            "split == 1 or scheme != 'atomic' or fast_math", ("split", "scheme", "fast_math")
        ),
    ]
    dependent = [
        Choice(name="algo", options=("a", "b", "c"), strategy=s.LIBRARY),
        PowerOfTwo(name="tile", low=8, high=64, strategy=s.LIBRARY, when=When("algo", ("a", "b"))),
        IntegerRange(name="depth", low=1, high=9, strategy=s.MEMORY, when=When("algo", ("b",))),
        Boolean(name="swizzle", strategy=s.SCHEDULING),
    ]
    return {
        "plain": Space("plain", plain, rules),
        "dependent": Space("dependent", dependent),
        "single": Space("single", [Choice(name="x", options=(7,), strategy=s.MEMORY)]),
        "pair": Space("pair", [Boolean(name="x", strategy=s.FUSION)]),
        "line": Space("line", [IntegerRange(name="x", low=0, high=40, strategy=s.MEMORY)]),
        "pinned": Space(
            "pinned",
            [
                PowerOfTwo(name="a", low=1, high=8, strategy=s.TENSOR_CORE),
                PowerOfTwo(name="b", low=1, high=8, strategy=s.MEMORY),
            ],
            [ExpressionConstraint("a * b == 64", ("a", "b"))],
        ),
        "orders": Space(
            "orders",
            [
                Permutation(name="outer", items=tuple("abcdefgh"), strategy=s.SCHEDULING),
                Permutation(name="inner", items=tuple("xyz"), strategy=s.SCHEDULING),
            ],
        ),
        "huge": Space(
            "huge",
            [
                IntegerRange(name=f"g{i}", low=0, high=999, strategy=tuple(s)[1 + i % 6])
                for i in range(4)
            ],
        ),
    }


@pytest.fixture(scope="session")
def world() -> World:
    return World()
