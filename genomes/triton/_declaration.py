"""What a kernel file says about its kernel: the job, the launch, and what there is to choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._constraints import Constraint
from kernelarc.genomes._errors import InputError, nearest
from kernelarc.genomes._gene import Gene
from kernelarc.genomes._operators import TensorSpec, Tolerance
from kernelarc.genomes.triton._call import TRITON_TYPES

Tensor: TypeAlias = "TensorSpec | tuple[str, Sequence[str | int]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonKernel:
    """A Triton kernel to be tuned. A kernel file holds one of these at its top level.

    The launch function is called with tensors, axes and genes by the names of its parameters, as
    a program would call it; its ``kernel[grid](...)`` is recorded, never run. Tensors are
    stand-ins then: they have shape, strides, type and address, and no values.

    Attributes:
        launch: Launches the kernel once, on outputs that exist already.
        inputs: By name ``(dtype, shape)``, for example ``("bfloat16", ("M", "K"))``; an extent is
            an axis or a number. Dense and row-major; random values, whole numbers from 0 to 7.
        outputs: Likewise.
        axes: Names with the values that hold unless the user sets others. An autotuned kernel's
            keys where this is empty.
        kernel: The kernel whose genes are searched; the file's only one by default.
        reference: A function of the inputs in their order (NumPy arrays, floats in float64) that
            returns the outputs. It must be a top-level function that uses NumPy only. Without
            one, results are compared with those of the first seed.
        genes: What there is to choose. An autotuned kernel's widened configurations if empty.
        domains: Other alleles for genes of an autotuned kernel, by name.
        constraints: Texts over genes, or constraint objects.
        seeds: Genomes to try first, as alleles by gene; the first is what you run today. An
            autotuned kernel's configurations if empty.
        strategies: Strategy by gene, where the rule should not decide.
        values: A function of the axes by name that returns arrays by input, for inputs that random
            numbers do not fit: indices, offsets, masks. The others stay random.
        in_place: Output by name to the input in whose memory it is written.
        tolerance: When an output counts as right.
        flops: Arithmetic over the axes, for the roofline.
        bytes_moved: Least bytes through memory, arithmetic over the axes.
        name: Of the operator; the kernel's own name if empty.

    Raises:
        InputError: A field is not what it must be.
    """

    launch: Callable[..., Any]
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    axes: Mapping[str, int] = field(default_factory=dict)
    kernel: Any = None
    reference: Callable[..., Any] | None = None
    genes: Sequence[Gene] = ()
    domains: Mapping[str, Gene | Sequence[Allele]] = field(default_factory=dict)
    constraints: Sequence[str | Constraint] = ()
    seeds: Sequence[Mapping[str, Allele]] = ()
    strategies: Mapping[str, str] = field(default_factory=dict)
    values: Callable[..., Mapping[str, Any]] | None = None
    in_place: Mapping[str, str] = field(default_factory=dict)
    tolerance: Tolerance = field(default_factory=Tolerance)
    flops: str | None = None
    bytes_moved: str | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if not callable(self.launch):
            raise InputError("TritonKernel: launch is the function that launches the kernel")
        for kind in ("reference", "values"):
            given = getattr(self, kind)
            if given is not None and not callable(given):
                raise InputError(f"TritonKernel: {kind} is {given!r}, not a function")
        self._check_kinds()
        if not self.outputs:
            raise InputError("TritonKernel: a kernel has at least one output")
        for kind in ("inputs", "outputs"):
            specs = {name: tensor_spec(name, given) for name, given in getattr(self, kind).items()}
            object.__setattr__(self, kind, specs)
        for output, source in self.in_place.items():
            if output not in self.outputs or source not in self.inputs:
                raise InputError(
                    f"TritonKernel: in_place names {output!r} and {source!r}, which must be an "
                    f"output and an input"
                )
        for name, value in self.axes.items():
            if type(value) is not int or value < 1:
                raise InputError(f"TritonKernel: axis {name!r} is {value!r}, not a whole number")
        self._check_axes()

    def _check_kinds(self) -> None:
        for gene in self.genes:
            if not isinstance(gene, Gene):
                raise InputError(
                    f"TritonKernel: genes holds {gene!r}, which is no gene; write for example "
                    f'kernelarc.PowerOfTwo(name="BLOCK", low=64, high=1024)'
                )
        for place, seed in enumerate(self.seeds, start=1):
            if not isinstance(seed, Mapping):
                raise InputError(f"TritonKernel: seed {place} is {seed!r}, not alleles by gene")
        if not isinstance(self.tolerance, Tolerance):
            raise InputError(f"TritonKernel: tolerance is {self.tolerance!r}, not a Tolerance")

    def _check_axes(self) -> None:
        """Hold shapes against the axes; without axes, shapes and keys say which there are."""
        for spec in (*self.specs("inputs"), *self.specs("outputs")) if self.axes else ():
            for part in spec.shape or ():
                if not part.isdigit() and part not in self.axes:
                    raise InputError(
                        f"TritonKernel: tensor {spec.name!r}: there is no axis {part!r}"
                        f"{nearest(part, self.axes)}"
                    )

    def specs(self, kind: str) -> tuple[TensorSpec, ...]:
        """Return the ``"inputs"`` or ``"outputs"`` in order."""
        return tuple(getattr(self, kind).values())


def tensor_spec(name: str, given: Any) -> TensorSpec:
    """Return a tensor's spec from ``(dtype, shape)``.

    Raises:
        InputError: It is no such pair, or Triton has no such dtype.
    """
    if isinstance(given, TensorSpec):
        return given
    pair = isinstance(given, tuple) and len(given) == 2
    if not pair or not isinstance(given[1], list | tuple):
        raise InputError(
            f"TritonKernel: tensor {name!r} is {given!r}; it must be (dtype, shape), for example "
            f'("float32", ("M", "N"))'
        )
    dtype, shape = given
    if dtype not in TRITON_TYPES:
        raise InputError(
            f"TritonKernel: tensor {name!r}: Triton has no dtype {dtype!r}"
            f"{nearest(str(dtype), TRITON_TYPES)}"
        )
    for extent in shape:
        text = isinstance(extent, str) and (extent.isidentifier() or extent.isdigit())
        if not text and (type(extent) is not int or extent < 1):
            raise InputError(
                f"TritonKernel: tensor {name!r}: extent {extent!r} is neither an axis's name nor a "
                "whole number from 1 on"
            )
    return TensorSpec(name=name, shape=tuple(str(extent) for extent in shape), dtype=dtype)
