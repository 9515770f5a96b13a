"""What a user has of torch for an operator: the reference and other forms, eager or compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from kernelarc.bench._reference import function_of
from kernelarc.bench.kernels._messages import TORCH_COMPILED, TORCH_EAGER
from kernelarc.genomes import Operator, torch_forms

_Run: TypeAlias = "Callable[..., Any]"
_BY_TORCH, _COMPILED = "torch ", " compile"
_MOST_COMPILED = 256  # shapes of one function


def torch_names(operator: Operator, *, compiles: bool) -> tuple[str, ...]:
    """Return the names of all that may be a baseline, what is ready soonest first.

    Args:
        operator: With a reference over torch.
        compiles: Whether ``torch.compile`` can be used here.
    """
    forms = torch_forms(operator)
    plain = (TORCH_EAGER, *(_BY_TORCH + form.name for form in forms))
    if not compiles:
        return plain
    kept = (f"{_BY_TORCH}{form.name}{_COMPILED}" for form in forms if form.compiles)
    return (*plain, TORCH_COMPILED, *kept)


def is_torch(name: str) -> bool:
    """Tell whether a baseline of this name is torch's."""
    return name.startswith(_BY_TORCH)


def is_compiled(name: str) -> bool:
    """Tell whether a baseline of this name goes through ``torch.compile``."""
    return is_torch(name) and name.endswith(_COMPILED)


class TorchCalls:
    """Functions by baseline name; they take the operator's inputs in order.

    Args:
        torch: The module.
        operator: Whose.
        run: Its reference.
    """

    def __init__(self, torch: Any, operator: Operator, run: _Run) -> None:
        self._torch = torch
        self._plain: dict[str, _Run] = {TORCH_EAGER: run}
        self._forms = {_BY_TORCH + form.name: form for form in torch_forms(operator)}
        self._compiled: dict[str, _Run] = {}

    def get(self, name: str) -> _Run:
        """Return one; a compiled one compiles when first called.

        For one shape, as one graph: what ``torch.compile`` would leave to Python raises.

        Raises:
            KeyError: There is none of this name.
        """
        if not is_compiled(name):
            return self._of(name)
        if name not in self._compiled:
            plain = TORCH_EAGER if name == TORCH_COMPILED else name.removesuffix(_COMPILED)
            self._compiled[name] = self._through(self._of(plain))
        return self._compiled[name]

    def _of(self, name: str) -> _Run:
        if name not in self._plain:
            form = self._forms[name]
            self._plain[name] = function_of(form.source, form.function)
        return self._plain[name]

    def _through(self, run: _Run) -> _Run:
        import torch._dynamo.config as dynamo  # noqa: PLC0415
        import torch._inductor.config as inductor  # noqa: PLC0415

        inductor.compile_threads = 1  # no processes that nobody here would end
        dynamo.recompile_limit = _MOST_COMPILED
        bare = getattr(run, "__wrapped__", run)  # who calls sees to gradients
        compiled: _Run = self._torch.compile(bare, dynamic=False, fullgraph=True)
        return compiled
