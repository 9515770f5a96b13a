"""The program and its commands. A command's module is imported when the command is used."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from types import MappingProxyType

import click

# Name -> the line that ``kernelarc --help`` shows, without importing anything. The command
# ``name`` lives in ``kernelarc.cli._name`` as ``command``; a test compares the lines.
COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "run": "Search for the fastest correct genome of a target.",
        "resume": "Continue a campaign where it stopped, or extend a finished one.",
        "status": "Say how far the campaigns of a store are, and what each island did.",
        "best": "Show the best genome of every workload.",
        "show": "Show one genome: alleles and evidence, or its source.",
        "conclusions": "Say what the islands learned: wins, traps, retractions.",
        "campaigns": "List the campaigns of a store.",
        "export": "Write a campaign's result or record in another format.",
        "record": "Measure a space and write it as a file that replays it.",
        "verify": "Measure the bests again, beside the baseline, in a fresh worker.",
        "bench": "Compare our search with others on recorded spaces.",
        "check": "Compile samples of a target's kernels for an architecture, without a GPU.",
        "operators": "List the operators that can be searched for.",
        "devices": "List the devices that candidates can be judged on.",
        "doctor": "Say what is installed, and what each missing part would enable.",
    }
)


class Program(click.Group):
    """A group whose commands are imported on use, so that help and errors come at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the documentation."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in COMMANDS:
            return None
        found = importlib.import_module(f"kernelarc.cli._{cmd_name}").command
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is answered with the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if args[0].startswith("-"):
                raise
            close = difflib.get_close_matches(args[0], COMMANDS, n=1, cutoff=0.5)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise click.UsageError(f"No such command {args[0]!r}{hint}.", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 finished, 1 nothing valid was found, 2 bad usage or bad input, "
    "3 interrupted or stopped but resumable, 4 a device or toolchain is missing.",
)
@click.version_option(package_name="kernelarc", prog_name="kernelarc")
def program() -> None:
    """Search for the fastest correct way to run an operator on a device."""
