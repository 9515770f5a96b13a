"""Launching our Triton calls as a program of torch's does: what other tuners are given to tune."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelarc.genomes import InputError
from kernelarc.genomes.kernels import TensorArgument
from kernelarc.genomes.triton import Descriptor, Pointer, TritonCall


def launch(call: TritonCall, tensors: Mapping[str, Any]) -> None:
    """Launch a call on torch's tensors, on the current stream.

    Args:
        call: Without scratch memory of its own.
        tensors: By the operator's names; contiguous.

    Raises:
        InputError: The call needs what only our own launcher gives.
    """
    given = {name: argument(value, tensors) for name, value in call.arguments.items()}
    call.function[call.grid](**given, **call.constants, **options(call))


def options(call: TritonCall) -> dict[str, Any]:
    """Return the call's launch options, those left to the compiler left out."""
    return {name: value for name, value in call.options.items() if value is not None}


def argument(value: Any, tensors: Mapping[str, Any]) -> Any:
    """Return what Triton's launcher takes for one of the call's arguments.

    Raises:
        InputError: It is scratch memory.
    """
    if not isinstance(value, Pointer | Descriptor):
        return value
    if not isinstance(value.target, TensorArgument):
        raise InputError("only calls without scratch memory can be launched from torch")
    tensor = tensors[value.target.name]
    if isinstance(value, Pointer):
        return tensor
    from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: PLC0415

    return TensorDescriptor(tensor, list(value.shape), list(value.strides), list(value.block))
