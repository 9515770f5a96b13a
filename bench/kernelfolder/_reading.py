"""Reading ``kernel.toml``: which source, how it is launched, what there is to choose."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kernelarc.bench._gene_json import gene_from_json
from kernelarc.genomes import (
    Allele,
    ExpressionConstraint,
    Gene,
    InputError,
    Operator,
    allele_from_json,
    nearest,
)
from kernelarc.genomes.kernels import (
    SCALAR_TYPES,
    InputArgument,
    ScratchArgument,
    TensorArgument,
    Zeroing,
)
from kernelarc.genomes.routes._cuda_own import (
    Computed,
    OwnArgument,
    OwnCudaRoute,
    OwnLaunch,
    OwnScratch,
    OwnSource,
    Triple,
)

FILE = "kernel.toml"
_FIELDS = ("source", "launches", "genes", "constraints", "seeds", "scratch")
_LAUNCH_FIELDS = ("symbol", "grid", "block", "cluster", "shared_bytes", "arguments")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"(?P<file>[^"]+)"[^\n]*\n', re.MULTILINE)
_MOST_INCLUDES = 64
_TOOLKIT = "/usr/local/cuda"
_KINDS = {
    "float64": "f64", "float32": "f32", "float16": "f16", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "bool": "u8",
}  # fmt: skip


def brings_kernel(folder: Path) -> bool:
    """Tell whether a problem's folder holds a kernel of the user's own."""
    return (folder / FILE).is_file()


def triton_source(folder: Path) -> Path | None:
    """Return the Python file that a folder's ``kernel.toml`` names, or None where it is CUDA C++.

    Raises:
        InputError: ``kernel.toml`` cannot be read, or has other fields beside a Python file: that
            declares genes and launches itself.
    """
    path = folder / FILE
    values = _toml(path)
    named = values.get("source")
    if not isinstance(named, str) or not named.endswith(".py"):
        return None
    for other in values:
        if other != "source":
            raise InputError(
                f"{path}: {other} is for a CUDA source; {named} declares a "
                f"kernelarc.TritonKernel, genes and seeds included"
            )
    if not (folder / named).is_file():
        raise InputError(f"{path}: source names {named!r}, and there is no such file beside it")
    return folder / named


def own_cuda_route(folder: Path, operator: Operator) -> OwnCudaRoute:
    """Read ``kernel.toml`` of a folder and return its route.

    Args:
        folder: Holds the file and the source that it names.
        operator: The problem's.

    Raises:
        InputError: Something in it is not as it must be; one line with file and field.
    """
    path = folder / FILE
    table = _Table(path, "", _toml(path), _FIELDS)
    try:
        own = _source(table, folder, operator)
        return OwnCudaRoute(operator, own)
    except InputError as error:
        text = str(error)
        named = text.startswith((str(path), f"{folder}/"))
        raise InputError(text if named else f"{path}: {text}") from None


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: {error}") from None


class _Table:
    """A table of the file, every field checked as it is taken.

    Args:
        path: The file.
        place: How messages call the table, ``""`` for the file's top.
        values: As ``tomllib`` gives them.
        known: Fields that it may have.

    Raises:
        InputError: It is no table, or has an unknown field.
    """

    def __init__(self, path: Path, place: str, values: Any, known: Sequence[str]) -> None:
        self.path, self.place = path, place
        if not isinstance(values, dict):
            raise self.fault("", f"must be a table, not {values!r}")
        for name in values:
            if name not in known:
                raise self.fault(name, f"is no field{nearest(name, known)}")
        self.values: dict[str, Any] = values

    def fault(self, name: str, why: str) -> InputError:
        """Return the error for one field."""
        where = ".".join(part for part in (self.place, name) if part)
        return InputError(f"{self.path}: {where} {why}")

    def text(self, name: str) -> str:
        """Return a field that must be there and be text."""
        value = self.values.get(name)
        if not isinstance(value, str) or not value:
            raise self.fault(name, f"must be a text, not {value!r}" if value else "is missing")
        return value

    def rows(self, name: str) -> list[Any]:
        """Return a list, empty where it is absent."""
        value = self.values.get(name, [])
        if not isinstance(value, list):
            raise self.fault(name, f"must be a list, not {value!r}")
        return value

    def number(self, name: str, otherwise: str) -> str:
        """Return a whole number or an expression, as text."""
        return self._number(name, self.values.get(name, otherwise))

    def triple(self, name: str) -> Triple:
        """Return up to three numbers or expressions; those left out are 1."""
        value = self.values.get(name, [])
        items = value if isinstance(value, list) else [value]
        if len(items) > 3:
            raise self.fault(name, f"has {len(items)} numbers, at most 3")
        x, y, z = (self._number(name, item) for item in [*items, 1, 1, 1][:3])
        return x, y, z

    def _number(self, name: str, value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise self.fault(name, f"must be a whole number or an expression, not {value!r}")
        return str(value)


def _source(table: _Table, folder: Path, operator: Operator) -> OwnSource:
    genes = tuple(_gene(table, i, entry) for i, entry in enumerate(table.rows("genes")))
    names = tuple(gene.name for gene in genes)
    scratch = _scratch(table)
    launches = table.rows("launches")
    if not launches or not genes:
        raise table.fault(
            "launches" if genes else "genes", "is missing: there must be at least one"
        )
    return OwnSource(
        text=_text(folder, table.text("source")),
        genes=genes,
        constraints=tuple(ExpressionConstraint(text, names) for text in table.rows("constraints")),
        launches=tuple(
            _launch(_Table(table.path, f"launches[{i}]", entry, _LAUNCH_FIELDS), operator, scratch)
            for i, entry in enumerate(launches)
        ),
        scratch=scratch,
        seeds=tuple(_seed(table, i, entry, genes) for i, entry in enumerate(table.rows("seeds"))),
        include_paths=toolkit_headers(),
    )


def _text(folder: Path, file: str) -> str:
    """Return a source with the folder's own headers written in where they are included."""
    seen: set[Path] = set()

    def read(path: Path, wanted_by: str) -> str:
        if len(seen) >= _MOST_INCLUDES:
            raise InputError(f"{folder / file}: includes more than {_MOST_INCLUDES} files")
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: {wanted_by} cannot be read: {error}") from None
        seen.add(path)
        return _INCLUDE.sub(lambda found: written(path, found), text)

    def written(path: Path, found: re.Match[str]) -> str:
        other = (path.parent / found["file"]).resolve()
        if not other.is_file():  # a header of the toolkit: NVRTC looks for it
            return found[0]
        return "" if other in seen else read(other, "a header") + "\n"

    return read((folder / file).resolve(), "the source")


