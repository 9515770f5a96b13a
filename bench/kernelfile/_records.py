"""What is known of a kernel once its file has been imported: plain values, no Triton objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from kernelarc.genomes import Allele

COMPILE_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Genes that Triton's compiler takes beside the kernel's own constants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a kernel.

    Attributes:
        constant: Whether it is a ``tl.constexpr``.
        default: Its default where that is a plain value; None otherwise.
        has_default: Whether it has any default.
    """

    name: str
    constant: bool
    has_default: bool = False
    default: bool | int | float | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A ``@triton.jit`` function that is a kernel, with what its decorators say.

    Attributes:
        name: The name under which the module holds it.
        function: Name of the function itself.
        line: Where it is defined, from 1.
        seeds: The autotuner's configurations as alleles by gene name, in the file's order. A
            number of warps, stages or blocks of a cluster that is Triton's default is written out.
        keys: Arguments whose values call for another choice, in the file's order.
        reset_to_zero: Tensors to be zeroed before each run.
        restore_value: Tensors to be as before after each run.
        heuristics: Constants that ``triton.heuristics`` computes: no genes.
        hooks: What of the autotuner's arguments is a function and runs beside the kernel
            (``pre_hook``, ``post_hook``, a configuration's own ``pre_hook``).
        prunes: Whether ``prune_configs_by`` drops configurations.
        tuned: Whether there is an autotuner at all.
    """

    name: str
    function: str
    line: int
    parameters: tuple[Parameter, ...]
    seeds: tuple[Mapping[str, Allele], ...] = ()
    keys: tuple[str, ...] = ()
    reset_to_zero: tuple[str, ...] = ()
    restore_value: tuple[str, ...] = ()
    heuristics: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    prunes: bool = False
    tuned: bool = False

    @property
    def constants(self) -> tuple[str, ...]:
        """Names of the parameters that are fixed when the kernel is compiled."""
        return tuple(p.name for p in self.parameters if p.constant)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Rebuild a kernel from what the reading process sent."""
        plain: dict[str, Any] = {
            name: tuple(v) if isinstance(v, list) else v for name, v in values.items()
        }
        plain["parameters"] = tuple(Parameter(**p) for p in values["parameters"])
        return cls(**plain)
