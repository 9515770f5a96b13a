"""The system's C compiler: found, named, and known to work."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from kernelarc.bench._environment import file_hash
from kernelarc.genomes import MissingPartError

_HOW = "install one (Debian, Ubuntu: apt install gcc libc6-dev) or name yours in CC"
_VERSION_LIMIT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """A C compiler.

    Attributes:
        command: How it is called, options of the user's included.
        path: The program that runs.
        version: First line of what it says of its version.
        content: Content hash of the program.
    """

    command: tuple[str, ...]
    path: str
    version: str
    content: str

    @property
    def identity(self) -> str:
        """What separates its output from another compiler's: version, options, content."""
        return " ".join((self.version, *self.command[1:], self.content))


def find_compiler(command: str | None = None) -> Compiler:
    """Return the compiler: the command given, else the variable CC, else ``cc``.

    Raises:
        MissingPartError: There is none, or it does not answer; the message says what to install.
    """
    words = tuple(shlex.split(command or os.environ.get("CC") or "cc")) or ("cc",)
    path = shutil.which(words[0])
    if path is None:
        raise MissingPartError(
            f"device cpu needs a C compiler and there is no {words[0]!r}: {_HOW}"
        )
    return Compiler(
        command=words,
        path=path,
        version=_version((path, *words[1:])),
        content=file_hash(Path(path).resolve()),
    )


def _version(words: tuple[str, ...]) -> str:
    try:
        said = subprocess.run(
            [*words, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_VERSION_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingPartError(
            f"the C compiler {words[0]!r} does not run ({type(error).__name__}): {_HOW}"
        ) from None
    lines = said.stdout.strip().splitlines()
    if said.returncode or not lines:
        raise MissingPartError(f"{words[0]!r} does not say its version, is it a compiler? {_HOW}")
    return lines[0]
