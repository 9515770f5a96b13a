"""Drawing a set's inputs on the device: by the workload's rules, and shaped by tensors' names.

Of an operator whose reference is torch's, names and types say how values are spread exactly as in
the harness, whose tolerances are meant for them: weights of a matrix are scaled by their fan-in,
variances are positive, weights of a norm are ones. Ones hide a kernel that leaves them out, so
exact inputs and every variant draw them. Of other operators the second factor of a product is
scaled whatever it is called.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelarc.bench._blob_values import standing_values, stored_values
from kernelarc.bench._shaped_values import narrowed, shaped_values
from kernelarc.bench.cuda._arena import CANARY_TAIL, FILLINGS, PLAIN, Filling
from kernelarc.bench.cuda._kernels import (
    CONSTANT,
    NORMAL,
    POSITIVE,
    WHOLE,
    ZERO_ONE,
    Kernels,
    Tensor,
)
from kernelarc.bench.kernels._job import BoundJob, BoundTensor
from kernelarc.bench.kernels._memory import TensorSet
from kernelarc.bench.kernels._named_draws import Draw, named_draw, random_scalar, whole_values
from kernelarc.bench.kernels._oracle import needs_torch
from kernelarc.genomes import InputError, TensorSpec, axis_values, matmul_roles, stand_in

__all__ = ["FILLINGS", "PLAIN", "Filler", "Filling"]

_MATRIX = re.compile(r"weight|_proj|^w\d*$|^w_|kernel|^b$")
_POSITIVE = re.compile(r"(^|_)(rstd|var|variance|inv_rms)($|_)")
_CANARY_ONES = 64.0
_WHOLE_BELOW = {"bool": 2.0, "float4_e2m1": 16.0, "float4_e2m1fn_x2": 256.0}
_WHOLE_USUAL = 8.0


@dataclass(frozen=True, slots=True)
class Filler:
    """Fills tensors of one job with the judge's kernels."""

    kernels: Kernels
    job: BoundJob

    def fill(self, buffers: TensorSet, seed: int, filling: Filling = PLAIN) -> None:
        """Draw all inputs that are random, and set those that are given as a number."""
        for salt, tensor in enumerate(self.job.inputs):
            self._fill(buffers.tensors[tensor.name], tensor, _mixed(seed, salt), filling)
        self._scalars(buffers, seed)

    def _fill(self, place: Tensor, tensor: BoundTensor, seed: int, filling: Filling) -> None:
        kind = tensor.rule.get("type", "random")
        if kind == "custom":
            raise InputError(f"input {tensor.name!r} is custom: the reference must make it")
        if kind == "scalar":
            value = float(tensor.rule["value"])
            self.kernels.fill(place, seed=seed, how=CONSTANT, scale=value)
        elif kind == "safetensors" and (values := self._from_file(tensor, seed)) is not None:
            self.kernels.upload(place, values)
        elif (whole := self._whole(tensor, seed)) is not None:
            self.kernels.upload(place, whole)
        elif not tensor.floating:
            below = _WHOLE_BELOW.get(tensor.dtype, _WHOLE_USUAL)
            self.kernels.fill(place, seed=seed, how=WHOLE, scale=below)
        elif (shaped := self._shaped(tensor, seed)) is not None:
            self.kernels.upload(place, shaped)
        elif not self._by_name and _POSITIVE.search(tensor.name):
            self.kernels.fill(place, seed=seed, how=POSITIVE, scale=1.0)
        else:
            self._floats(place, tensor, seed, filling)

    def _from_file(self, tensor: BoundTensor, seed: int) -> NDArray[Any] | None:
        """Return the values of a file, or what stands in for it; None where they are drawn."""
        if "found_at" in tensor.rule:
            return stored_values(tensor.rule, tensor.dtype, tensor.shape)
        task = self.job.task
        spec = self._spec(tensor)
        made = stand_in(task.operator, spec, axis_values(task.operator, task.workload))
        if made is None or made.kind == "random":
            return None
        return standing_values(made, tensor.dtype, tensor.shape, np.random.default_rng(seed))

    def _shaped(self, tensor: BoundTensor, seed: int) -> NDArray[Any] | None:
        """Return what the tensor's name calls for: angles, masks, shares; None where nothing."""
        if not self._by_name and _POSITIVE.search(tensor.name):  # drawn on the device
            return None
        rng, sampling = np.random.default_rng(seed), self.job.task.operator.op_type == "sampling"
        values = shaped_values(self._spec(tensor), tensor.shape, rng, sampling=sampling)
        return None if values is None else narrowed(values, tensor.dtype)

    @property
    def _by_name(self) -> bool:
        """Whether names and types say all, as the harness has it."""
        return needs_torch(self.job.task.operator.reference)

    def _whole(self, tensor: BoundTensor, seed: int) -> NDArray[Any] | None:
        if not self._by_name or tensor.floating:
            return None
        return whole_values(tensor.dtype, tensor.shape, np.random.default_rng(seed))

    def _spec(self, tensor: BoundTensor) -> TensorSpec:
        inputs = self.job.task.operator.inputs
        return next(spec for spec in inputs if spec.name == tensor.name)

    def _floats(self, place: Tensor, tensor: BoundTensor, seed: int, filling: Filling) -> None:
        drawn = self._drawn(tensor)
        if drawn.fixed and filling is not PLAIN:
            drawn = Draw(NORMAL)
        first = tensor.name == self.job.inputs[0].name and not drawn.fixed
        # Variants change the first tensor; the others keep the spread that fits their role.
        how, factor = (filling.how, filling.factor) if first else (drawn.how, 1.0)
        self.kernels.fill(place, seed=seed, how=how, scale=drawn.scale * factor)

    def _drawn(self, tensor: BoundTensor) -> Draw:
        if self._by_name:
            return named_draw(self._spec(tensor), tensor.shape)
        return Draw(NORMAL, self._scale(tensor))

    def _scale(self, tensor: BoundTensor) -> float:
        if len(tensor.shape) < 2:
            return 1.0
        product = self.job.product
        if product is not None:
            roles = matmul_roles(self.job.task.operator, self.job.task.workload)
            second = roles is not None and tensor.name == roles.b
            return 1.0 / math.sqrt(product.k) if second else 1.0
        if _MATRIX.search(tensor.name):
            return 1.0 / math.sqrt(tensor.shape[-1])
        return 1.0

    def _scalars(self, buffers: TensorSet, seed: int) -> None:
        rng = np.random.default_rng(seed)
        for name, (dtype, rule) in self.job.scalars.items():
            drawn = rule.get("type") != "scalar" and self._by_name
            value = random_scalar(dtype, rng) if drawn else _scalar(dtype, rule, rng)
            buffers.scalars[name] = value

    def fill_exact(self, buffers: TensorSet, seed: int, *, ones: bool = False) -> None:
        """Fill with zeros and ones, dense along the last places of what is summed over."""
        for salt, tensor in enumerate(self.job.inputs):
            place = buffers.tensors[tensor.name]
            if tensor.rule.get("type", "random") != "random" or not tensor.floating:
                self._fill(place, tensor, _mixed(seed, salt), PLAIN)
            else:
                self._exact(place, tensor, _mixed(seed, salt), ones)
        self._scalars(buffers, seed)

    def _exact(self, place: Tensor, tensor: BoundTensor, seed: int, ones: bool) -> None:
        axis = self.job.contracted.get(tensor.name)
        stride, extent, tail, chance = 1, 1, 0, 0.5
        if axis is not None:
            stride, extent = math.prod(tensor.shape[axis + 1 :]), tensor.shape[axis]
            tail, chance = min(CANARY_TAIL, extent), min(0.5, math.sqrt(_CANARY_ONES / extent))
        elif ones:
            chance = 0.0  # beside all ones the sum may need all the bits that the type has
        self.kernels.fill(
            place,
            seed=seed,
            how=CONSTANT if ones else ZERO_ONE,
            scale=1.0 if ones and axis is not None else chance,
            k_stride=stride,
            k_extent=extent,
            tail=tail,
        )


def _mixed(seed: int, salt: int) -> int:
    return (seed * 31 + salt) & ((1 << 63) - 1)


def _scalar(dtype: str, rule: Mapping[str, Any], rng: np.random.Generator) -> float | int | bool:
    if rule.get("type") == "scalar":
        value: float | int | bool = rule["value"]
        return value
    if "float" in dtype:
        return float(rng.uniform(0.5, 1.5))
    return int(rng.integers(0, 2 if dtype == "bool" else int(_WHOLE_USUAL)))
