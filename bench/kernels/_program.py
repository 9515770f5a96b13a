"""Loading binaries and launching plans through the driver's own interface."""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelarc.bench.kernels._library_steps import LibrarySteps, ReadyProduct
from kernelarc.bench.kernels._tensor_map import encoded
from kernelarc.genomes.kernels import (
    SCALAR_TYPES,
    Argument,
    Build,
    Clear,
    InputArgument,
    Launch,
    ScalarArgument,
    ScratchArgument,
    Step,
    TensorArgument,
    TensorMap,
)

Call = Callable[[], None]
_MOST_MODULES = 64
_MAP_ALIGNMENT = 64


class LaunchRefusedError(Exception):
    """The driver refuses to load or launch; the context is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where things lie for one call.

    Attributes:
        tensors: Address by tensor name.
        scratch: Address by scratch name.
        scalars: Values of Python-scalar inputs.
        maps: Allocates device memory for tensor maps that a kernel reads from there; takes the
            bytes and returns their address.
    """

    tensors: Mapping[str, int]
    scratch: Mapping[str, int]
    scalars: Mapping[str, float | int | bool]
    maps: Callable[[bytes], int]


class Module:
    """A loaded cubin. A program holds its modules for as long as it may launch their kernels."""

    __slots__ = ("__weakref__", "handle")

    def __init__(self, handle: Any) -> None:
        self.handle = handle


class Loader:
    """Loads cubins and keeps the newest, and all that a program still holds.

    Args:
        driver: The module ``cuda.bindings.driver``.
    """

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self._handles: OrderedDict[str, Any] = OrderedDict()
        self._modules: weakref.WeakValueDictionary[str, Module] = weakref.WeakValueDictionary()

    def function(self, launch: Launch, module: Module) -> Any:
        """Return a kernel, ready to be launched as the launch says.

        Raises:
            LaunchRefusedError: The driver refuses the binary, or what it is to be launched with.
        """
        driver = self.driver
        symbol = launch.symbol.encode()
        found = self._checked(driver.cuModuleGetFunction(module.handle, symbol), launch.symbol)
        attributes = driver.CUfunction_attribute
        if launch.shared_bytes:  # what a kernel declares itself counts against the plain limit
            name = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._set(found, name, launch.shared_bytes, launch.symbol)
        if launch.attributes.carveout is not None:
            name = attributes.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
            self._set(found, name, launch.attributes.carveout, launch.symbol)
        if launch.attributes.wide_cluster:
            name = attributes.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            self._set(found, name, 1, launch.symbol)
        return found

    def _set(self, function: Any, attribute: Any, value: int, symbol: str) -> None:
        self._checked(self.driver.cuFuncSetAttribute(function, attribute, value), symbol)

    def module(self, name: str, content: bytes) -> Module:
        """Return a loaded binary. It stays loaded for as long as what is returned is held.

        Raises:
            LaunchRefusedError: The driver refuses the binary.
        """
        if name not in self._handles:
            self._handles[name] = self._checked(self.driver.cuModuleLoadData(content), name)
        self._handles.move_to_end(name)
        held = self._modules.get(name)
        if held is None:
            held = self._modules[name] = Module(self._handles[name])
        self._unload()
        return held

    def _unload(self) -> None:
        """Unload the oldest modules that no program holds, as long as there are too many."""
        for name in list(self._handles):
            if len(self._handles) <= _MOST_MODULES:
                return
            if name not in self._modules:
                self.driver.cuModuleUnload(self._handles.pop(name))

    @staticmethod
    def _checked(answer: tuple[Any, ...], what: str) -> Any:
        if int(answer[0]) != 0:
            raise LaunchRefusedError(f"{what}: {getattr(answer[0], 'name', answer[0])}")
        return answer[1] if len(answer) > 1 else None


class Program:
    """A build that is loaded.

    Args:
        loader: Holds its binaries.
        build: What is launched.
        stream: A stream with a ``ptr``.
        library: Makes the plan's products of the library ready; None where it has none.

    Attributes:
        products: The library's, in order.

    Raises:
        LaunchRefusedError: The driver refuses a binary.
        NoSuchChoiceError: The library has no such algorithm.
    """

    def __init__(
        self, loader: Loader, build: Build, stream: Any, library: LibrarySteps | None = None
    ) -> None:
        self._loader, self._build = loader, build
        self.products: list[ReadyProduct] = []
        for step in build.plan.products:
            assert library is not None  # whoever loads plans of the library has one
            self.products.append(library.ready(step))
        self._stream, self._pointer = loader.driver.CUstream(stream.ptr), int(stream.ptr)
        modules = {n: loader.module(n, code) for n, code in build.binaries.items()}
        self._functions = [
            (loader.function(step, modules[step.binary]), modules[step.binary])
            for step in build.plan.launches
        ]
        self._steps = begun_alone(build.plan.steps)

    def bound(self, addresses: Addresses) -> Call:
        """Return what launches all steps on a stream with these addresses.

        The call raises ``LaunchRefusedError`` where the driver refuses a launch.
        """
        functions, products = iter(self._functions), iter(self.products)
        driver, stream = self._loader.driver, self._stream
        steps: list[Call] = []
        for step in self._steps:
            if isinstance(step, Launch):
                steps.append(_Bound(driver, stream, next(functions), step, addresses))
            elif isinstance(step, Clear):
                steps.append(self._clear(step, addresses))
            else:
                steps.append(_bound_product(next(products), addresses, self._pointer))

        def call() -> None:
            for step in steps:
                step()

        return call

    def _clear(self, step: Clear, addresses: Addresses) -> Call:
        driver, stream = self._loader.driver, self._stream
        address = _address(step.target, addresses)

        def call() -> None:
            Loader._checked(driver.cuMemsetD8Async(address, 0, step.nbytes, stream), "clear")

        return call


