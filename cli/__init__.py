"""The command line: click commands, live progress, reports. ``main`` is the entry point."""

from kernelarc.cli._main import main

__all__ = ["main"]
