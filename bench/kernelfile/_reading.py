"""Reading a user's file: checked here, imported in a process of its own, answered as values."""

from __future__ import annotations

import ast
import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from kernelarc.bench.kernelfile._records import Kernel
from kernelarc.genomes import InputError, MissingPartError, child_environment, nearest
from kernelarc.genomes.triton import content_of

IMPORT_LIMIT_S = 120.0
_PROGRAM = "kernelarc.bench.kernelfile._child"
_KEPT = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFile:
    """A Python file and the kernels in it.

    Attributes:
        content: Hash of the file's content as it was read.
        kernels: By line, at least one.
        declarations: What its ``TritonKernel`` objects say, as JSON values, by name.
        printed: The end of what the file wrote to standard output and standard error on import.
    """

    path: Path
    content: str
    kernels: tuple[Kernel, ...]
    declarations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    printed: str = ""

    def kernel(self, name: str | None = None) -> Kernel:
        """Return one kernel: the named one, else the only one, else the only autotuned one.

        Raises:
            InputError: There is no such kernel, or it is not clear which one is meant.
        """
        if name is not None:
            for kernel in self.kernels:
                if name in {kernel.name, kernel.function}:
                    return kernel
            known = [kernel.name for kernel in self.kernels]
            raise InputError(f"{self.path}: there is no kernel {name!r}{nearest(name, known)}")
        tuned = [kernel for kernel in self.kernels if kernel.tuned]
        for choice in (self.kernels, tuned):
            if len(choice) == 1:
                return choice[0]
        listed = ", ".join(f"{k.name} (line {k.line})" for k in self.kernels)
        raise InputError(
            f"{self.path}: has {len(self.kernels)} kernels: {listed}; say which one, for example "
            f"{self.path}:{self.kernels[0].name}"
        )


def read_kernel_file(
    path: Path | str,
    *,
    workloads: Sequence[Mapping[str, int]] = ({},),
    limit_s: float = IMPORT_LIMIT_S,
) -> KernelFile:
    """Import a file in another process and return what kernels stand in it.

    Nothing that the file does reaches this process: what it prints is caught, an endless import
    is ended with everything it started.

    Args:
        path: A Python file.
        workloads: Axes that the user sets, one table for each workload: the launch function is
            tried with them.
        limit_s: Seconds that the import may take.

    Raises:
        InputError: The file is missing, is no Python (the message says the line), raises on
            import, takes too long, ends its process, or has no kernel; or its declaration does
            not fit the kernel or the launch function.
        MissingPartError: Triton is not installed.
    """
    path = Path(path)
    parsed(path)
    content = content_of(path)
    answer, printed = _asked(path, workloads, limit_s)
    _raise_fault(path, answer)
    kernels = tuple(Kernel.from_json(values) for values in answer["kernels"])
    if not kernels:
        raise InputError(
            f"{path}: no kernel in it: no function that it defines has the decorator @triton.jit"
        )
    said = {values["name"]: values for values in answer["declarations"]}
    return KernelFile(
        path=path.absolute(), content=content, kernels=kernels, declarations=said, printed=printed
    )


def parsed(path: Path) -> ast.Module:
    """Return a file's syntax tree.

    Raises:
        InputError: It cannot be read or is no Python.
    """
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
        with tokenize.open(path) as text:  # comments, too: kernels are read from the source
            text.read()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except SyntaxError as error:
        if error.lineno is None:  # of its first lines' bytes, not of what they say
            raise InputError(
                f"{path}: is no Python source: it is not UTF-8 and declares no other encoding"
            ) from None
        raise InputError(f"{path}, line {error.lineno}: syntax error: {error.msg}") from None
    except (UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path}: is no Python source: {error}") from None
    return tree


def _asked(
    path: Path, workloads: Sequence[Mapping[str, int]], limit_s: float
) -> tuple[dict[str, Any], str]:
    """Return the reading process's answer and the end of what it printed."""
    tables = json.dumps([dict(axes) for axes in workloads])
    with tempfile.TemporaryFile() as answers, tempfile.TemporaryFile() as caught:
        numbers = [str(answers.fileno()), str(math.ceil(limit_s) + 5)]
        child = subprocess.Popen(
            [sys.executable, "-m", _PROGRAM, str(path), *numbers, tables],
            pass_fds=(answers.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=caught,
            stderr=caught,
            start_new_session=True,
            env=child_environment(),
        )
        try:
            code = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise InputError(f"{path}: its import takes longer than {limit_s:g} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        answers.seek(0)
        text, printed = answers.read(), _end_of(caught)
    if not text:
        raise InputError(f"{path}: ended its process on import (exit {code}): {_last(printed)}")
    answer: dict[str, Any] = json.loads(text)
    return answer, printed


def _end_of(caught: IO[bytes]) -> str:
    size = caught.seek(0, os.SEEK_END)
    caught.seek(max(size - _KEPT, 0))
    return caught.read().decode(errors="replace").strip()


def _last(printed: str) -> str:
    lines = printed.splitlines()
    return lines[-1][:200] if lines else "it printed nothing"


def _raise_fault(path: Path, answer: Mapping[str, Any]) -> None:
    fault, message = answer.get("fault"), answer.get("message")
    if fault == "triton":
        raise MissingPartError(f"{path}: needs Triton ({message}): install kernelarc[triton]")
    line = f", line {answer['line']}" if answer.get("line") else ""
    if fault == "raises":
        raise InputError(f"{path}{line}: raises on import: {message}")
    if fault == "said":
        raise InputError(f"{path}{line}: {message}")
