"""The operator's own reference, run in float64 on the device.

A reference over NumPy is given CuPy arrays, which answer most of NumPy's functions (where they do
not, it runs on the host); one over torch is given torch tensors over the same memory. Where the
reference makes the inputs itself, it does so here too. What the reference rounds to a narrow type
on the way is its own affair: it is given float64, and a reference that asks for its inputs' type
stays in float64.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from kernelarc.bench._reference import reference_of, said
from kernelarc.bench.cuda._kernels import Kernels, Tensor
from kernelarc.bench.kernels._job import BoundJob, BoundTensor
from kernelarc.bench.kernels._memory import TensorSet
from kernelarc.bench.kernels._torch_calls import TorchCalls
from kernelarc.genomes import InputError, KernelarcError, MissingPartError, axis_values

_TORCH = re.compile(r"^\s*(import|from)\s+torch\b", re.MULTILINE)
_RAW = {"float8_e4m3fn": "uint8", "float8_e5m2": "uint8", "float4_e2m1": "uint8",
        "float4_e2m1fn_x2": "uint8", "bfloat16": "uint16"}  # fmt: skip
_LITTLE = 0.15  # of the device's memory
_DEVICE_TO_DEVICE = 3
_TORCH_NAMES = {"float4_e2m1": "float4_e2m1fn_x2"}


def needs_torch(reference: str | None) -> bool:
    """Tell whether a reference's source imports torch."""
    return reference is not None and _TORCH.search(reference) is not None


