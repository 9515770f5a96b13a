"""Values that a tensor's name calls for, as the harness shapes them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from kernelarc.bench._shaped_values import narrowed, shaped_values
from kernelarc.genomes import TensorSpec


def made(name: str, shape: tuple[int, ...], *, told: str = "", dtype: str = "float32") -> object:
    letters = tuple(str(extent) for extent in shape)
    spec = TensorSpec(name=name, shape=letters, dtype=dtype, description=told)
    return shaped_values(spec, shape, np.random.default_rng(3))


def values(name: str, shape: tuple[int, ...], told: str = "") -> NDArray[np.float32]:
    found = made(name, shape, told=told)
    assert isinstance(found, np.ndarray) and found.dtype == np.float32 and found.shape == shape
    return found


@pytest.mark.parametrize("name", ["cos", "sin", "cos_cached", "rope_sin"])
def test_angles_are_cosines_and_sines(name: str) -> None:
    found = values(name, (64, 32))
    assert float(np.abs(found).max()) <= 1.0
    assert (found.mean() > 0.4) == ("cos" in name)


@pytest.mark.parametrize(
    ("name", "told"),
    [("attention_mask", ""), ("causal_mask", ""), ("m", "Causal attention mask, added")],
)
def test_causal_masks_hide_what_lies_ahead(name: str, told: str) -> None:
    found = values(name, (2, 5, 5), told)
    ahead = np.triu(np.ones((5, 5), dtype=bool), 1)
    assert np.all(found[:, ~ahead] == 0) and np.all(found[:, ahead] == np.finfo(np.float32).min)


@pytest.mark.parametrize(
    ("name", "told"), [("drop_mask", ""), ("keep_mask", "1.0 for valid tokens"), ("x_mask", "")]
)
def test_other_masks_are_zeros_and_ones(name: str, told: str) -> None:
    assert set(np.unique(values(name, (8, 16), told))) == {0.0, 1.0}


@pytest.mark.parametrize("name", ["rstd", "running_var", "std2", "x_variance"])
def test_spreads_are_positive(name: str) -> None:
    assert float(values(name, (99,)).min()) >= 0.1


def test_decays_stay_in_their_ranges_and_shares_sum_to_one() -> None:
    for name, low, high in (("A", -1, -0.001), ("A_log", -5, -1), ("g", -5, 0)):
        found = values(name, (50,))
        assert low <= found.min() and found.max() <= high
    assert np.all(np.diff(values("A_cumsum", (3, 20)), axis=-1) <= 0)
    for name, told in (("routing_weights", ""), ("p", "Softmax output of the scores")):
        np.testing.assert_allclose(values(name, (7, 9), told).sum(-1), 1.0, rtol=1e-5)


@pytest.mark.parametrize(
    "name", ["x", "gate_proj", "norm_weight", "cosine", "variety", "mask", "Ag"]
)
def test_other_names_call_for_nothing(name: str) -> None:
    assert made(name, (4, 6)) is None


def test_narrow_and_whole_types_are_never_shaped() -> None:
    for dtype in ("float8_e4m3fn", "float4_e2m1fn_x2", "int32", "bool"):
        assert made("cos", (4, 4), dtype=dtype) is None


def test_bfloat16_is_rounded_to_nearest_even() -> None:
    given = np.array([1.0, 1.00390625, 1.01171875, -3.3895313892515355e38, 0.1], dtype=np.float32)
    bits = narrowed(given, "bfloat16")
    back = (bits.astype(np.uint32) << 16).view(np.float32)
    assert back.tolist() == [1.0, 1.0, 1.015625, float(given[3]), 0.10009765625]
    assert narrowed(given[:2], "float16").dtype == np.float16
