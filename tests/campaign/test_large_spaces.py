"""Generated spaces too large to list, with known optima: searched without enumerating them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from kernelarc.bench.experiments._formula import FormulaDevice
from kernelarc.engine import CampaignResult, CampaignSettings, run
from kernelarc.genomes import (
    Allele,
    Boolean,
    Choice,
    ExpressionConstraint,
    Gene,
    Genome,
    IntegerRange,
    PowerOfTwo,
    Space,
    assign_strategies,
)


def seven_digits() -> tuple[FormulaDevice, dict[str, Allele]]:
    """About 10^7 legal genomes: tiles that must fit a memory, a cliff, and genes that interact."""
    genes = [
        PowerOfTwo(name="m", low=8, high=1024),
        PowerOfTwo(name="n", low=8, high=1024),
        PowerOfTwo(name="k", low=8, high=256),
        IntegerRange(name="depth", low=1, high=8),
        PowerOfTwo(name="width", low=1, high=16),
        Choice(name="order", options=("rows", "columns", "blocks", "curve")),
        IntegerRange(name="unroll", low=1, high=16),
        IntegerRange(name="group", low=1, high=16),
        Boolean(name="pad"),
    ]
    names = [gene.name for gene in genes]
    fits = ExpressionConstraint("(m + n) * k * depth <= 65536", names)
    space = assign_strategies(Space("wide", genes, [fits]))
    optimum: dict[str, Allele] = {"m": 128, "n": 256, "k": 32, "depth": 4, "width": 8}
    optimum["order"] = "blocks"

    def formula(g: Genome) -> float:
        def log2(name: str) -> int:
            value = g[name]
            assert isinstance(value, int)
            return value.bit_length() - 1

        unroll, group, depth = g["unroll"], g["group"], g["depth"]
        assert isinstance(unroll, int)
        assert isinstance(group, int)
        assert isinstance(depth, int)
        cost = 1.0 + 0.15 * (log2("m") - 7) ** 2 + 0.12 * (log2("n") - 8) ** 2
        cost += 0.08 * abs(log2("k") - 5) + 0.05 * (depth - 4) ** 2
        cost += 0.2 * abs(log2("width") - 3) + (0.0 if g["order"] == "blocks" else 0.25)
        cost += 0.01 * abs(unroll - 8) + 0.015 * abs(group - 5)
        cost += 0.0 if g["pad"] == (log2("width") >= 3) else 0.3
        return cost * (3.0 if unroll * group > 160 else 1.0)

    return FormulaDevice(space, formula), optimum


def twelve_digits() -> tuple[FormulaDevice, dict[str, Allele]]:
    """10^12 raw combinations of twelve genes with ten alleles; neighbours interact in pairs."""
    genes: list[Gene] = [IntegerRange(name=f"g{i}", low=0, high=9) for i in range(12)]
    names = [gene.name for gene in genes]
    constraints = [ExpressionConstraint(f"g{i} + g{i + 1} <= 12", names) for i in range(0, 12, 2)]
    space = assign_strategies(Space("long", genes, constraints))
    optimum = {f"g{i}": (3 * i + 2) % 7 for i in range(12)}

    def formula(g: Genome) -> float:
        off = [abs(int(str(g[name])) - best) for name, best in optimum.items()]
        pairs = sum(one * other for one, other in pairwise(off))
        return 1.0 + 0.05 * sum(off) + 0.01 * pairs

    return FormulaDevice(space, formula), dict(optimum)


def search(device: FormulaDevice, budget: int, folder: Path) -> CampaignResult:
    settings = CampaignSettings(
        target="formula", budget=budget, seed=3, store=str(folder / "large.db")
    )
    return run(settings, device=device, problem=device.problem())


@pytest.fixture
def no_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever lists a large space fails the test."""

    def refuse(self: Space) -> Iterator[Genome]:
        raise AssertionError("the space was enumerated")

    monkeypatch.setattr(Space, "enumerate", refuse)


@pytest.mark.usefixtures("no_listing")
def test_ten_million_legal_genomes(tmp_path: Path) -> None:
    device, optimum = seven_digits()
    size = device.space.size()
    assert size.exact
    assert 0.8e7 < size.legal < 2e7
    best = device.space.genome({**optimum, "unroll": 8, "group": 5, "pad": True})
    assert device.formula(best) == 1.0
    began = time.monotonic()
    result = search(device, 300, tmp_path)
    assert result.best is not None
    assert result.best.objective < 1.1
    assert time.monotonic() - began < 60


@pytest.mark.usefixtures("no_listing")
def test_ten_to_the_twelfth_raw_combinations(tmp_path: Path) -> None:
    device, optimum = twelve_digits()
    assert device.space.size().raw == 10**12
    assert device.formula(device.space.genome(optimum)) == 1.0
    result = search(device, 400, tmp_path)
    assert result.best is not None
    assert result.best.objective < 1.2
