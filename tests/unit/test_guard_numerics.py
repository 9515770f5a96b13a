"""Wrong outputs that an absolute tolerance, a match ratio or a friendly reference would pass."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from kernelarc.bench import compare, compare_exact, epsilon_of, numpy_dtype
from kernelarc.genomes import InputError, Tolerance

K = 256
DEFAULT = Tolerance()


def product(seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((64, K), dtype=np.float32)
    b = rng.standard_normal((K, 48), dtype=np.float32)
    return a, b, a.astype(np.float64) @ b.astype(np.float64)


def verdict(output: NDArray[np.generic], reference: NDArray[np.generic]) -> str | None:
    return compare(output, reference, DEFAULT, dtype="float32", depth=K).failure


def test_an_honest_product_passes() -> None:
    a, b, reference = product()
    found = compare(a @ b, reference, DEFAULT, dtype="float32", depth=K)
    assert (found.ok, found.failure, found.matched_ratio) == (True, None, 1.0)
    assert 0 < found.max_error < 1e-3


def test_slow_but_honest_summation_orders_pass() -> None:
    rng = np.random.default_rng(2)
    a = rng.random((16, 8192), dtype=np.float32)  # all positive: errors do not cancel
    forward = np.zeros(16, dtype=np.float32)
    for column in range(a.shape[1]):
        forward += a[:, column]
    found = compare(forward, a.sum(axis=1, dtype=np.float64), DEFAULT, dtype="float32", depth=8192)
    assert found.ok, found.message


@pytest.mark.parametrize("scale", [1.0, 1e-2, 1e-4, 1e-8, 1e6])
def test_zero_output_fails_at_every_scale(scale: float) -> None:
    """Row 2: with an absolute tolerance alone, zeros pass below it."""
    _, _, reference = product()
    assert verdict(np.zeros(reference.shape, np.float32), scale * reference) == "output all zero"


def test_zero_output_is_right_where_the_reference_is_zero() -> None:
    zeros = np.zeros((4, 4))
    assert verdict(zeros.astype(np.float32), zeros) is None
    assert verdict(np.full((4, 4), 1e-3, np.float32), zeros) is not None


def test_constant_output_fails_unless_the_reference_is_constant() -> None:
    small = 1e-3 * (1.0 + 1e-3 * np.random.default_rng(0).standard_normal((32, 32)))
    constant = np.full(small.shape, 1e-3, dtype=np.float32)
    assert verdict(constant, small) == "output constant"
    assert verdict(constant, np.full(small.shape, 1e-3)) is None
    assert verdict(small.astype(np.float32), small) is None


@pytest.mark.parametrize("intruder", [math.nan, math.inf, -math.inf])
def test_one_element_that_is_not_finite_fails(intruder: float) -> None:
    """Row 3."""
    a, b, reference = product()
    output = a @ b
    output[3, 5] = intruder
    found = compare(output, reference, DEFAULT, dtype="float32", depth=K)
    assert found.failure == "output not finite"
    assert "(3, 5)" in found.message


def test_matching_nan_or_inf_do_not_agree_with_each_other() -> None:
    for value in (math.nan, math.inf, -math.inf):
        both = np.array([1.0, value, 2.0])
        assert verdict(both.astype(np.float32), both) == "reference not finite"


def test_negative_infinity_passes_only_where_allowed_and_expected() -> None:
    allowed = Tolerance(allow_negative_inf=True)
    reference = np.array([1.0, -math.inf, 2.0])

    def failure(values: list[float]) -> str | None:
        output = np.array(values, dtype=np.float32)
        return compare(output, reference, allowed, dtype="float32").failure

    assert failure([1.0, -math.inf, 2.0]) is None
    assert failure([1.0, 0.0, 2.0]) == "output not finite"
    assert failure([-math.inf, -math.inf, 2.0]) == "output not finite"
    assert failure([1.0, math.inf, 2.0]) == "output not finite"
    everywhere = np.full(3, -math.inf)
    assert compare(everywhere.astype(np.float32), everywhere, allowed, dtype="float32").ok


def test_one_huge_error_fails_although_the_match_ratio_is_met() -> None:
    """Row 4: the cap is set although the tolerance names none."""
    a, b, reference = product()
    output = a @ b
    output[10, 10] += 8.0 * float(np.std(reference))
    found = compare(output, reference, DEFAULT, dtype="float32", depth=K)
    assert found.matched_ratio > 0.999
    assert found.failure == "error above the cap"


def test_a_cap_from_the_workload_holds_unless_it_caps_nothing() -> None:
    reference = np.linspace(1.0, 2.0, 1000)
    output = reference.astype(np.float32)
    output[7] += 0.5
    tight, loose, absent = (
        Tolerance(max_error_cap=cap, required_matched_ratio=0.9) for cap in (0.1, 0.6, 1e9)
    )

    def failure(tolerance: Tolerance) -> str | None:
        return compare(output, reference, tolerance, dtype="float32", compute="bfloat16").failure

    assert failure(tight) == "error above the cap"
    assert failure(loose) is None
    output[7] += 2.0
    assert failure(absent) == "error above the cap"


def test_too_few_matching_elements_fail() -> None:
    a, b, reference = product()
    output = a @ b
    output[::10] += 0.03 * float(np.std(reference))
    found = compare(output, reference, DEFAULT, dtype="float32", depth=K)
    assert found.failure == "too few elements match"
    assert found.matched_ratio < 0.99


@pytest.mark.parametrize(
    ("output", "failure"),
    [
        (np.ones((3, 4), dtype=np.float64), "wrong dtype"),
        (np.ones((3, 4), dtype=np.float16), "wrong dtype"),
        (np.ones((4, 3), dtype=np.float32), "wrong shape"),
        (np.ones(12, dtype=np.float32), "wrong shape"),
    ],
)
def test_dtype_and_shape_are_exact(output: NDArray[np.generic], failure: str) -> None:
    assert verdict(output, np.ones((3, 4))) == failure


@pytest.mark.parametrize("lowered", [np.float16])
def test_a_quietly_lowered_precision_fails(lowered: type[np.float16]) -> None:
    """Row 13: inside the tolerance, far outside what the declared type gives."""
    a, b, reference = product()
    cheap = (a.astype(lowered).astype(np.float32) @ b.astype(lowered).astype(np.float32)).astype(
        np.float32
    )
    loose = Tolerance(required_matched_ratio=0.9)
    found = compare(cheap, reference, loose, dtype="float32", depth=K)
    assert found.failure == "precision below the declared type"
    declared = compare(cheap, reference, loose, dtype="float32", compute="float16", depth=K)
    assert declared.ok


def test_partial_sums_in_the_output_type_fail() -> None:
    """Row 10: float16 output whose sums were kept in float16, K long."""
    rng = np.random.default_rng(4)
    a = rng.random((64, 4096), dtype=np.float32).astype(np.float16)
    reference = a.astype(np.float64).sum(axis=1)
    kept = np.zeros(64, dtype=np.float16)
    for column in range(a.shape[1]):
        kept += a[:, column]
    honest = a.astype(np.float32).sum(axis=1).astype(np.float16)
    relative = Tolerance(max_atol=0.2, max_rtol=0.2)

    def passes(output: NDArray[np.float16]) -> bool:
        return compare(
            output, reference, relative, dtype="float16", compute="float32", depth=4096
        ).ok

    assert passes(honest)
    assert not passes(kept)


@pytest.mark.parametrize("parts", [1, 12])
def test_a_product_added_to_its_output_in_parts_is_no_honest_rounding(parts: int) -> None:
    """Row 10: within the default tolerance; each part's sum is rounded to the output's type."""
    rng = np.random.default_rng(8)
    a, b, held = (
        rng.standard_normal(shape, dtype=np.float32).astype(np.float16)
        for shape in ((320, 960), (960, 512), (320, 512))
    )
    b = (b / np.float16(31.0)).astype(np.float16)
    reference = a.astype(np.float64) @ b.astype(np.float64) + held
    for places in np.array_split(np.arange(960), parts):
        product = a[:, places].astype(np.float64) @ b[places].astype(np.float64)
        held = (held + product.astype(np.float32)).astype(np.float16)
    coarse = Tolerance(max_atol=0.00125, max_rtol=0.00125)  # as wide for float16 as for bfloat16
    found = compare(held, reference, coarse, dtype="float16", compute="float32", depth=960)
    assert found.matched_ratio > 0.99
    assert found.failure == (None if parts == 1 else "precision below the declared type")


def test_an_index_error_within_rounding_noise_is_seen_by_the_exact_canary() -> None:
    """Row 5: the last of K products is dropped."""
    ones_a, ones_b = np.ones((8, K), np.float32), np.ones((K, 8), np.float32)
    expected = np.full((8, 8), K)
    right, tail_lost = ones_a @ ones_b, ones_a[:, :-1] @ ones_b[:-1]
    rough = Tolerance(max_atol=0.05, max_rtol=0.05)
    assert compare(tail_lost, expected, rough, dtype="float32", compute="float16", depth=K).ok
    assert compare_exact(right, expected, dtype="float32").ok
    found = compare_exact(tail_lost, expected, dtype="float32")
    assert found.failure == "canary not exact"
    assert "255 where the sum is exactly 256" in found.message


def test_a_canary_refuses_nan_and_wrong_forms() -> None:
    expected = np.full((2, 2), 3)
    broken = np.array([[3.0, math.nan], [3.0, 3.0]], dtype=np.float32)
    assert compare_exact(broken, expected, dtype="float32").max_error == math.inf
    assert compare_exact(broken.astype(np.float64), expected, dtype="float32").failure


def test_dtypes_are_named_exactly() -> None:
    assert numpy_dtype("float32") == np.float32
    assert epsilon_of("bfloat16") == 2.0**-7
    assert epsilon_of("int32") == 0.0
    with pytest.raises(InputError, match="cannot be held on the cpu"):
        numpy_dtype("bfloat16")
    with pytest.raises(InputError, match="did you mean 'float32'"):
        numpy_dtype("flaot32")
