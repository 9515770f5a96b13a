"""The settings of a campaign: one table of keys for flags, TOML files and the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from kernelarc.engine import _setting_kinds as kinds
from kernelarc.engine._toml import read_toml
from kernelarc.genomes import InputError, Strategy, nearest

DEFAULT_BUDGET = 300
_ISLANDS = tuple(strategy.value for strategy in Strategy)
_MOST = 10**12
_ISLAND = kinds.one_of(_ISLANDS, "island")

# TOML key -> (field, reader). The flag of a key is "--" and the key, underscores as hyphens.
_KEYS: Mapping[str, tuple[str, kinds.Reader]] = MappingProxyType(
    {
        "target": ("target", kinds.text),
        "device": ("device", kinds.optional(kinds.text)),
        "set": ("axes", kinds.table(kinds.whole(1, kinds.LARGEST_AXIS))),
        "workload": ("workloads", kinds.tables(kinds.whole(1, kinds.LARGEST_AXIS))),
        "option": ("options", kinds.table(kinds.option)),
        "routes": ("routes", kinds.optional(kinds.names(kinds.text, least=1))),
        "pin": ("pins", kinds.table(kinds.allele)),
        "seed_genome": ("seed_genomes", kinds.paths),
        "strategy": ("strategies", kinds.table(kinds.one_of(_ISLANDS, "strategy"))),
        "budget": ("budget", kinds.optional(kinds.whole(1, _MOST))),
        "seconds": ("seconds", kinds.optional(kinds.number(0, 1e9, above=True))),
        "target_speedup": ("target_speedup", kinds.optional(kinds.number(1, 1e9, above=True))),
        "seed": ("seed", kinds.whole(0, 2**63 - 1)),
        "islands": ("islands", kinds.optional(kinds.names(_ISLAND, least=1))),
        "without": ("without", kinds.names(_ISLAND, least=0)),
        "margin": ("margin", kinds.optional(kinds.number(0, 1))),
        "plateau": ("plateau", kinds.whole(1, _MOST)),
        "audit_every": ("audit_every", kinds.optional(kinds.whole(1, _MOST))),
        "audit_top": ("audit_top", kinds.whole(1, 1000)),
        "audit_rounds": ("audit_rounds", kinds.whole(5, 10_000)),
        "baselines": ("baselines", kinds.baselines),
        "confirm_rounds": ("confirm_rounds", kinds.whole(5, 10_000)),
        "share_log": ("share_log", kinds.switch),
        "conclusions": ("conclusions", kinds.switch),
        "traps": ("traps", kinds.switch),
        "models": ("models", kinds.switch),
        "optuna": ("optuna", kinds.switch),
        "surrogate": ("surrogate", kinds.switch),
        "controller": ("controller", kinds.switch),
        "resources": ("resources", kinds.switch),
        "retention": ("retention", kinds.unbounded_or(kinds.whole(1, _MOST))),
        "window": ("window", kinds.optional(kinds.whole(1, 4096))),
        "store": ("store", kinds.text),
        "log": ("log_file", kinds.optional(kinds.path)),
        "json": ("json", kinds.switch),
    }
)
_INVOCATION = frozenset({"store", "log", "json"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignSettings:
    """Everything a person may say about a campaign. Checked on construction.

    Attributes:
        target: Built-in operator, or the path of a recorded space, a problem folder or a kernel.
        device: ``"cpu"``, ``"replay"``, ``"cuda:0"``; None lets the target decide.
        axes: Axes of the operator by name, in place of its default workload's.
        workloads: One table of axes for each workload; ``axes`` holds for all of them.
        options: Options of the operator, such as ``residual``.
        routes: The routes that take part, by name; None is all that serve the target here.
        pins: Genes held at one allele, as text; read against the space when the campaign starts.
        seed_genomes: JSON files ``{"route": ..., "genome": {...}}`` that are tried first.
        strategies: Which strategy owns a gene, where the rule should not decide.
        budget: Unique evaluations. 300 when neither it nor ``seconds`` is given.
        seconds: Wall-clock seconds of searching.
        target_speedup: Stop once the confirmed speed-up over the baseline reaches it.
        islands: The islands that take part; None is all.
        without: Islands that do not.
        margin: What a gain must exceed to count; None is 0.002, and 0 on a deterministic device.
        plateau: Measured non-improvements after which an island must go elsewhere.
        audit_every: Evaluations between audits; None audits at the end only.
        audit_top: How many claims a workload's audit re-measures.
        audit_rounds: Interleaved rounds of an audit.
        baselines: What bests are compared with, by name; None is the fastest of all on offer,
            ``("eager",)`` the reference in eager mode.
        confirm_rounds: Interleaved rounds of a confirmation.
        share_log: Whether islands may read the evaluations of the others.
        conclusions: Whether conclusions migrate.
        traps: Whether traps close regions.
        models: Whether islands may use models, of whatever kind.
        optuna: Whether Optuna's studies are among them.
        surrogate: Whether the Gaussian process is.
        controller: Whether islands that bring gains get more of the budget than others.
        resources: Whether a bandit sets register caps and pipeline depths.
        retention: Wins, and traps, that an island keeps in mind; None is unbounded.
        window: Candidates in flight at once; None is what the device likes.
        store: SQLite file or database URL.
        log_file: Where the log is written; None writes none.
        json: Whether the command prints one JSON object.
    """

    target: str
    device: str | None = None
    axes: Mapping[str, int] = field(default_factory=dict)
    workloads: tuple[Mapping[str, int], ...] = ()
    options: Mapping[str, bool | int | str] = field(default_factory=dict)
    routes: tuple[str, ...] | None = None
    pins: Mapping[str, str] = field(default_factory=dict)
    seed_genomes: tuple[Path, ...] = ()
    strategies: Mapping[str, str] = field(default_factory=dict)
    budget: int | None = None
    seconds: float | None = None
    target_speedup: float | None = None
    seed: int = 0
    islands: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    margin: float | None = None
    plateau: int = 60
    audit_every: int | None = None
    audit_top: int = 3
    audit_rounds: int = 40
    baselines: tuple[str, ...] | None = None
    confirm_rounds: int = 20
    share_log: bool = True
    conclusions: bool = True
    traps: bool = True
    models: bool = True
    optuna: bool = True
    surrogate: bool = True
    controller: bool = True
    resources: bool = False
    retention: int | None = 16
    window: int | None = None
    store: str = "kernelarc.db"
    log_file: Path | None = None
    json: bool = False

    def __post_init__(self) -> None:
        for key, (name, reader) in _KEYS.items():
            object.__setattr__(self, name, reader(key, getattr(self, name)))
        if self.budget is None and self.seconds is None:
            object.__setattr__(self, "budget", DEFAULT_BUDGET)
        if not self.active_islands():
            raise InputError("islands and without leave no island to search with")

    @staticmethod
    def keys() -> tuple[str, ...]:
        """Return every TOML key. The flag of a key is ``--`` and the key with hyphens."""
        return tuple(_KEYS)

    def active_islands(self) -> tuple[str, ...]:
        """Return the names of the islands that may take part, in the order of the strategies."""
        chosen = _ISLANDS if self.islands is None else self.islands
        return tuple(name for name in _ISLANDS if name in chosen and name not in self.without)

    @classmethod
    def from_values(cls, values: Mapping[str, Any], *, where: str = "") -> Self:
        """Build settings from values by TOML key.

        Args:
            values: By key; keys that are absent take their defaults.
            where: What the values came from, for the message.

        Raises:
            InputError: A key is unknown or its value is not what it must be.
        """
        prefix = f"{where}: " if where else ""
        for key in values:
            if key not in _KEYS:
                raise InputError(f"{prefix}unknown key {key!r}{nearest(key, _KEYS)}")
        if "target" not in values:
            raise InputError(f"{prefix}the key 'target' is missing: what should be searched for?")
        try:
            return cls(**{_KEYS[key][0]: value for key, value in values.items()})
        except InputError as error:
            raise InputError(f"{prefix}{error}") from None

    @classmethod
    def from_toml(cls, path: Path, overrides: Mapping[str, Any] | None = None) -> Self:
        """Read a campaign file. Flags, as ``overrides`` by key, win; tables are merged.

        Raises:
            InputError: As for ``from_values``; for a syntax error with line and column.
        """
        values = _beside(read_toml(path), path.parent)
        # The file is checked by itself first, so that a message about it names it.
        cls.from_values(values, where=str(path))
        return cls.from_values(overlay(values, overrides or {}))

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Rebuild settings from what ``to_json`` gave."""
        return cls.from_values(values, where="stored settings")

    def to_json(self) -> dict[str, Any]:
        """Return the settings by TOML key as JSON values, without those that are not given.

        The store's name, the log file and ``json`` belong to one call of the command, not to the
        campaign, and stay out: equal campaigns have equal settings wherever they are kept.
        """
        found = {
            key: _plain(getattr(self, name))
            for key, (name, _) in _KEYS.items()
            if key not in _INVOCATION
        }
        found["retention"] = kinds.UNBOUNDED if self.retention is None else self.retention
        return {key: value for key, value in found.items() if value is not None}


