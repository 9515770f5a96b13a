"""Choosing the fastest of a user's own ways: none is left out without a word."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kernelarc.bench.cuda._protocol import ContestReply
from kernelarc.bench.kernels import _rivals
from kernelarc.bench.kernels._messages import BaselineContender, TriedBaseline
from kernelarc.bench.kernels._rivals import Rivals, chosen
from kernelarc.bench.kernels._torch_calls import is_compiled, torch_names
from kernelarc.genomes import Operator, packaged_problem


class Track:
    """Baselines of fixed speed, tried and raced."""

    def __init__(self, tried: Mapping[str, TriedBaseline], raced_us: Mapping[str, float]) -> None:
        self._tried, self._raced = tried, raced_us
        self.rounds: list[int] = []
        self.limits: dict[str, float] = {}
        self.told: list[tuple[int, float, float | None]] = []
        self.now_s = self.costs_s = 0.0

    def ask(self, name: str, seconds: float) -> TriedBaseline:
        self.limits[name] = seconds
        self.now_s += self.costs_s
        return self._tried[name]

    def contest(self, some: Sequence[BaselineContender], rounds: int) -> ContestReply | None:
        self.rounds.append(rounds)
        row = tuple(self._raced.get(one.name, math.nan) for one in some)
        failures = {i: "launch refused" for i, us in enumerate(row) if math.isnan(us)}
        return ContestReply(samples=(row,) * rounds, failures=failures, launches=1)

    def tell(self, number: int, limit_s: float, ended: tuple[TriedBaseline, float] | None) -> None:
        self.told.append((number, limit_s, None if ended is None else ended[1]))

    def run(self, left_out: Sequence[str] = ()) -> Rivals:
        names = [name for name in self._tried if name not in left_out]
        return chosen(
            names,
            self.ask,
            self.contest,
            left_out=left_out,
            tell=self.tell,
            clock=lambda: self.now_s,
        )


def bare(found: Rivals) -> dict[str, dict[str, Any]]:
    """Return what came of each, without what it took."""
    return {
        name: {key: value for key, value in one.items() if key != "seconds"}
        for name, one in found.to_json().items()
    }


def took(us: float, wrong: str = "") -> TriedBaseline:
    return TriedBaseline(latency_us=us, wrong=wrong)


def test_the_fastest_side_by_side_counts_not_the_fastest_alone() -> None:
    track = Track(
        {"torch eager": took(400.0), "torch flash": took(300.0)},
        {"torch eager": 40.0, "torch flash": 50.0},
    )
    found = track.run()
    assert found.fastest == "torch eager"
    assert found.told == {"torch eager": 40.0, "torch flash": 50.0}
    assert track.rounds == [15]


def test_what_is_far_behind_is_not_raced_but_told() -> None:
    track = Track(
        {"torch eager": took(84_000.0), "torch grouped": took(4000.0), "torch x": took(39_000.0)},
        {"torch grouped": 3900.0, "torch x": 38_000.0},
    )
    found = track.run()
    assert found.fastest == "torch grouped"
    assert bare(found) == {
        "torch eager": {"us": 84_000.0},
        "torch grouped": {"us": 3900.0},
        "torch x": {"us": 38_000.0},
    }
    assert track.rounds == [15]
    slow = Track({"torch eager": took(5e5), "torch x": took(5e5)}, {"torch eager": 5e5})
    assert bare(slow.run())["torch x"] == {"failed": "launch refused"}
    assert slow.rounds == [3], "slow ones get few rounds"


def test_who_is_wrong_or_fails_is_named_with_the_cause() -> None:
    track = Track(
        {
            "torch eager": took(30.0),
            "torch sdpa": took(10.0, wrong="mismatch: out: 90 % of the elements match"),
            "torch compile": TriedBaseline(cause="Unsupported: Tensor.item"),
        },
        {},
    )
    found = track.run()
    assert found.fastest == "torch eager"
    assert bare(found) == {
        "torch eager": {"us": 30.0},
        "torch sdpa": {"failed": "wrong: mismatch: out: 90 % of the elements match"},
        "torch compile": {"failed": "Unsupported: Tensor.item"},
    }
    assert not track.rounds, "one alone needs no race"


def test_nobody_is_held_to_a_tolerance_that_the_reference_itself_misses() -> None:
    track = Track(
        {"torch eager": took(30.0, "off"), "torch sdpa": took(10.0, "off as well")},
        {"torch eager": 31.0, "torch sdpa": 11.0},
    )
    found = track.run()
    assert found.fastest == "torch sdpa"
    assert bare(found) == {
        "torch eager": {"us": 31.0, "off": "off"},
        "torch sdpa": {"us": 11.0},
    }


def test_compilers_share_a_time_and_who_comes_too_late_is_named() -> None:
    names = ["torch eager", "torch compile", "torch a compile", "torch b compile"]
    track = Track(dict.fromkeys(names, took(10.0)), dict.fromkeys(names, 10.0))
    track.costs_s = 100.0
    found = track.run()
    assert track.limits == {
        "torch eager": _rivals.TRY_S, "torch compile": 90.0, "torch a compile": 80.0,
    }  # fmt: skip
    assert "not tried" in found.to_json()["torch b compile"]["failed"]
    assert found.fastest is not None
    assert found.seconds == dict.fromkeys(names[:3], 100.0)
    assert "seconds" not in found.to_json()["torch b compile"]
    assert found.to_json()["torch compile"]["seconds"] == 100.0


def test_each_is_told_of_before_it_is_tried_and_with_its_seconds_after() -> None:
    names = ["torch eager", "torch compile"]
    track = Track(dict.fromkeys(names, took(10.0)), dict.fromkeys(names, 10.0))
    track.costs_s = 7.0
    track.run()
    assert track.told == [
        (0, _rivals.TRY_S, None),
        (0, _rivals.TRY_S, 7.0),
        (1, _rivals.COMPILE_S, None),
        (1, _rivals.COMPILE_S, 7.0),
    ]


def test_what_is_not_wanted_is_not_tried_and_said_to_be_left_out() -> None:
    names = ["torch eager", "torch sdpa", "torch compile"]
    track = Track(dict.fromkeys(names, took(10.0)), dict.fromkeys(names, 10.0))
    found = track.run(["torch eager", "torch compile"])
    assert found.fastest == "torch sdpa" and list(track.limits) == ["torch sdpa"]
    assert bare(found) == {
        "torch sdpa": {"us": 10.0},
        "torch eager": {"left_out": True},
        "torch compile": {"left_out": True},
    }


def test_eager_mode_is_the_measure_of_tolerance_although_it_is_left_out() -> None:
    """Else a choice would refuse what is taken without one."""
    both = {"torch eager": took(30.0, "off"), "torch sdpa": took(10.0, "off as well")}
    found = Track(both, {}).run(["torch eager"])
    assert found.fastest == "torch sdpa"
    assert bare(found)["torch eager"] == {"left_out": True, "off": "off"}
    exact = {**both, "torch eager": took(30.0)}
    refused = Track(exact, {}).run(["torch eager"])
    assert refused.fastest is None
    assert bare(refused)["torch sdpa"] == {"failed": "wrong: off as well"}


@pytest.mark.parametrize("compiles", [True, False])
def test_all_that_torch_has_is_on_offer(compiles: bool) -> None:
    names = torch_names(packaged_problem("gqa_paged_prefill").operator, compiles=compiles)
    plain = ("torch eager", "torch flash", "torch flash_bound", "torch flash_each")
    more = ("torch compile", "torch flash_bound compile")
    assert names == (plain + more if compiles else plain)
    assert [name for name in names if is_compiled(name)] == list(more if compiles else ())
    unknown = Operator(name="mine", axes={}, inputs=(), outputs=(), reference="import torch")
    assert torch_names(unknown, compiles=True) == ("torch eager", "torch compile")
