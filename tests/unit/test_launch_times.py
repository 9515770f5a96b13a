"""From a profiler's spans to what each kernel of a call takes."""

from __future__ import annotations

import pytest

from kernelarc.bench.experiments.launch_times import table


def test_kernels_of_a_call_are_told_by_their_place() -> None:
    spans = [
        (name, 100.0 * call + begin, 100.0 * call + begin + took + call)
        for call in range(3)
        for name, begin, took in (("b", 20.0, 30.0), ("a", 0.0, 10.0), ("a", 60.0, 5.0))
    ]
    found = table(spans, 3)
    assert [row["kernel"] for row in found["kernels"]] == ["a", "b", "a"]
    assert [row["us"] for row in found["kernels"]] == [11.0, 31.0, 6.0]
    assert found["span_us"] == 66.0


def test_calls_of_other_kernels_are_no_table() -> None:
    with pytest.raises(ValueError, match="no 2 equal calls"):
        table([("a", 0.0, 1.0), ("b", 2.0, 3.0), ("a", 4.0, 5.0)], 2)
    with pytest.raises(ValueError, match="other kernels"):
        table([("a", 0.0, 1.0), ("b", 2.0, 3.0)], 2)
