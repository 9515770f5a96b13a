"""Recording launches: a launch function is run on stand-ins, and its kernel calls become data."""

from __future__ import annotations

import contextlib
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes.kernels import BuildError, Clear, TensorArgument
from kernelarc.genomes.triton._call import OPTIONS, Descriptor, Pointer, TritonCall
from kernelarc.genomes.triton._layers import jitted, layers, tuner_of

BAD_LAUNCH = "launch function fails"
_BYTES = {"float8_e4m3fn": 1, "float8_e5m2": 1, "float4_e2m1fn_x2": 1, "bool": 1}
_ADDRESS = 1 << 20


def element_bytes(dtype: str) -> int:
    """Return the size of an element of a schema dtype."""
    if dtype in _BYTES:
        return _BYTES[dtype]
    digits = "".join(c for c in dtype if c.isdigit())
    return max(int(digits) // 8, 1)


class DtypeName(str):
    """A dtype where PyTorch is not loaded: its name, with what descriptors ask of it."""

    __slots__ = ()

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return element_bytes(str(self))

    @property
    def is_floating_point(self) -> bool:
        """Whether it is a floating-point type."""
        return "float" in self


@dataclass(frozen=True, eq=False)
class StandIn:
    """What a launch function is given for a tensor: shape, strides and type, and no values.

    Attributes:
        name: The operator's tensor.
        schema_dtype: Its schema dtype.
        shape: In elements.
        strides: In elements.
        clears: Takes what the launch function sets to zero.
        offset: Where it begins in the operator's tensor, in elements.
    """

    name: str
    schema_dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    clears: list[Clear]
    offset: int = 0

    @property
    def dtype(self) -> Any:
        """PyTorch's dtype where PyTorch is loaded, else the name."""
        torch = sys.modules.get("torch")
        return DtypeName(self.schema_dtype) if torch is None else getattr(torch, self.schema_dtype)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def device(self) -> str:
        """Always ``"cuda"``."""
        return "cuda"

    @property
    def is_cuda(self) -> bool:
        """Always true."""
        return True

    @property
    def T(self) -> StandIn:
        """The transposed view."""
        return replace(self, shape=self.shape[::-1], strides=self.strides[::-1])

    def t(self) -> StandIn:
        """Return the transposed view."""
        return self.T

    def stride(self, dimension: int | None = None) -> Any:
        """Return one stride, or all of them."""
        return self.strides if dimension is None else self.strides[dimension]

    def size(self, dimension: int | None = None) -> Any:
        """Return one extent, or all of them."""
        return self.shape if dimension is None else self.shape[dimension]

    def dim(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    def numel(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    def element_size(self) -> int:
        """Return the size of an element in bytes."""
        return element_bytes(self.schema_dtype)

    def _aligned(self) -> int:
        """Return an aligned number in place of the address."""
        return _ADDRESS

    data_ptr = _aligned

    def is_contiguous(self) -> bool:
        """Tell whether it is dense and row-major."""
        return self.strides == dense_strides(self.shape)

    def zero_(self) -> StandIn:
        """Record that the tensor is set to zero before the next launch."""
        target = TensorArgument(self.name)
        self.clears.append(Clear(target=target, nbytes=self.numel() * self.element_size()))
        return self


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense row-major tensor."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


@dataclass
class _Trace:
    calls: list[TritonCall]
    clears: list[Clear]


class KernelStandIn:
    """What a launch function finds in place of a kernel: ``stand_in[grid](...)`` is recorded.

    Args:
        kernel: The kernel object with its decorators.
        genes: Alleles that the call itself does not say; empty for a kernel without genes.
        trace: Takes the calls.
    """

    def __init__(self, kernel: Any, genes: Mapping[str, Allele], trace: _Trace) -> None:
        self._kernel, self._genes, self._trace = kernel, genes, trace
        self.fn = jitted(kernel)
        self.arg_names = tuple(self.fn.arg_names)
        self._zeroed = tuple(getattr(tuner_of(kernel), "reset_to_zero", ()))

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, **kwargs: Any) -> None:
            self.run(*args, grid=grid, **kwargs)

        return launch

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> None:
        """Record one call. ``warmup`` is ignored, as is a stream."""
        if len(args) > len(self.arg_names):
            raise TypeError(f"{self.fn.__name__} takes {len(self.arg_names)} arguments")
        kwargs.pop("stream", None)
        kwargs.pop("device", None)
        named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        for name in self._zeroed:
            if isinstance(named.get(name), StandIn):
                named[name].zero_()
        clears = tuple(dict.fromkeys(self._trace.clears))
        self._trace.clears[:] = []
        call = call_of(self._kernel, named, self._genes, grid)
        self._trace.calls.append(replace(call, clears=clears, given=named))


def call_of(
    kernel: Any, named: Mapping[str, Any], genes: Mapping[str, Allele], grid: Any
) -> TritonCall:
    """Return a kernel call as data.

    Args:
        kernel: The kernel object with its decorators: heuristics are computed as Triton does.
        named: Arguments by name, constants and options among them.
        genes: Alleles; what ``named`` says wins.
        grid: A tuple, or a function of all arguments.

    Raises:
        TypeError: An argument is of a kind that no kernel takes, or the grid is none.
    """
    base = jitted(kernel)
    names = set(base.arg_names)
    chosen = {n: v for n, v in genes.items() if n in names or n in OPTIONS}
    values = {**chosen, **named}
    for layer in layers(kernel):
        rules = getattr(layer, "values", None)
        for name, rule in rules.items() if isinstance(rules, Mapping) else ():
            values[name] = rule(dict(values))
    options = {n: values.pop(n) for n in OPTIONS if n in values}
    if not options.get("maxnreg", 1):
        del options["maxnreg"]
    constant = {p.name for p in base.params if p.is_constexpr}
    return TritonCall(
        function=base,
        arguments={n: argument_of(n, v) for n, v in values.items() if n not in constant},
        constants={n: _bare(v) for n, v in values.items() if n in constant},
        grid=grid_of(grid, {**values, **options}),
        options=options,
    )


def _bare(value: Any) -> Any:
    """Return what a ``tl.constexpr`` wraps."""
    return value.value if type(value).__name__ == "constexpr" else value


def grid_of(grid: Any, values: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return a grid as three whole numbers.

    Raises:
        TypeError: It is none.
    """
    found = grid(dict(values)) if callable(grid) else grid
    found = tuple(found) if isinstance(found, tuple | list) else (found,)
    if not 1 <= len(found) <= 3 or any(int(extent) != extent or extent < 1 for extent in found):
        raise TypeError(f"the grid {found!r} is not one to three whole numbers of at least 1")
    x, y, z = (*(int(extent) for extent in found), 1, 1)[:3]
    return x, y, z


def argument_of(name: str, value: Any) -> Any:
    """Return an argument as data.

    Raises:
        TypeError: It is neither tensor, descriptor, number, boolean nor None.
    """
    if isinstance(value, StandIn):
        return Pointer(_address(value), value.schema_dtype)
    if value is None or isinstance(value, bool | int | float):
        return value
    base = getattr(value, "base", None)
    if isinstance(base, StandIn):
        return Descriptor(
            target=_address(base),
            dtype=base.schema_dtype,
            shape=tuple(int(extent) for extent in value.shape),
            strides=tuple(int(step) for step in value.strides),
            block=tuple(int(extent) for extent in value.block_shape),
            nan_fill=getattr(value, "padding", "zero") == "nan",
        )
    raise TypeError(f"argument {name!r} is a {type(value).__name__}, which no kernel can be given")


def _address(tensor: StandIn) -> TensorArgument:
    return TensorArgument(tensor.name, tensor.offset * tensor.element_size())


def view_at(tensor: Any, offset: int) -> Any:
    """Return a flat tensor, or its stand-in, from an element on."""
    if not isinstance(tensor, StandIn):
        return tensor[offset:]
    left = tensor.numel() - offset
    return replace(tensor, shape=(left,), strides=(1,), offset=tensor.offset + offset)


def traced(
    module: ModuleType,
    launch: Callable[..., Any],
    kernel: Any,
    *,
    values: Mapping[str, Any],
    genes: Mapping[str, Allele],
    clears: list[Clear],
) -> list[TritonCall]:
    """Run a launch function on stand-ins and return its kernel calls in order.

    Args:
        module: The file; its kernels are replaced while the function runs.
        launch: The function.
        kernel: The kernel that has the genes.
        values: What parameters get, by name.
        genes: Alleles by gene.
        clears: The list that the stand-ins record into.

    Raises:
        BuildError: The function raises, or launches nothing.
    """
    trace = _Trace([], clears)
    arguments = launch_arguments(launch, {**values, **genes})
    try:
        with _replaced(module, kernel, genes, trace) as stand_in:
            if "kernel" in inspect.signature(launch).parameters and "kernel" not in values:
                arguments["kernel"] = stand_in
            launch(**arguments)
    except Exception as error:
        text = str(error).strip().partition("\n")[0]
        raise BuildError(f"launch: {type(error).__name__}: {text}", BAD_LAUNCH) from None
    if not trace.calls:
        raise BuildError("launch: it launches no kernel", BAD_LAUNCH)
    return trace.calls


def launch_arguments(launch: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a launch function's parameters get; all there is where it takes anything."""
    parameters = inspect.signature(launch).parameters.values()
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return dict(values)
    return {p.name: values[p.name] for p in parameters if p.name in values}


@contextlib.contextmanager
def _replaced(
    module: ModuleType, kernel: Any, genes: Mapping[str, Allele], trace: _Trace
) -> Iterator[KernelStandIn]:
    """Put stand-ins in the place of the module's kernels."""
    base = jitted(kernel)
    stand_in = KernelStandIn(kernel, genes, trace)
    space = vars(module)
    kept = {name: value for name, value in space.items() if _is_kernel(value)}
    for name, value in kept.items():
        same = jitted(value) is base
        space[name] = stand_in if same else KernelStandIn(value, {}, trace)
    try:
        yield stand_in
    finally:
        space.update(kept)


def _is_kernel(value: Any) -> bool:
    return hasattr(value, "fn") and hasattr(value, "run") and jitted(value) is not None
