"""What can be compared, by name: our search, the peers, and random search as a control."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType

from kernelarc.bench import source_hash
from kernelarc.engine.comparison import _kernel_tuner, _optuna
from kernelarc.engine.comparison._arms import ARM_NAMES, play_arm
from kernelarc.engine.comparison._ours import play_campaign
from kernelarc.engine.comparison._random import play_random
from kernelarc.engine.comparison._table import Table
from kernelarc.genomes import InputError, nearest

OURS = "kernelarc"
RANDOM = "random"
_SEARCHING = ("genomes", "islands", "engine", "storage", "bench/replay")
# What of the comparison itself decides how ours plays.
_PLAYING = frozenset({"_ours.py", "_arms.py"})
_ROOT = Path(__file__).resolve().parent.parent.parent

Playing = Callable[[Table, int, int], list[float]]
"""Plays a table within a budget, by a seed; returns the unique evaluations' objectives."""


@dataclass(frozen=True, slots=True)
class Method:
    """One way to search.

    Attributes:
        name: As in results and on the command line.
        play: Runs it once.
        version: Names what was run, so that results of something else are not taken for it.

    Raises:
        MissingPartError: By ``version``, where a package is missing.
    """

    name: str
    play: Playing
    version: Callable[[], str]


@cache
def our_source() -> str:
    """Return a hash of everything that our search's results depend on, as this process found it."""
    folders = [_ROOT / folder for folder in _SEARCHING]
    paths = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    return source_hash(
        path for path in paths if "comparison" not in path.parts or path.name in _PLAYING
    )


def _sampler(name: str, play: Playing, *needs: str) -> Method:
    return Method(name, play, partial(_optuna.version, *needs))


def _strategy(name: str) -> Method:
    play = partial(_kernel_tuner.play_strategy, strategy=name)
    return Method(name, play, partial(_kernel_tuner.version, name))


def _arm(name: str) -> Method:
    return Method(f"{OURS}:{name}", partial(play_arm, arm=name), our_source)


_LISTED = (
    Method(OURS, play_campaign, our_source),
    _sampler("optuna_tpe", _optuna.play_tpe),
    _sampler("optuna_gp", _optuna.play_gp, "torch", "scipy"),
    _sampler("optuna_cma_es", _optuna.play_cma_es, "cmaes"),
    *(_strategy(name) for name in _kernel_tuner.STRATEGIES),
    Method(RANDOM, play_random, lambda: "1"),
    *(_arm(name) for name in ARM_NAMES),
)

METHODS: Mapping[str, Method] = MappingProxyType({method.name: method for method in _LISTED})
FAMILIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "kernel_tuner": _kernel_tuner.STRATEGIES,
        "optuna": ("optuna_tpe", "optuna_gp", "optuna_cma_es"),
        "ablations": tuple(f"{OURS}:{name}" for name in ARM_NAMES),
    }
)


def methods_named(names: Iterable[str]) -> tuple[Method, ...]:
    """Return methods by name or family, each once; our own search always comes first.

    Raises:
        InputError: A name is unknown; the message says the nearest.
    """
    chosen = [OURS]
    for name in names:
        if name not in METHODS and name not in FAMILIES:
            raise InputError(
                f"--peers: unknown peer {name!r}{nearest(name, [*METHODS, *FAMILIES])}"
            )
        chosen += FAMILIES.get(name, (name,))
    return tuple(METHODS[name] for name in dict.fromkeys(chosen))