def begun_alone(steps: Sequence[Step]) -> list[Step]:
    """Return a plan's steps with a first launch that waits for whatever ran before.

    If it overlapped with the call before it, the time of many calls would be a rate, and a
    prologue would be hidden that is seen wherever the job runs alone.
    """
    made = list(steps)
    place = next((i for i, step in enumerate(made) if not isinstance(step, Clear)), 0)
    first = made[place]
    if isinstance(first, Launch):  # a product of the library overlaps with nothing
        made[place] = replace(first, attributes=replace(first.attributes, overlap=False))
    return made


def _bound_product(product: ReadyProduct, addresses: Addresses, stream: int) -> Call:
    step, launch = product.step, product.launch
    left, right, out = (_address(each, addresses) for each in (step.left, step.right, step.out))
    added = out if step.added is None else _address(step.added, addresses)
    workspace = 0 if step.workspace is None else _address(step.workspace, addresses)

    def call() -> None:
        try:
            launch(left, right, added, out, workspace, stream)
        except Exception as error:  # the binding's own, by its status
            raise LaunchRefusedError(f"cuBLASLt: {error}") from None

    return call


class _Bound:
    """One launch with its parameters packed; they stay alive as long as it does."""

    def __init__(
        self,
        driver: Any,
        stream: Any,
        function: tuple[Any, Module],
        launch: Launch,
        addresses: Addresses,
    ) -> None:
        self._driver, self._stream = driver, stream
        self._function, self._module = function
        self._launch = launch
        self._held = [_packed(driver, argument, addresses) for argument in launch.arguments]
        places = [place for _, place in self._held]
        self._pointers = (ctypes.c_void_p * max(len(places), 1))(*places)
        self._parameters = ctypes.addressof(self._pointers)
        self._extended = _configuration(driver, stream, launch)

    def __call__(self) -> None:
        if self._extended is not None:
            answer = self._driver.cuLaunchKernelEx(
                self._extended, self._function, self._parameters, 0
            )
        else:
            launch = self._launch
            answer = self._driver.cuLaunchKernel(
                self._function,
                *launch.grid,
                *launch.block,
                launch.shared_bytes,
                self._stream,
                self._parameters,
                0,
            )
        if int(answer[0]) != 0:
            raise LaunchRefusedError(
                f"{self._launch.symbol}: {getattr(answer[0], 'name', answer[0])}"
            )


def _configuration(driver: Any, stream: Any, launch: Launch) -> Any:
    """Return the extended configuration, or None where a plain launch does."""
    chosen = []
    kinds = driver.CUlaunchAttributeID
    if launch.cluster != (1, 1, 1):
        attribute = driver.CUlaunchAttribute()
        attribute.id = kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dims = attribute.value.clusterDim
        dims.x, dims.y, dims.z = launch.cluster
        chosen.append(attribute)
    if launch.attributes.overlap:
        attribute = driver.CUlaunchAttribute()
        attribute.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        chosen.append(attribute)
    if launch.attributes.cooperative:
        attribute = driver.CUlaunchAttribute()
        attribute.id = kinds.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        attribute.value.cooperative = 1
        chosen.append(attribute)
    if not chosen:
        return None
    found = driver.CUlaunchConfig()
    found.gridDimX, found.gridDimY, found.gridDimZ = launch.grid
    found.blockDimX, found.blockDimY, found.blockDimZ = launch.block
    found.sharedMemBytes, found.hStream = launch.shared_bytes, stream
    found.attrs, found.numAttrs = chosen, len(chosen)
    return found


# Parameters


def _address(argument: TensorArgument | ScratchArgument, addresses: Addresses) -> int:
    where = addresses.tensors if isinstance(argument, TensorArgument) else addresses.scratch
    base = where.get(argument.name, 0)
    return base + argument.offset_bytes if base else 0


def _packed(driver: Any, argument: Argument, addresses: Addresses) -> tuple[Any, int]:
    """Return a parameter's memory, kept alive by the first, and its address."""
    if isinstance(argument, TensorMap):
        content = encoded(driver, argument, _address(argument.source, addresses))
        if argument.in_memory:
            return _cell(struct.pack("<Q", addresses.maps(content)))
        return _cell(content, _MAP_ALIGNMENT)
    if isinstance(argument, ScalarArgument):
        return _cell(_number(argument.kind, argument.value))
    if isinstance(argument, InputArgument):
        return _cell(_number(argument.kind, addresses.scalars[argument.name]))
    return _cell(struct.pack("<Q", _address(argument, addresses)))


def _number(kind: str, value: float | int | bool) -> bytes:
    letter = SCALAR_TYPES[kind]
    return struct.pack(letter, float(value) if kind.startswith("f") else int(value))


def _cell(content: bytes, alignment: int = 8) -> tuple[Any, int]:
    held = ctypes.create_string_buffer(len(content) + alignment)
    start = ctypes.addressof(held)
    place = start + (-start) % alignment
    ctypes.memmove(place, content, len(content))
    return held, place
