"""Row 22: a time below the floor is an instrument fault; an honest one never is."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelarc.bench import Peak, cpu_peak, floor_of, flops_per_cycle, highest_clock_hz

PEAK = Peak(flops_per_s=1e12, memory_bytes_per_s=1e11, cache_bytes_per_s=1e12, cache_bytes=32e6)


def test_arithmetic_sets_the_floor_of_a_product() -> None:
    floor = floor_of(PEAK, flops=2e9, bytes_moved=12e6)
    assert floor.reason == "arithmetic"
    assert floor.latency_us == pytest.approx(2000.0)
    assert floor.fault(2000.0) is None
    fault = floor.fault(1900.0)
    assert fault is not None
    assert "instrument fault" in fault
    assert "faster than physics" in fault


def test_bytes_that_fit_in_the_cache_count_only_when_cold() -> None:
    cold = floor_of(PEAK, flops=None, bytes_moved=30e6, cache="cold")
    warm = floor_of(PEAK, flops=None, bytes_moved=30e6, cache="warm")
    assert cold.reason == "memory"
    assert cold.latency_us == pytest.approx(300.0)
    assert warm.reason == "cache"
    assert warm.latency_us == pytest.approx(30.0)
    beyond = floor_of(PEAK, flops=None, bytes_moved=132e6, cache="warm")
    assert beyond.reason == "memory"
    assert beyond.latency_us == pytest.approx(1000.0)


def test_nothing_known_means_no_fault() -> None:
    floor = floor_of(PEAK, flops=None, bytes_moved=None)
    assert (floor.reason, floor.fault(1e-9)) == ("unknown", None)


def test_a_peak_errs_towards_too_fast() -> None:
    """Published peaks of real chips, single precision, all below ours."""
    features = {"avx2": {"fma", "avx", "avx2"}, "avx512": {"fma", "avx2", "avx512f"}}
    epyc_7763 = cpu_peak(cores=64, clock_hz=3.5e9, features=features["avx2"], cache_bytes=1)
    assert epyc_7763.flops_per_s >= 64 * 3.5e9 * 32
    assert epyc_7763.memory_bytes_per_s >= 204.8e9
    xeon_8480 = cpu_peak(cores=56, clock_hz=3.8e9, features=features["avx512"], cache_bytes=1)
    assert xeon_8480.flops_per_s >= 56 * 3.8e9 * 64
    assert xeon_8480.memory_bytes_per_s >= 307.2e9


def test_widest_feature_counts_and_the_unknown_is_wide() -> None:
    assert flops_per_cycle({"sse2", "avx", "fma"}) == 32
    assert flops_per_cycle({"sse2"}) == 8
    assert flops_per_cycle({"asimd", "sve"}) == 64
    assert flops_per_cycle(set()) == 64
    assert flops_per_cycle({"fma"}, "float64") == 16
    assert flops_per_cycle({"fma"}, "bfloat16") > flops_per_cycle({"fma"})


def test_the_highest_clock_is_read_or_assumed_beyond_any(tmp_path: Path) -> None:
    for core, kilohertz in ((0, "3500000"), (1, "3900000")):
        folder = tmp_path / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "cpuinfo_max_freq").write_text(kilohertz + "\n")
    assert highest_clock_hz((0, 1), tmp_path) == 3.9e9
    assert highest_clock_hz((0, 2), tmp_path) == 6.0e9
