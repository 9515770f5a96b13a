"""Format ``triton``: a Python module with one ``triton.Config`` for each audited workload."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from kernelarc.genomes import InputError
from kernelarc.storage.exports._compiled import Compiled, compiled_bests, left_out
from kernelarc.storage.exports._placing import FileWriter
from kernelarc.storage.exports._subject import Subject

_USE = '''

def chosen(configs, named_args, **kwargs):
    """Return the configuration of the call's key, or all of them where the key is unknown."""
    arguments = {**named_args, **kwargs}
    found = CONFIGS.get(tuple(arguments.get(name) for name in KEY))
    return list(configs) if found is None else [found]
'''


def triton_files(subject: Subject, path: Path) -> Mapping[Path, FileWriter]:
    """Write the module.

    Raises:
        InputError: No best is Triton's and audited, or two workloads have one key.
    """
    text = "\n".join(_lines(subject, compiled_bests(subject, "triton"))) + "\n" + _USE
    compile(text, str(path), "exec")

    def write(aside: Path) -> None:
        aside.write_text(text, encoding="utf-8")

    return {path: write}


def _lines(subject: Subject, bests: list[Compiled]) -> Iterator[str]:
    names = _key_names(bests)
    keys = [_values(each, names) for each in bests]
    doubled = next((key for key in keys if keys.count(key) > 1), None)
    if doubled is not None:
        raise InputError(f"format triton: two workloads have the key {doubled!r}")
    yield from _introduction(subject, bests)
    yield "import triton"
    yield ""
    yield f"DEVICE = {json.dumps(subject.device_label)}"
    yield f"KEY = {names!r}"
    yield "CONFIGS = {"
    for key, each in zip(keys, bests, strict=True):
        yield f"    # {_one_line(each.gain)}; genome {each.genome.fingerprint}"
        yield f"    {key!r}: {configuration(each)},"
    yield "}"


def _introduction(subject: Subject, bests: list[Compiled]) -> Iterator[str]:
    name, device = subject.operator.name, subject.device_label
    yield f'"""Configurations of {_one_line(name)}, tuned by kernelarc on {_one_line(device)}.'
    yield ""
    yield f"From campaign {subject.campaign.id}; every one was audited in a fresh process. Beside"
    yield "a kernel:"
    yield ""
    yield "    @triton.autotune(configs=list(CONFIGS.values()), key=list(KEY),"
    yield '                     prune_configs_by={"early_config_prune": chosen})'
    for line in left_out(subject, bests):
        yield f"\nLeft out: {_one_line(line)}."
    yield '"""'
    yield ""


def _key_names(bests: list[Compiled]) -> tuple[str, ...]:
    """Return what tells the workloads apart: the axes, and options where these do not."""
    axes = tuple(dict.fromkeys(name for each in bests for name in each.workload.axes))
    if len({_values(each, axes) for each in bests}) == len(bests):
        return axes
    options = sorted({name for each in bests for name in each.workload.options})
    return (*axes, *(n for n in options if len({_values(each, (n,)) for each in bests}) > 1))


def _values(each: Compiled, names: tuple[str, ...]) -> tuple[object, ...]:
    facts = {**each.workload.axes, **each.workload.options}
    return tuple(facts.get(name) for name in names)


def configuration(each: Compiled) -> str:
    """Return the call that makes a genome's configuration."""
    options = "".join(f", {name}={value}" for name, value in each.options.items())
    return f"triton.Config({each.constants!r}{options})"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace('"', "'").replace("\\", "/")
