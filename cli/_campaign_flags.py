"""The flags of ``run``: each is a key of the campaign file, checked there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from kernelarc.genomes import InputError


def _switch(name: str, text: str) -> Callable[..., Any]:
    return click.option(f"--{name}/--no-{name}", default=None, help=text)


_TARGET_FLAGS = (
    click.option(
        "--device", metavar="D", help="cpu, cuda:N or replay (default: what the target needs)."
    ),
    click.option("--set", multiple=True, metavar="AXIS=VALUE", help="Bind an axis."),
    click.option(
        "--workload",
        multiple=True,
        metavar="AXIS=VALUE,...",
        help="One workload; repeat it for a campaign over several.",
    ),
    click.option("--option", multiple=True, metavar="NAME=VALUE", help="An operator's option."),
    click.option(
        "--routes", metavar="A,B", help="The routes that take part (default: all that can)."
    ),
    click.option(
        "--pin",
        multiple=True,
        metavar="GENE=VALUE",
        help="Hold a gene at one allele, in the routes that have it.",
    ),
)

_SEED = click.option(
    "--seed", type=int, metavar="N", help="Root of every random stream (default: 0)."
)

BASELINES = click.option(
    "--baselines",
    metavar="all|eager|A,B",
    help="What bests are compared with (default: all on offer, of which the fastest counts).",
)

_FLAGS = (
    *_TARGET_FLAGS,
    click.option(
        "--seed-genome", multiple=True, metavar="FILE", help="A JSON genome that is tried first."
    ),
    click.option(
        "--budget", type=int, metavar="N", help="Unique evaluations (default: 300, or --seconds)."
    ),
    click.option("--seconds", type=float, metavar="S", help="Wall-clock seconds of searching."),
    click.option(
        "--target-speedup", type=float, metavar="X", help="Stop at this confirmed speed-up."
    ),
    _SEED,
    click.option("--islands", metavar="A,B", help="The islands that take part (default: all)."),
    click.option("--without", metavar="A,B", help="Islands that do not take part."),
    click.option("--store", metavar="FILE|URL", help="Where to remember (default: kernelarc.db)."),
    click.option("--log", metavar="FILE", help="Append one line per verdict and event."),
    click.option(
        "--strategy",
        multiple=True,
        metavar="GENE=STRATEGY",
        help="Which island owns a gene, where the rule should not decide.",
    ),
    click.option(
        "--margin", type=float, metavar="X", help="What a gain must exceed (default: 0.002)."
    ),
    click.option(
        "--plateau", type=int, metavar="N", help="Non-improvements until an island goes elsewhere."
    ),
    click.option(
        "--confirm-rounds", type=int, metavar="N", help="Interleaved rounds of a confirmation."
    ),
    BASELINES,
    click.option("--audit-rounds", type=int, metavar="N", help="Interleaved rounds of an audit."),
    click.option("--audit-top", type=int, metavar="N", help="Claims that an audit re-measures."),
    click.option(
        "--audit-every",
        type=int,
        metavar="N",
        help="Also audit after every N evaluations (default: at the end only).",
    ),
    click.option(
        "--retention",
        metavar="N|unbounded",
        help="Wins, and traps, that an island keeps in mind (default: 16).",
    ),
    click.option("--window", type=int, metavar="N", help="Candidates in flight at once."),
    _switch("share-log", "Let islands read one another's evaluations (default: yes)."),
    _switch("conclusions", "Let conclusions migrate (default: yes)."),
    _switch("traps", "Let traps close regions (default: yes)."),
    _switch("models", "Let islands propose with models (default: yes)."),
    _switch("optuna", "Let Optuna's studies be among them (default: yes)."),
    _switch("surrogate", "Let the Gaussian process be among them (default: yes)."),
    _switch("controller", "Ask islands and operators that bring gains for more (default: yes)."),
    _switch("resources", "Let a bandit set register caps and pipeline depths (default: no)."),
    click.option("--json", is_flag=True, default=None, help="Print one JSON object, nothing else."),
)

_TABLES = ("set", "option", "pin", "strategy")


def campaign_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command every campaign flag, in the order of the table above."""
    for flag in reversed(_FLAGS):
        command = flag(command)
    return command


def target_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the flags that say what is measured, and the seed."""
    for flag in (_SEED, *reversed(_TARGET_FLAGS)):
        command = flag(command)
    return command


def values_of(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that were given, as values by campaign key."""
    given = {key: value for key, value in flags.items() if value is not None and value != ()}
    for key in _TABLES:
        if key in given:
            given[key] = _table(key, given[key])
    if "workload" in given:
        given["workload"] = [_table("workload", text.split(",")) for text in given["workload"]]
    if "retention" in given:
        given["retention"] = whole_or_text(given["retention"])
    if "seed_genome" in given:
        given["seed_genome"] = list(given["seed_genome"])
    return given


def _table(key: str, texts: Iterable[str]) -> dict[str, Any]:
    read = {"set": whole_or_text, "workload": whole_or_text, "option": _option}.get(key, str)
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise InputError(f"--{key} must be NAME=VALUE, not {text!r}")
        if name in found:
            raise InputError(f"--{key} gives {name!r} twice")
        found[name] = read(value)
    return found


def whole_or_text(text: str) -> int | str:
    """Return a whole number where the text is one; anything else is left to be refused."""
    try:
        return int(text)
    except ValueError:
        return text


def _option(text: str) -> bool | int | str:
    return {"true": True, "false": False}.get(text.lower(), whole_or_text(text))
