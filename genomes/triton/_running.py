"""Running a kernel file's launch for real: the reference of a kernel that has none of its own.

Called in the device worker, by references that ``kernelarc`` writes. Needs Triton, and PyTorch for
what is launched.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._errors import InputError
from kernelarc.genomes._operators import TensorSpec
from kernelarc.genomes.triton._call import OPTIONS
from kernelarc.genomes.triton._declaration import TritonKernel
from kernelarc.genomes.triton._layers import jitted, layers
from kernelarc.genomes.triton._module import imported, the_declaration
from kernelarc.genomes.triton._tracing import launch_arguments

_INTEGERS_BELOW = 8
_BFLOAT16_SHIFT = 16


def own_reference(
    path: str, declaration: str, kernel: str, alleles: Mapping[str, Allele], inputs: int
) -> str:
    """Return the source of a reference that launches the file's kernel with one genome.

    Its ``run`` takes PyTorch tensors, the operator's inputs in order, and returns the outputs.
    """
    names = ", ".join(f"x{place}" for place in range(inputs))
    call = ", ".join(repr(part) for part in (path, declaration, kernel, json.dumps(dict(alleles))))
    return (
        f"import torch\n\n\ndef run({names}):\n"
        "    from kernelarc.genomes.triton import first_results\n\n"
        f"    return first_results({call}, [{names}])\n"
    )


def own_inputs(path: str, declaration: str) -> str:
    """Return the source of a ``make`` that fills inputs as the file says."""
    return (
        "\n\ndef make(axes, device):\n"
        "    from kernelarc.genomes.triton import made_inputs\n\n"
        f"    return made_inputs({path!r}, {declaration!r}, axes)\n"
    )


@lru_cache(maxsize=4)
def _module(path: str) -> ModuleType:
    return imported(Path(path), "kernelarc_own_reference")


def first_results(
    path: str, declaration: str, kernel: str, alleles: str, inputs: Sequence[Any]
) -> tuple[Any, ...]:
    """Launch a file's kernel with one genome on PyTorch tensors; return its outputs in order.

    Args:
        path: The file.
        declaration: Name of the ``TritonKernel``.
        kernel: Name of the kernel with the genes.
        alleles: The genome as JSON.
        inputs: In order; cast to the declared types, never changed.
    """
    import torch  # noqa: PLC0415

    module = _module(path)
    said = the_declaration(module, declaration)
    specs = said.specs("inputs")
    given = {
        spec.name: tensor.to(getattr(torch, spec.dtype)).contiguous()
        for spec, tensor in zip(specs, inputs, strict=True)
    }
    axes = _axes_of(specs, given)
    results = {spec.name: _fresh(torch, spec, said, axes, given) for spec in said.specs("outputs")}
    genome: dict[str, Allele] = json.loads(alleles)
    values = {**axes, **given, **results}
    arguments = launch_arguments(said.launch, {**values, **genome})
    with _forced(module, kernel, genome) as forced:
        if "kernel" in said.launch.__code__.co_varnames[: said.launch.__code__.co_argcount]:
            arguments.setdefault("kernel", forced)
        said.launch(**arguments)
    return tuple(results.values())


def _axes_of(specs: Sequence[TensorSpec], tensors: Mapping[str, Any]) -> dict[str, int]:
    return {
        part: int(extent)
        for spec in specs
        for part, extent in zip(spec.shape or (), tensors[spec.name].shape, strict=True)
        if not part.isdigit()
    }


def _fresh(
    torch: Any,
    spec: TensorSpec,
    said: TritonKernel,
    axes: Mapping[str, int],
    given: Mapping[str, Any],
) -> Any:
    source = said.in_place.get(spec.name)
    if source is not None:
        return given[source].clone()
    shape = [int(part) if part.isdigit() else axes[part] for part in spec.shape or ()]
    return torch.zeros(shape, dtype=getattr(torch, spec.dtype), device="cuda")


class _Forced:
    """A kernel without its autotuner: every launch takes the genome given."""

    def __init__(self, kernel: Any, genome: Mapping[str, Allele]) -> None:
        self.fn = jitted(kernel)
        self._layers = [each for each in layers(kernel) if not hasattr(each, "configs")]
        names = set(self.fn.arg_names)
        self._chosen = {n: v for n, v in genome.items() if n in names or n in OPTIONS}
        if not self._chosen.get("maxnreg", 1):
            del self._chosen["maxnreg"]

    def __getitem__(self, grid: Any) -> Any:
        def launch(*args: Any, **kwargs: Any) -> Any:
            return self.run(*args, grid=grid, warmup=False, **kwargs)

        return launch

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch; heuristics are computed as Triton does."""
        named = {**self._chosen, **kwargs}
        values = {**dict(zip(self.fn.arg_names, args, strict=False)), **named}
        for layer in self._layers[:-1]:
            rules = getattr(layer, "values", None)
            for name, rule in rules.items() if isinstance(rules, Mapping) else ():
                values[name] = named[name] = rule(dict(values))
        return self.fn.run(*args, **named)


@contextlib.contextmanager
def _forced(module: ModuleType, kernel: str, genome: Mapping[str, Allele]) -> Iterator[Any]:
    """Put the kernel with its genome in the place of the file's own."""
    space = vars(module)
    forced, base = _Forced(space[kernel], genome), jitted(space[kernel])
    kept = {n: v for n, v in space.items() if hasattr(v, "fn") and jitted(v) is base}
    space.update(dict.fromkeys(kept, forced))
    try:
        yield forced
    finally:
        space.update(kept)


# Inputs that random numbers do not fit


def made_inputs(path: str, declaration: str, axes: Mapping[str, int]) -> dict[str, Any]:
    """Return all inputs as arrays in the form in which memory holds them.

    What the file's ``values`` function gives is taken as it is; the others are random. Types that
    NumPy lacks come as their bits.

    Raises:
        InputError: The function gives an array of another shape, or a type cannot be made.
    """
    said = the_declaration(_module(path), declaration)
    own = {} if said.values is None else dict(said.values(**axes))
    rng = np.random.default_rng()
    return {spec.name: _array(spec, axes, own.get(spec.name), rng) for spec in said.specs("inputs")}


def _array(
    spec: TensorSpec, axes: Mapping[str, int], value: Any, rng: np.random.Generator
) -> NDArray[Any]:
    shape = tuple(int(part) if part.isdigit() else axes[part] for part in spec.shape or ())
    if value is None:
        return _random(spec, shape, rng)
    array = np.asarray(value)
    if array.shape != shape:
        raise InputError(
            f"values: input {spec.name!r} has the shape {array.shape}, and {shape} was declared"
        )
    return _bits(spec, array)


def _random(spec: TensorSpec, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[Any]:
    if "float" not in spec.dtype:
        below = 2 if spec.dtype == "bool" else _INTEGERS_BELOW
        return _bits(spec, rng.integers(0, below, size=shape))
    return _bits(spec, rng.standard_normal(shape, dtype=np.float32))


def _bits(spec: TensorSpec, array: NDArray[Any]) -> NDArray[Any]:
    if spec.dtype == "bfloat16":
        wide = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32).astype(np.uint64)
        even = (wide >> _BFLOAT16_SHIFT) & 1
        return ((wide + 0x7FFF + even) >> _BFLOAT16_SHIFT).astype(np.uint16)
    try:
        return array.astype(np.dtype(spec.dtype))
    except TypeError:
        raise InputError(
            f"input {spec.name!r}: values of type {spec.dtype} cannot be made beside values() "
            f"or without PyTorch"
        ) from None
