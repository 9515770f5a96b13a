"""When a speed-up that was claimed counts as found again."""

from __future__ import annotations

import pytest

from kernelarc.engine._verify import still_holds
from kernelarc.genomes import Estimate


def estimate(low: float, high: float) -> Estimate:
    return Estimate(value=(low + high) / 2, low=low, high=high, n=20)


@pytest.mark.parametrize(
    ("claimed", "now", "holds"),
    [
        ((1.30, 1.34), (1.31, 1.40), True),
        ((1.839, 1.887), (1.761, 1.827), True),  # seen between two sittings on one CPU
        ((1.839, 1.887), (1.50, 1.60), False),
        ((1.05, 1.06), (1.001, 1.004), False),  # of a small gain little may be lost
        ((1.05, 1.06), (1.040, 1.046), True),
        ((1.05, 1.06), (0.99, 1.06), True),  # not sure, but nothing speaks against it
        ((1.05, 1.06), (0.90, 0.95), False),
        ((0.80, 0.82), (0.70, 0.72), False),
    ],
)
def test_nine_tenths_of_the_gain_suffice(
    claimed: tuple[float, float], now: tuple[float, float], holds: bool
) -> None:
    assert still_holds(estimate(*claimed), estimate(*now)) is holds
