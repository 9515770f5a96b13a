"""Format ``c-header``: the audited best genomes as macros, guarded per device and shape.

The macros are those that our C sources are written with, so that the header stands before a
source by ``#include`` or by the compiler's ``-include``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from kernelarc.genomes import LT_ROUTE, Genome, InputError, Workload
from kernelarc.genomes.routes import Route, cpu_routes, macros_of
from kernelarc.storage._contract import Best
from kernelarc.storage.exports._compiled import is_triton
from kernelarc.storage.exports._naming import macro_word
from kernelarc.storage.exports._placing import FileWriter
from kernelarc.storage.exports._subject import Subject


def c_header_files(subject: Subject, path: Path) -> Mapping[Path, FileWriter]:
    """Write one block for each workload whose best was audited.

    Raises:
        InputError: No best is a kernel in C, none was audited, or two genes would be one macro.
    """
    number = subject.campaign.id
    routes = {best.evaluation.candidate.genome.route for best in subject.bests}
    if routes and not any(_in_c(best) for best in subject.bests):
        raise InputError(
            f"campaign {number}: format c-header holds macros for sources in C, and its bests are "
            f"of route {', '.join(sorted(routes))}"
        )
    audited = [(w, b) for w in subject.workloads if _is_held(b := subject.best(w)) and b]
    if not audited:
        raise InputError(
            f"campaign {number}: no best was audited yet, and a header holds nothing else; "
            f"'kernelarc resume' or 'kernelarc verify' audits it"
        )
    text = "\n".join(_lines(subject, audited)) + "\n"

    def write(aside: Path) -> None:
        aside.write_text(text, encoding="utf-8")

    return {path: write}


def _lines(subject: Subject, audited: list[tuple[Workload, Best]]) -> Iterator[str]:
    device = f"KERNELARC_DEVICE_{macro_word(subject.device_label)}"
    guard = f"KERNELARC_{macro_word(subject.operator.name)}_{macro_word(subject.device_label)}_H"
    shapes = [_shape(workload) for workload, _ in audited]
    yield from _introduction(subject, device, sorted({name for s in shapes for name in s}))
    yield from (f"#ifndef {guard}", f"#define {guard}", "")
    for place, ((_, best), shape) in enumerate(zip(audited, shapes, strict=True)):
        yield f"#if !defined(KERNELARC_TUNED) && {_condition(device, shape, first=place == 0)}"
        yield from _block(subject, best)
        yield from ("#endif", "")
    yield f"#endif /* {guard} */"


def _introduction(subject: Subject, device: str, shape_names: list[str]) -> Iterator[str]:
    without = [w.label for w in subject.workloads if not _is_held(subject.best(w))]
    yield f"/* {_comment(subject.operator.name)}: genomes tuned for one device, per shape."
    yield f"   Device: {_comment(subject.device_label)}"
    yield f"   From kernelarc's campaign {subject.campaign.id}; {_assurance(subject)}"
    yield ""
    yield "   Include this before the kernel's source, or compile it with -include; a genome and"
    yield "   its source as one file: kernelarc show STORE FINGERPRINT --source. Afterwards"
    yield "   KERNELARC_TUNED is 1 where a genome matched. To choose among several headers,"
    yield f"   define KERNELARC_DEVICE and the device's own macro, here {device}."
    if shape_names:
        yield f"   To choose a shape, define {', '.join(shape_names)};"
        yield "   with none of them defined the first shape is taken."
    for label in without:
        yield f"   Left out, because no kernel in C is its audited best: {_comment(label)}"
    yield "*/"


def _assurance(subject: Subject) -> str:
    """Return what an audit was: a recording can only be read again."""
    timed = [best.evaluation.measurement for best in subject.bests if best.audited]
    if any(each is not None and each.cache == "recorded" for each in timed):
        return "every number below is a recording's: nothing was run."
    return "every number below was audited."


def _in_c(best: Best) -> bool:
    """Tell whether a best may be compiled from C: neither a library's nor Triton's."""
    genome = best.evaluation.candidate.genome
    return genome.route != LT_ROUTE and not is_triton(genome)


def _is_held(best: Best | None) -> bool:
    return best is not None and best.audited and _in_c(best)


def _shape(workload: Workload) -> dict[str, str]:
    """Return what selects a workload: macro names with the number each must be."""
    found = {f"KERNELARC_AXIS_{_word(n)}": str(v) for n, v in workload.axes.items()}
    for name, value in workload.options.items():
        if isinstance(value, str):
            found[f"KERNELARC_OPTION_{_word(name)}_{_word(value)}"] = "1"
        else:
            found[f"KERNELARC_OPTION_{_word(name)}"] = str(int(value))
    return found


def _condition(device: str, shape: Mapping[str, str], *, first: bool) -> str:
    wanted = [f"(!defined(KERNELARC_DEVICE) || defined({device}))"]
    exact = " && ".join(f"defined({n}) && {n} == {v}" for n, v in shape.items())
    unsaid = " && ".join(f"!defined({name})" for name in shape)
    if exact:
        wanted.append(f"(({exact}) || ({unsaid}))" if first else f"({exact})")
    return " && \\\n    ".join(wanted)


def _block(subject: Subject, best: Best) -> Iterator[str]:
    genome = best.evaluation.candidate.genome
    route = cpu_routes(subject.operator).get(genome.route)
    timed = best.evaluation.measurement
    assert timed is not None
    yield f"/* genome {genome.fingerprint}, route {_comment(genome.route)}:"
    yield f"   {timed.objective:.6g} {_comment(timed.unit)}{_gain(best)}"
    yield f"   {_comment(genome.canonical)} */"
    yield "#define KERNELARC_TUNED 1"
    if route is not None:
        yield f'#define KERNELARC_FLAGS "{" ".join(_flags(route, genome))}"'
    for name, text in _macros(route, genome).items():
        yield f"#define {name} {text}"


def _gain(best: Best) -> str:
    if best.speedup is None or best.against is None:
        return ""
    s = best.speedup
    baseline = _comment(best.against.removeprefix("baseline:"))
    return f", {s.value:.3f} [{s.low:.3f}, {s.high:.3f}] times as fast as {baseline}"


def _flags(route: Route, genome: Genome) -> tuple[str, ...]:
    return tuple(flag for flag in route.options(genome) if not flag.startswith("-D"))


def _macros(route: Route | None, genome: Genome) -> dict[str, str]:
    """Return the macros of a genome; of a recorded space, one for each gene."""
    if route is not None:
        return route.macros(genome)
    found: dict[str, str] = {}
    for gene, allele in genome.items():
        for name, text in macros_of(gene, allele).items():
            word = _word(name)
            if word in found:
                raise InputError(f"gene {gene!r}: another gene has the macro {word} already")
            found[word] = text
    return found


def _word(name: str) -> str:
    word = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{word}" if word[:1].isdigit() else word


def _comment(text: str) -> str:
    """Return text that ends no comment and breaks no line."""
    return re.sub(r"\s+", " ", text).replace("*/", "* /").replace("/*", "/ *")
