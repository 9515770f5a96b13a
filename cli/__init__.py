"""The command line: click commands, live progress, reports. ``main`` is the entry point."""

from kernelarc.cli._main import exit_code, main
from kernelarc.cli._program import COMMANDS, program

__all__ = ["COMMANDS", "exit_code", "main", "program"]
