"""Write every command's help text into docs/commands.md, or check that it stands there.

A block starts after the line ``<!-- help: NAME -->`` and is fenced; the text between the fences is
replaced. ``kernelarc`` alone is the name of the program's own help; a command of a group is named
with the group's name before it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click
from click.testing import CliRunner

from kernelarc.cli import COMMANDS, program

PAGE = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
WIDTH = 100
_BLOCK = re.compile(r"(<!-- help: ([a-z ]+) -->\n```\n)(.*?)(```\n)", re.DOTALL)


def help_text(name: str) -> str:
    """Return what ``kernelarc NAME --help`` prints on a terminal 100 columns wide."""
    words = [] if name == "kernelarc" else name.split()
    done = CliRunner().invoke(
        program, [*words, "--help"], prog_name="kernelarc", terminal_width=WIDTH
    )
    if done.exit_code != 0:
        raise click.ClickException(f"{name} --help: {done.output}")
    return done.output


def commands() -> set[str]:
    """Return every command's name, the program's own among them."""
    names = {"kernelarc", *COMMANDS}
    for name in COMMANDS:
        found = program.get_command(click.Context(program), name)
        if isinstance(found, click.Group):
            names |= {f"{name} {inner}" for inner in found.commands}
    return names


def filled(page: str) -> str:
    """Return the page with every block up to date."""
    return _BLOCK.sub(lambda found: found[1] + help_text(found[2]) + found[4], page)


def documented(page: str) -> set[str]:
    """Return the names that have a block."""
    return {found[2] for found in _BLOCK.finditer(page)}


def main() -> int:
    """Write the page, or with ``--check`` compare it; return the exit code."""
    page = PAGE.read_text()
    wanted = filled(page)
    missing = commands() - documented(page)
    if missing:
        sys.stderr.write(f"{PAGE}: no help block for {', '.join(sorted(missing))}\n")
    elif "--check" not in sys.argv:
        PAGE.write_text(wanted)
    elif wanted != page:
        sys.stderr.write(f"{PAGE}: help texts are out of date; say 'make docs'\n")
    return int(bool(missing) or ("--check" in sys.argv and wanted != page))


if __name__ == "__main__":
    sys.exit(main())