def toolkit_headers() -> tuple[str, ...]:
    """Return the folder of CUDA's headers: a Python package's, a toolkit's, else Triton's own."""
    packaged = [path for root in _package("nvidia") for path in sorted(root.glob("*/include"))]
    named = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    toolkits = [Path(folder) / "include" for folder in (*named, _TOOLKIT) if folder]
    within = [root / "backends" / "nvidia" / "include" for root in _package("triton")]
    for folder in (*packaged, *toolkits, *within):
        if (folder / "cuda_fp16.h").is_file():
            return (str(folder),)
    return ()


def _package(name: str) -> list[Path]:
    try:
        spec = find_spec(name)
    except (ModuleNotFoundError, ValueError):
        return []
    return [] if spec is None else [Path(root) for root in spec.submodule_search_locations or ()]


def _gene(table: _Table, place: int, entry: Any) -> Gene:
    if not isinstance(entry, dict):
        raise table.fault(f"genes[{place}]", f"must be a table with name and kind, not {entry!r}")
    try:
        return gene_from_json(entry)
    except InputError as error:
        raise table.fault(f"genes[{place}]", str(error)) from None


def _seed(table: _Table, place: int, entry: Any, genes: Sequence[Gene]) -> Mapping[str, Allele]:
    known = {gene.name: gene for gene in genes}
    if not isinstance(entry, dict):
        raise table.fault(f"seeds[{place}]", f"must be a table of alleles by gene, not {entry!r}")
    found = {}
    for name, value in entry.items():
        if name not in known:
            raise table.fault(f"seeds[{place}].{name}", f"is no gene{nearest(name, known)}")
        found[name] = allele_from_json(value)
        if not known[name].contains(found[name]):
            raise table.fault(f"seeds[{place}].{name}", f"has no allele {value!r}")
    return found


def _scratch(table: _Table) -> tuple[OwnScratch, ...]:
    entries = table.values.get("scratch", {})
    if not isinstance(entries, dict):
        raise table.fault("scratch", "must be a table of buffers by name")
    found = []
    for name, entry in entries.items():
        inner = _Table(table.path, f"scratch.{name}", entry, ("nbytes", "zero"))
        zero = inner.values.get("zero", "never")
        if zero not in tuple(Zeroing):
            raise inner.fault("zero", f"must be one of {', '.join(Zeroing)}, not {zero!r}")
        nbytes = inner.number("nbytes", "0")
        found.append(OwnScratch(name=name, nbytes=nbytes, zeroing=Zeroing(zero)))
    return tuple(found)


def _launch(table: _Table, operator: Operator, scratch: Sequence[OwnScratch]) -> OwnLaunch:
    if "grid" not in table.values or "block" not in table.values:
        raise table.fault("grid" if "grid" not in table.values else "block", "is missing")
    return OwnLaunch(
        symbol=table.text("symbol"),
        grid=table.triple("grid"),
        block=table.triple("block"),
        cluster=table.triple("cluster"),
        shared_bytes=table.number("shared_bytes", "0"),
        arguments=tuple(
            _argument(table, f"arguments[{i}]", entry, operator, scratch)
            for i, entry in enumerate(table.rows("arguments"))
        ),
    )


def _argument(
    table: _Table, place: str, entry: Any, operator: Operator, scratch: Sequence[OwnScratch]
) -> OwnArgument:
    """Return an argument: a tensor's or scalar's name, or a table that says type and value."""
    specs = {spec.name: spec for spec in (*operator.inputs, *operator.outputs)}
    buffers = [part.name for part in scratch]
    if isinstance(entry, dict):
        inner = _Table(table.path, f"{table.place}.{place}", entry, ("type", "value"))
        kind = inner.text("type")
        if kind not in SCALAR_TYPES:
            raise inner.fault("type", f"must be one of {', '.join(SCALAR_TYPES)}, not {kind!r}")
        if isinstance(entry.get("value"), float):
            return Computed(text=repr(entry["value"]), kind=kind)
        return Computed(text=inner.number("value", ""), kind=kind)
    if entry in buffers:
        return ScratchArgument(entry)
    if not isinstance(entry, str) or entry not in specs:
        known = (*specs, *buffers)
        raise table.fault(
            place,
            f"{entry!r} is no tensor or scratch buffer{nearest(str(entry), known)}; a number is "
            f'written {{type = "i32", value = "..."}}',
        )
    spec = specs[entry]
    if spec.shape is not None:
        return TensorArgument(entry)
    return InputArgument(entry, _KINDS.get(spec.dtype, "f32"))
