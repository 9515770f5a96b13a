"""``kernelarc.autotune``: stands for ``triton.autotune``, with its arguments and three more."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from kernelarc.bench.kernelfile import options_of
from kernelarc.engine.tuning._finding import (
    Call,
    found_configuration,
    is_capturing,
)
from kernelarc.engine.tuning._settings import OFF, Wishes, mode
from kernelarc.genomes import Gene, MissingPartError

_LOG = logging.getLogger("kernelarc.autotune")


def autotune(  # noqa: PLR0917 - Triton's own order
    configs: Sequence[Any],
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    *,
    space: Mapping[str, Gene | Sequence[Any]] | str | None = None,
    budget: int | str | None = None,
    store: str | os.PathLike[str] | None = None,
    **others: Any,
) -> Callable[[Any], Any]:
    """Decorate a ``@triton.jit`` kernel as ``triton.autotune`` does, and search for its best.

    The first call for a key has another process search, on inputs made there after the call's
    shapes, strides, types and numbers, and every later call and process reads what was found.
    Several processes that call for the same key share one search. A call that cannot be searched
    elsewhere is tuned as Triton does it, in this process and over ``configs`` alone; the log says
    why. Nothing that goes wrong in a search reaches the caller.

    Args:
        configs: The configurations to start from; the first is what runs where nothing can be
            timed.
        key: Arguments whose values call for a choice of their own.
        prune_configs_by: As Triton's.
        reset_to_zero: As Triton's.
        restore_value: As Triton's; the search restores everything that is written.
        pre_hook: As Triton's; with one a kernel is tuned in this process.
        post_hook: As Triton's; likewise.
        space: What to search: None widens the configurations, ``"configs"`` searches them alone,
            a mapping gives alleles or genes by name.
        budget: Evaluations, or seconds as text: ``"30s"``. 200 by default.
        store: SQLite file or database URL; the user's own by default.
        others: Further arguments of Triton's, for tuning in this process.

    Raises:
        MissingPartError: Triton is not installed.
        InputError: ``space`` or ``budget`` is not what it may be, or ``space`` does not fit the
            kernel and its configurations.
    """
    wishes = Wishes(space=space, budget=budget, store=store)
    kind = tuned_kernel_class()

    def decorate(kernel: Any) -> Any:
        made = kind(
            kernel, kernel.arg_names, list(configs), list(key), reset_to_zero, restore_value,
            pre_hook=pre_hook, post_hook=post_hook, prune_configs_by=prune_configs_by, **others,
        )  # fmt: skip
        seeds = [{**getattr(each, "kwargs", {}), **options_of(each)} for each in made.configs]
        wishes.demand_space(made.base_fn.__name__, made.arg_names, seeds)
        made.wishes = wishes
        return made

    return decorate


class Tuned:
    """What a kernel's configurations are found by; mixed into Triton's ``Autotuner``.

    Attributes:
        wishes: What the decorator asks for.
        fallback: Why the newest key was tuned as Triton does it; None where it was not.
    """

    wishes = Wishes()
    fallback: str | None = None
    # Of the class that this is mixed into.
    arg_names: Sequence[str]
    keys: Sequence[str]
    configs: Sequence[Any]
    cache: dict[Any, Any]
    fn: Any
    base_fn: Any
    best_config: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._settling = threading.Lock()
        self._given_up: set[Any] = set()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch with the configuration of the call's key, finding it first if need be."""
        named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        key = self._key_of(named)
        place = tuple(key.values())
        if place not in self.cache:
            if is_capturing():
                return self._launch(self.configs[0], args, kwargs)
            with self._settling:
                if place not in self.cache and place not in self._given_up:
                    self._settle(place, key, named)
        if place in self.cache:
            return self._launch(self.cache[place], args, kwargs)
        return super().run(*args, **kwargs)  # type: ignore[misc]

    def _key_of(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """Return the key as Triton makes it: values of the key, then types of the tensors."""
        own = {name: value for name, value in named.items() if name in self.arg_names}
        found = {name: own[name] for name in self.keys if name in own}
        kinds = {f"{n}.dtype": str(v.dtype) for n, v in own.items() if hasattr(v, "dtype")}
        return {**found, **kinds}

    def _settle(self, place: Any, key: Mapping[str, Any], named: Mapping[str, Any]) -> None:
        """Put the key's configuration into the cache, or say why there is none."""
        if mode() == OFF:
            return
        given = dict(named)
        grid = given.pop("grid", None)
        given.pop("warmup", None)
        try:
            call = Call(tuner=self, named=given, key=key, grid=grid)
            self.cache[place] = found_configuration(call, self.wishes)
            self.fallback = None
        except Exception as error:  # whatever it is, the program goes on
            self._given_up.add(place)
            self.fallback = str(error) or type(error).__name__
            _LOG.warning(
                "%s: tuned in this process over %d configurations: %s",
                self.base_fn.__name__,
                len(self.configs),
                self.fallback,
            )

    def _launch(self, chosen: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        self.best_config = chosen
        if chosen.pre_hook is not None:
            named = dict(zip(self.arg_names, args, strict=False))
            chosen.pre_hook({**named, **kwargs, **chosen.all_kwargs()})
        return self.fn.run(*args, **kwargs, **chosen.all_kwargs())


@cache
def tuned_kernel_class() -> Any:
    """Return the class of decorated kernels. Imports Triton.

    Raises:
        MissingPartError: It is not installed.
    """
    try:
        from triton.runtime.autotuner import Autotuner  # noqa: PLC0415
    except ImportError as error:
        raise MissingPartError(
            f"kernelarc.autotune needs Triton ({error}): install kernelarc[triton]"
        ) from None
    return type("TunedKernel", (Tuned, Autotuner), {"__module__": __name__})