class Oracle:
    """Runs one job's reference.

    Args:
        cupy: The module.
        kernels: For widening.
        stream: What fills the inputs.
        job: Whose reference.

    Raises:
        InputError: There is no reference, or it is no Python.
        MissingPartError: It needs torch, which is not installed.
    """

    def __init__(self, cupy: Any, kernels: Kernels, stream: Any, job: BoundJob) -> None:
        self._cp, self._kernels, self._stream = cupy, kernels, stream
        self.job = job
        self._operator = job.task.operator
        self.torch = _torch() if needs_torch(self._operator.reference) else None
        self.run = reference_of(self._operator)
        self._on_host = False
        self._calls: TorchCalls | None = None

    def answer(self, buffers: TensorSet, into: Mapping[str, Any]) -> None:
        """Compute a set's outputs.

        Args:
            buffers: A filled set; nothing of it is changed.
            into: A float64 array by output name, flat.

        Raises:
            InputError: The reference fails, or gives other outputs than the operator has.
        """
        result = self._answered([self._argument(s.name, buffers) for s in self._operator.inputs])
        named = self._named(result)
        for tensor in self.job.outputs:
            self._put_down(self._flat(named[tensor.name], tensor), into[tensor.name])
        self._cp.cuda.runtime.deviceSynchronize()
        del result, named
        self.give_back(_LITTLE)

    def _put_down(self, values: Any, into: Any) -> None:
        """Copy float64 values. Assigning them would have CuPy compile a kernel."""
        runtime = self._cp.cuda.runtime
        runtime.memcpy(int(into.data.ptr), int(values.data.ptr), into.nbytes, _DEVICE_TO_DEVICE)

    def give_back(self, below: float = 1.0) -> None:
        """Let others have what torch keeps to itself, where less than a share is free."""
        if self.torch is not None:
            free, total = self._cp.cuda.runtime.memGetInfo()
            if free < below * total:
                self.torch.cuda.empty_cache()

    def _answered(self, arguments: list[Any]) -> Any:
        """Run the reference here, or on the host where it is NumPy that CuPy does not answer."""
        if self.torch is not None:
            return self._called(arguments)
        if not self._on_host:
            try:
                return self._called(arguments)
            except InputError:
                self._on_host = True
        return self._called([self._hosted(argument) for argument in arguments])

    def _hosted(self, argument: Any) -> Any:
        return argument.get() if isinstance(argument, self._cp.ndarray) else argument

    def _called(self, arguments: list[Any]) -> Any:
        self._stream.synchronize()
        try:
            with self._working(), np.errstate(all="ignore"):
                return self.run(*arguments)
        except KernelarcError:
            raise
        except Exception as error:
            raise InputError(
                f"the reference of {self._operator.name!r} fails on the device: {said(error)}"
            ) from None
        finally:
            self._cp.cuda.runtime.deviceSynchronize()

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if self.torch is not None:
                stack.enter_context(self.torch.no_grad())
            yield

    # Values for the reference

    def _argument(self, name: str, buffers: TensorSet) -> Any:
        if name in buffers.scalars:
            return buffers.scalars[name]
        spec = next((t for t in self.job.inputs if t.name == name), None)
        if spec is None:
            return None  # an optional input that takes no part
        return self._wide(spec, buffers.tensors[name])

    def _wide(self, spec: BoundTensor, tensor: Tensor) -> Any:
        cp = self._cp
        if spec.floating:
            wide = cp.empty(spec.shape, dtype=cp.float64)
            self._kernels.widen(tensor, int(wide.data.ptr))
            self._stream.synchronize()
            return self._given(wide)
        return self._given(self.raw(spec, tensor).copy())

    def raw(self, spec: BoundTensor, tensor: Tensor) -> Any:
        """Return an array over a tensor's own memory, narrow floats as whole numbers."""
        cp = self._cp
        dtype = np.dtype(_RAW.get(spec.dtype, spec.dtype))
        held = cp.cuda.UnownedMemory(tensor.address, max(tensor.nbytes, 1), self)
        return cp.ndarray(spec.shape, dtype=dtype, memptr=cp.cuda.MemoryPointer(held, 0))

    def native(self, spec: BoundTensor, tensor: Tensor) -> Any:
        """Return a torch tensor over a tensor's own memory, in its own type."""
        torch = self.torch
        assert torch is not None
        held = torch.as_tensor(self.raw(spec, tensor), device="cuda")
        return held.view(getattr(torch, _TORCH_NAMES.get(spec.dtype, spec.dtype)))

    def natives(self, buffers: TensorSet) -> list[Any]:
        """Return the reference's arguments as torch tensors in their own types, not copied."""
        own = {t.name: self.native(t, buffers.tensors[t.name]) for t in self.job.inputs}
        known = {**buffers.scalars, **own}
        return [known.get(spec.name) for spec in self._operator.inputs]

    def calls(self) -> TorchCalls:
        """Return what torch has for the operator; it must be written for torch."""
        if self._calls is None:
            self._calls = TorchCalls(self.torch, self._operator, self.run)
        return self._calls

    def _given(self, array: Any) -> Any:
        return array if self.torch is None else self.torch.as_tensor(array, device="cuda")

    # Values from the reference

    def _named(self, result: Any) -> dict[str, Any]:
        names = [tensor.name for tensor in self.job.outputs]
        if isinstance(result, Mapping):
            missing = [name for name in names if name not in result]
            if missing:
                raise InputError(
                    f"the reference of {self._operator.name!r} gives no {missing[0]!r}"
                )
            return {name: result[name] for name in names}
        parts = list(result) if isinstance(result, tuple | list) else [result]
        if len(parts) != len(names):
            raise InputError(
                f"the reference of {self._operator.name!r} gives {len(parts)} outputs, "
                f"not {len(names)}"
            )
        return dict(zip(names, parts, strict=True))

    def _flat(self, value: Any, tensor: BoundTensor) -> Any:
        if self.torch is not None and isinstance(value, self.torch.Tensor):
            value = self._cp.asarray(value.detach().to(self.torch.float64).contiguous())
        array = self._cp.asarray(value, dtype=self._cp.float64)
        if math.prod(array.shape) != tensor.count:
            raise InputError(
                f"the reference of {self._operator.name!r} gives {tensor.name!r} the shape "
                f"{tuple(array.shape)}, not {tensor.shape}"
            )
        return self._cp.ascontiguousarray(array).reshape(-1)

    def take(self, result: Any, buffers: TensorSet) -> None:
        """Copy what a function over torch returned into a set's outputs.

        Raises:
            InputError: These are other outputs than the operator has.
        """
        named = self._named(result)
        for spec in self.job.outputs:
            self._copy(named[spec.name], spec, buffers.tensors[spec.name], "the output")

    # Inputs that the reference makes

    def fill_custom(self, buffers: TensorSet, seed: int) -> None:
        """Have the reference make a set's inputs, and copy them into the set.

        Raises:
            InputError: Its function fails, or makes other tensors than the operator has.
        """
        torch = self.torch
        make = self._maker()
        if torch is not None:
            torch.manual_seed(seed & 0x7FFFFFFF)
        axes = axis_values(self._operator, self.job.task.workload)
        self._stream.synchronize()
        try:
            made = make(axes, "cuda")
        except Exception as error:
            raise InputError(
                f"the custom inputs of {self._operator.name!r} fail: {said(error)}"
            ) from None
        for name in self.job.scalars:
            value = _taken(made, name, self._operator.name)
            buffers.scalars[name] = value.item() if hasattr(value, "item") else value
        for spec in self.job.inputs:
            self._put(_taken(made, spec.name, self._operator.name), spec, buffers)
        self._cp.cuda.runtime.deviceSynchronize()

    def _maker(self) -> Callable[..., Any]:
        name = self._operator.custom_inputs
        found = getattr(self.run, "__globals__", {}).get(name) if name else None
        wrapped = getattr(self.run, "__wrapped__", None)
        if found is None and wrapped is not None:
            found = wrapped.__globals__.get(name)
        if not callable(found):
            raise InputError(
                f"operator {self._operator.name!r} has custom inputs, and its reference no "
                f"function {name!r} that makes them"
            )
        maker: Callable[..., Any] = found
        return maker

    def _put(self, value: Any, spec: BoundTensor, buffers: TensorSet) -> None:
        tensor = buffers.tensors[spec.name]
        if self.torch is not None and isinstance(value, self.torch.Tensor):
            self._copy(value, spec, tensor, "the custom input")
        else:
            self.raw(spec, tensor)[...] = self._cp.asarray(value)

    def _copy(self, value: Any, spec: BoundTensor, tensor: Tensor, what: str) -> None:
        """Copy a torch tensor's values into memory."""
        own = self.native(spec, tensor)
        if tuple(value.shape) != spec.shape:
            raise InputError(
                f"{what} {spec.name!r} has the shape {tuple(value.shape)}, not {spec.shape}"
            )
        if value.dtype == own.dtype:  # bytes, since not every narrow type can be copied
            assert self.torch is not None
            raw = self.torch.uint8
            own.reshape(-1).view(raw).copy_(value.contiguous().reshape(-1).view(raw))
        else:
            own.copy_(value)


def _taken(made: Any, name: str, operator: str) -> Any:
    if not isinstance(made, Mapping) or name not in made:
        raise InputError(f"the custom inputs of {operator!r} hold no {name!r}")
    return made[name]


def _torch() -> Any:
    try:
        import torch  # noqa: PLC0415
    except ImportError as error:
        raise MissingPartError(
            f"the reference runs on torch, which is not installed here: {error}"
        ) from None
    if not torch.cuda.is_available():
        raise MissingPartError("the reference runs on torch, whose build here knows no GPU")
    return torch