def check_extension(budget: int | None, seconds: float | None) -> None:
    """Check what ``resume`` adds to a campaign's limits, by the rules of the limits themselves.

    Raises:
        InputError: Either is not what a campaign's own limit may be.
    """
    for key, value in (("budget", budget), ("seconds", seconds)):
        _KEYS[key][1](key, value)


def read_baselines(value: Any) -> tuple[str, ...] | None:
    """Return a choice of baselines as the settings hold it.

    Raises:
        InputError: It is none.
    """
    found: tuple[str, ...] | None = kinds.baselines("baselines", value)
    return found


def overlay(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Lay flags over the values of a file; of two tables the entries are merged."""
    merged = dict(values)
    for key, value in overrides.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[key] = {**below, **value}
        else:
            merged[key] = value
    return merged


def _beside(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Resolve the files that a campaign file names against its own folder."""
    found = dict(values)
    target = found.get("target")
    if isinstance(target, str) and target and (folder / target).exists():
        found["target"] = str(folder / target)
    genomes = found.get("seed_genome")
    if isinstance(genomes, str):
        genomes = [genomes]
    if isinstance(genomes, list) and all(isinstance(item, str) for item in genomes):
        found["seed_genome"] = [str(folder / item) for item in genomes]
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return dict(value)
    return str(value) if isinstance(value, Path) else value
