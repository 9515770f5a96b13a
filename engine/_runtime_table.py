"""An exported table of cuBLASLt algorithms: read, checked, and looked up by what is to be run.

Reading needs no GPU and no CUDA package.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from kernelarc.genomes import (
    LT_ATTRIBUTES,
    LT_TYPES,
    MOST_WORKSPACE_MIB,
    InputError,
    LtRow,
    MatmulJob,
    dtype_bytes,
)

SCHEMA_KEY, SCHEMA = "kernelarc_cublaslt", 1
_LIMITS = {"int32": 2**31 - 1, "uint32": 2**32 - 1, "uint16": 2**16 - 1}
_BLOB_BYTES = 64
_ACTIVATIONS = ("none", "relu", "gelu")
_MOST_BYTES = 2**40


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One workload of a table.

    Attributes:
        label: What people call it.
        job: What is computed. ``in_place`` says that it was measured with the residual in the
            output's buffer: the entry is for such calls only.
        row: The algorithm's attributes, workspace ceiling and aliasing; None where the library's
            first heuristic is best.
        blob: The library's own 64 bytes, empty where there is no algorithm.
        why: Why the algorithm, or the heuristic, was chosen.
    """

    label: str
    job: MatmulJob
    row: LtRow | None
    blob: bytes
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A table as its file says it.

    Attributes:
        path: The file.
        version: The version of the library that it was tuned for.
        device: What it was tuned on, in words.
        entries: By what a call is looked up with.
        workspace_bytes: Most scratch memory that any entry may use.
    """

    path: Path
    version: int
    device: str
    entries: Mapping[MatmulJob, Entry]
    workspace_bytes: int

    def find(self, job: MatmulJob) -> Entry | None:
        """Return the entry for exactly this job, whatever its workspace."""
        return self.entries.get(_looked_up(job))


def _looked_up(job: MatmulJob) -> MatmulJob:
    return replace(job, workspace_bytes=0)


def read_table(path: Path) -> TableFile:
    """Read a table that ``kernelarc export --format cublaslt`` wrote.

    Raises:
        InputError: The file is missing, truncated, no such table, or of an unknown schema; or an
            entry says what no library can take. The message says where and what.
    """
    content = _content(path)
    if content.get(SCHEMA_KEY) != SCHEMA:
        what = content.get(SCHEMA_KEY)
        raise InputError(
            f"{path}: is no table of cuBLASLt algorithms"
            if what is None
            else f"{path}: has table schema {what!r}; this version reads {SCHEMA}"
        )
    entries: dict[MatmulJob, Entry] = {}
    listed = _list(content, "entries", str(path))
    for place, item in enumerate(listed, start=1):
        where = f"{path}: entry {place}"
        entry = _entry(_object(item, where), where)
        if _looked_up(entry.job) in entries:
            raise InputError(f"{where} ({entry.label}) repeats an earlier one")
        entries[_looked_up(entry.job)] = entry
    if not entries:
        raise InputError(f"{path}: holds no entries")
    _demand_one_kind([entry.job for entry in entries.values()], path)
    library = _object(content.get("library"), f"{path}: library")
    return TableFile(
        path=path,
        version=_whole(library, "version", f"{path}: library"),
        device=str(content.get("device", "")),
        entries=entries,
        workspace_bytes=max(entry.job.workspace_bytes for entry in entries.values()),
    )


def _demand_one_kind(jobs: Sequence[MatmulJob], path: Path) -> None:
    """Refuse entries that differ in what no call says by its arrays: which holds is one's alone."""
    for name in ("tf32", "fast_accum"):
        if len({getattr(job, name) for job in jobs}) > 1:
            raise InputError(f"{path}: entries differ in {name}; a table has one for all")


