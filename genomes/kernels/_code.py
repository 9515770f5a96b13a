"""Reading a cubin: a hash of what the machine executes, and what each kernel needs.

A cubin is an ELF file. Line tables, names and paths do not change what runs, so they do not count.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kernelarc.genomes.kernels._build import KernelReport

_MAGIC = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NO_BITS = 8
_SILENT = (".debug", ".nv_debug", ".rel.debug", ".rel.nv_debug", ".rela.debug", ".nv.merc.debug")
_NAMES = frozenset({"", ".strtab", ".shstrtab", ".symtab"})
_FRAME_SIZE, _REGISTERS = 0x11, 0x2F  # attributes of .nv.info: symbol number, then the figure
_SIZED = 0x04  # the attribute format that carries its size
_CODE, _SHARED = ".text.", ".nv.shared."
_RESERVED_SHARED = 1024  # from Hopper on the system's own part is counted in, but not in the limit


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    body: bytes
    size: int
    info: int


def _sections(cubin: bytes) -> Iterator[_Section]:
    """Yield the sections of an ELF file; nothing for anything else."""
    if not cubin.startswith(_MAGIC) or len(cubin) < _HEADER.size:
        return
    fields = _HEADER.unpack_from(cubin)
    start, entry, count, names_at = fields[6], fields[11], fields[12], fields[13]
    rows = [_SECTION.unpack_from(cubin, start + i * entry) for i in range(count)]
    names = cubin[rows[names_at][4] : rows[names_at][4] + rows[names_at][5]]
    for name, kind, _, _, offset, size, _, info, _, _ in rows:
        text = names[name : names.index(b"\0", name)].decode()
        body = b"" if kind == _NO_BITS else cubin[offset : offset + size]
        yield _Section(text, kind, body, size, info)


def code_hash(cubin: bytes) -> str:
    """Return 24 hexadecimal digits of what a cubin makes the machine do.

    Line tables and file names do not count. What is no cubin is hashed whole.
    """
    state = hashlib.blake2b(digest_size=12)
    parts = [s for s in _sections(cubin) if s.name not in _NAMES and not s.name.startswith(_SILENT)]
    for section in sorted(parts, key=lambda s: s.name):
        head = f"{section.name}\0{section.kind}\0{section.size}\0"
        state.update(head.encode() + section.body)
    if not parts:
        state.update(cubin)
    return state.hexdigest()


def report_of(
    cubin: bytes,
    symbol: str,
    *,
    threads: int,
    shared_bytes: int = 0,
    instructions: Mapping[str, int] | None = None,
    warnings: tuple[str, ...] = (),
) -> KernelReport:
    """Return what a kernel of a cubin needs: registers, stack and static shared memory.

    Args:
        cubin: The machine code.
        symbol: The kernel.
        threads: Of a block.
        shared_bytes: Dynamic shared memory that it is launched with.
        instructions: Instructions of note, counted by the caller.
        warnings: Of the compiler.

    Raises:
        ValueError: There is no such kernel in it.
    """
    by_name = {section.name: section for section in _sections(cubin)}
    code = by_name.get(_CODE + symbol)
    if code is None:
        raise ValueError(f"the binary has no kernel {symbol!r}")
    shared = by_name.get(_SHARED + symbol)
    attributes = _attributes(by_name, code.info & 0xFFFFFF)
    return KernelReport(
        symbol=symbol,
        registers=attributes.get(_REGISTERS, 0),
        spill_bytes=attributes.get(_FRAME_SIZE, 0),
        static_shared_bytes=0 if shared is None else max(shared.size - _RESERVED_SHARED, 0),
        shared_bytes=shared_bytes,
        threads=threads,
        instructions=dict(instructions or {}),
        warnings=warnings,
    )


def _attributes(sections: Mapping[str, _Section], symbol: int) -> dict[int, int]:
    """Return the figures that a cubin tells of a kernel, by attribute number."""
    held, found = sections.get(".nv.info"), {}
    place, body = 0, held.body if held is not None else b""
    while place + 4 <= len(body):
        layout, attribute, size = struct.unpack_from("<BBH", body, place)
        place += 4
        if layout != _SIZED:
            continue
        if size >= 8:
            number, figure = struct.unpack_from("<II", body, place)
            if number == symbol:
                found[attribute] = figure
        place += size
    return found
