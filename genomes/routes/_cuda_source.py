"""CUDA sources that come with the package: made self-contained, hashed, configured by macros."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from kernelarc.genomes._genome import Genome
from kernelarc.genomes.routes._route import macros_of

_INCLUDE = re.compile(r'^#include "(?P<file>[a-z_]+\.cuh)"\n', re.MULTILINE)


@cache
def _text(file: str) -> str:
    return files("kernelarc.genomes").joinpath("routes", file).read_text("utf-8")


def cuda_source(file: str, generated: Mapping[str, str] | None = None) -> str:
    """Return a packaged CUDA source with its headers written in where they are included.

    Args:
        file: Name of the ``.cu`` file.
        generated: Text of headers that depend on the genome, by file name.
    """
    made = generated or {}
    return _INCLUDE.sub(
        lambda found: made[found["file"]] if found["file"] in made else _text(found["file"]),
        _text(file),
    )


def sources_hash(*names: str) -> str:
    """Return 16 hexadecimal digits over some packaged files and the headers they include."""
    state = hashlib.blake2b(digest_size=8)
    for name in names:
        state.update(_text(name).encode())
        for found in _INCLUDE.finditer(_text(name)):
            packaged = files("kernelarc.genomes").joinpath("routes", found["file"])
            state.update(_text(found["file"]).encode() if packaged.is_file() else b"")
    return state.hexdigest()


def text_hash(text: str) -> str:
    """Return 16 hexadecimal digits over a source."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def genome_macros(
    genome: Genome, job: Mapping[str, object], *, without: tuple[str, ...] = ()
) -> dict[str, str]:
    """Return the macros of a genome's genes and of the job, by name.

    Args:
        genome: Its genes become macros as ``macros_of`` says.
        job: What the kernel must know of the workload, already named as macros.
        without: Genes that only the launch needs.
    """
    found: dict[str, str] = {}
    for gene, allele in genome.items():
        if gene not in without:
            found.update(macros_of(gene, allele))
    found.update({name: str(value) for name, value in job.items()})
    return found


def configured(source: str, macros: Mapping[str, str]) -> str:
    """Return a source that starts with its macros, so that it stands alone."""
    return "".join(f"#define {name} {text}\n" for name, text in macros.items()) + "\n" + source