def _content(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text") from None
    try:
        return _object(json.loads(text), str(path))
    except json.JSONDecodeError as error:
        end = "it ends too early (truncated?)" if error.pos >= len(text.rstrip()) else error.msg
        raise InputError(
            f"{path}: is not JSON: {end} (line {error.lineno}, column {error.colno})"
        ) from None
    except RecursionError:
        raise InputError(f"{path}: is nested too deeply") from None


def _entry(item: Mapping[str, Any], where: str) -> Entry:
    job = _job(_object(item.get("product"), f"{where}: product"), f"{where}: product")
    use = item.get("use")
    if use not in {"algorithm", "heuristic"}:
        raise InputError(f"{where}: use is 'algorithm' or 'heuristic', not {use!r}")
    label, why = str(item.get("workload", "")), str(item.get("why", ""))
    if use == "heuristic":
        return Entry(label=label, job=job, row=None, blob=b"", why=why)
    where = f"{where}: algorithm"
    found = _object(item.get("algorithm"), where)
    aliased = _flag(found, "aliased", where)
    if aliased and not job.in_place:
        raise InputError(f"{where}: is aliased, but the product does not allow it")
    row = (
        *_attributes(_object(found.get("attributes"), f"{where}: attributes"), where),
        _whole(found, "workspace_bytes", where),
        int(aliased),
    )
    if row[-2] > job.workspace_bytes:
        raise InputError(f"{where}: workspace_bytes exceeds the product's {job.workspace_bytes}")
    # An algorithm that was measured apart from the residual says nothing of calls in place.
    held = replace(job, in_place=aliased)
    return Entry(label=label, job=held, row=row, blob=_blob(found, where), why=why)


def _attributes(found: Mapping[str, Any], where: str) -> tuple[int, ...]:
    for name in found:
        if name not in LT_ATTRIBUTES:
            raise InputError(f"{where}: there is no attribute {name!r}")
    values = []
    for name, kind in zip(LT_ATTRIBUTES, LT_TYPES, strict=True):
        value = _whole(found, name, where)
        if value > _LIMITS[kind]:
            raise InputError(f"{where}: attribute {name} is a {kind}, not {value}")
        values.append(value)
    return tuple(values)


def _blob(found: Mapping[str, Any], where: str) -> bytes:
    text = found.get("blob")
    try:
        blob = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        blob = b""
    if len(blob) != _BLOB_BYTES:
        raise InputError(f"{where}: blob must be {_BLOB_BYTES} bytes as hexadecimal digits")
    return blob


# Products

_Reader = Callable[[Mapping[str, Any], str, str], Any]


def _job(found: Mapping[str, Any], where: str) -> MatmulJob:
    job = MatmulJob(**{f.name: _READERS[str(f.type)](found, f.name, where) for f in _FIELDS})
    for name in (job.dtype, job.out_dtype):
        try:
            dtype_bytes(name)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
    if job.activation not in _ACTIVATIONS:
        raise InputError(f"{where}: activation is one of {', '.join(_ACTIVATIONS)}")
    if min(job.m, job.n, job.k, job.batch) < 1:
        raise InputError(f"{where}: m, n, k and batch must be 1 or more")
    if job.workspace_bytes > MOST_WORKSPACE_MIB << 20:
        raise InputError(f"{where}: workspace_bytes must be at most {MOST_WORKSPACE_MIB << 20}")
    if job.in_place and not job.residual:
        raise InputError(f"{where}: is in place, but has no residual")
    return job


def _whole(found: Mapping[str, Any], name: str, where: str) -> int:
    value = found.get(name)
    if type(value) is not int or not 0 <= value <= _MOST_BYTES:
        raise InputError(f"{where}: {name} must be a whole number from 0, not {value!r}")
    return value


def _flag(found: Mapping[str, Any], name: str, where: str) -> bool:
    value = found.get(name)
    if type(value) is not bool:
        raise InputError(f"{where}: {name} must be true or false, not {value!r}")
    return value


def _text(found: Mapping[str, Any], name: str, where: str) -> str:
    value = found.get(name)
    if not isinstance(value, str):
        raise InputError(f"{where}: {name} must be a text, not {value!r}")
    return value


_READERS: Mapping[str, _Reader] = {"int": _whole, "bool": _flag, "str": _text}
_FIELDS = fields(MatmulJob)


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where} must be a JSON object")
    return value


def _list(found: Mapping[str, Any], name: str, where: str) -> list[Any]:
    value = found.get(name)
    if not isinstance(value, list):
        raise InputError(f"{where}: {name} must be a list")
    return value
