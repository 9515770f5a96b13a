"""Finding kernels in an imported module. Runs in the reading process; needs Triton."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelarc.bench.kernelfile._records import COMPILE_OPTIONS, Kernel, Parameter
from kernelarc.genomes import Allele
from kernelarc.genomes.triton import jitted, layers, tuner_of

_PLAIN = (bool, int, float, str)


class UnfitSeedError(ValueError):
    """A configuration holds something that cannot be searched; the text says what."""


def kernels_of(module: ModuleType) -> list[dict[str, Any]]:
    """Return every kernel that the module's own file defines, as JSON values, by line.

    A jitted function that another one calls is part of that one and no kernel; of several names
    for one function the most decorated counts.

    Raises:
        UnfitSeedError: A configuration holds a value that is no number, boolean or string.
    """
    file = Path(str(module.__file__)).resolve()
    found: dict[int, tuple[str, Any]] = {}
    for name, value in vars(module).items():
        base = jitted(value)
        if base is None or Path(base.fn.__code__.co_filename).resolve() != file:
            continue
        known = found.get(id(base))
        if known is None or _depth(value) > _depth(known[1]):
            found[id(base)] = (name, value)
    called = set().union(*(_names_used(jitted(value)) for _, value in found.values()), set())
    kernels = [
        kernel_of(name, value)
        for name, value in found.values()
        if jitted(value).fn.__name__ not in called and name not in called
    ]
    return [asdict(kernel) for kernel in sorted(kernels, key=lambda kernel: kernel.line)]


def _depth(value: Any) -> int:
    return sum(1 for _ in layers(value))


def _names_used(base: Any) -> set[str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(base.fn)))
    body = [node for top in tree.body for node in getattr(top, "body", [])]
    return {
        node.func.id
        for part in body
        for node in ast.walk(part)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    } - {base.fn.__name__}


def kernel_of(name: str, value: Any) -> Kernel:
    """Say what one kernel object is."""
    base = jitted(value)
    parameters = tuple(_parameter(p) for p in base.params)
    tuner = tuner_of(value)
    computed = [n for each in layers(value) for n in _heuristics(each)]
    plain = Kernel(
        name=name,
        function=base.fn.__name__,
        line=_line_of(base),
        parameters=parameters,
        heuristics=tuple(dict.fromkeys(computed)),
    )
    return plain if tuner is None else _tuned(plain, tuner)


def _line_of(base: Any) -> int:
    """Return the line of ``def``: the code object's own line is that of the first decorator."""
    lines, first = inspect.getsourcelines(base.fn)
    place = next((n for n, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
    return max(first, 1) + place


def _parameter(parameter: Any) -> Parameter:
    has = bool(parameter.has_default)
    default = parameter.default if has else None
    default = getattr(default, "value", default)
    return Parameter(
        name=parameter.name,
        constant=bool(parameter.is_constexpr),
        has_default=has,
        default=default if isinstance(default, _PLAIN) else None,
    )


def _heuristics(layer: Any) -> Iterable[str]:
    """Return the constants that a ``triton.heuristics`` layer computes."""
    values = getattr(layer, "values", None)
    return tuple(values) if isinstance(values, Mapping) else ()


def _tuned(kernel: Kernel, tuner: Any) -> Kernel:
    hooks = [
        name
        for name, there in (
            ("pre_hook", tuner.user_defined_pre_hook),
            ("post_hook", tuner.user_defined_post_hook),
            ("a configuration's pre_hook", any(c.pre_hook is not None for c in tuner.configs)),
        )
        if there
    ]
    values = asdict(kernel)
    values |= {
        "parameters": kernel.parameters,
        "seeds": seeds_of(kernel, tuner.configs),
        "keys": tuple(tuner.keys),
        "reset_to_zero": tuple(tuner.reset_to_zero),
        "restore_value": tuple(tuner.restore_value),
        "hooks": tuple(hooks),
        "prunes": tuner.early_config_prune is not None or tuner.perf_model is not None,
        "tuned": True,
    }
    return Kernel(**values)


def seeds_of(kernel: Kernel, configurations: Iterable[Any]) -> tuple[dict[str, Any], ...]:
    """Return configurations as alleles; constants that one leaves out take their defaults.

    Raises:
        UnfitSeedError: A value is no number, boolean or string.
    """
    configurations = list(configurations)
    defaults = {p.name: p.default for p in kernel.parameters if p.default is not None}
    named = list(dict.fromkeys(name for c in configurations for name in c.kwargs))
    seeds = []
    for place, each in enumerate(configurations, start=1):
        alleles: dict[str, Any] = {}
        for name in named:
            value = each.kwargs.get(name, defaults.get(name))
            value = getattr(value, "value", value)
            if not isinstance(value, _PLAIN):
                raise UnfitSeedError(
                    f"configuration {place} of {kernel.name}: {name} is "
                    f"{value!r:.60}, and only numbers, booleans and strings can be searched"
                )
            alleles[name] = value
        seeds.append({**alleles, **options_of(each)})
    return tuple(seeds)


def options_of(configuration: Any) -> dict[str, int]:
    """Return a configuration's compile options as genes; ``maxnreg`` 0 sets no limit."""
    return {name: int(getattr(configuration, name, 0) or 0) for name in COMPILE_OPTIONS}


def configuration(alleles: Mapping[str, Allele]) -> Any:
    """Return a genome as Triton's own configuration object."""
    import triton  # noqa: PLC0415 - an optional part

    constants = {name: value for name, value in alleles.items() if name not in COMPILE_OPTIONS}
    options = {n: alleles[n] for n in COMPILE_OPTIONS if n in alleles}
    if not options.get("maxnreg"):
        options.pop("maxnreg", None)
    return triton.Config(constants, **options)
