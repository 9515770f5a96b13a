"""Builds that leave a choice to the device, which alone can tell what two of them come to."""

from __future__ import annotations

import os
from functools import partial

from tests.unit.compiling_routes import PlantedRoute, plain_build
from tests.unit.formula_bench import FormulaBench

from kernelarc.bench.cuda._protocol import Outcome
from kernelarc.bench.kernels._messages import Contender, PlanContender
from kernelarc.bench.kernels._repeats import Repeats
from kernelarc.genomes import Genome, Operator, Status, Workload
from kernelarc.genomes.kernels import Build

MEANS = {
    "slow": "one", "slow 1": "one", "slow 2": "two", "slow 3": "one", "wrong": "three",
    "wrong 1": "three", "dies": "",
}  # fmt: skip
"""What each way comes to on the device."""


class ChoosingRoute(PlantedRoute):
    """Its ways are those of ``MEANS``."""

    def __init__(self, operator: Operator) -> None:
        super().__init__(operator, ways=tuple(MEANS))

    def build(self, workload: Workload, genome: Genome, arch: str) -> Build:
        """Return a build that no other way's is equal to."""
        return plain_build(arch, content=str(genome["way"]).encode())


class ChoosingBench(FormulaBench):
    """Tells equal launches apart from others as the real one does."""

    def __init__(self, ordinal: int) -> None:
        super().__init__(ordinal)
        self._repeats = Repeats()
        self._runs = 0

    def evaluate(
        self, workload: int, number: int, contender: Contender, limit_us: float | None
    ) -> Outcome:
        """Judge what was not judged before; the samples say how many were."""
        assert isinstance(contender, PlanContender)
        (content,) = contender.build.binaries.values()
        way = content.decode()
        if way == "dies":
            os._exit(1)
        judge = partial(self._run, number, way, limit_us)
        return self._repeats.outcome(workload, MEANS[way], number, judge, anew=contender.anew)

    def _run(self, number: int, way: str, limit_us: float | None) -> Outcome:
        if way.startswith("wrong"):
            return Outcome(number=number, status=Status.WRONG_RESULT, failure="error above the cap")
        self._runs += 1
        late = limit_us is not None and limit_us < 20.0
        samples = (30.0 + self._runs,) * 5
        return Outcome(number=number, status=Status.OK, samples=samples, censored=late)
