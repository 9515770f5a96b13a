"""The entry point: runs the program and turns every error into one line and an exit code."""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Sequence

import click

from kernelarc.cli._program import program

DEFECT = 70
INTERRUPTED = 3
# What only the path that a user named can cause, wherever it is first touched.
_USERS_PATH = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run ``kernelarc`` with these arguments (those of the process by default) and exit."""
    sys.exit(exit_code(arguments))


def exit_code(arguments: Sequence[str] | None = None) -> int:
    """Run ``kernelarc`` and return what it exits with.

    0 finished, 1 nothing valid found, 2 bad usage or input, 3 stopped but resumable, 4 something
    is missing, 70 a defect of kernelarc itself (with its traceback).
    """
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            code = program.main(args=arguments, prog_name="kernelarc", standalone_mode=False)
        if sys.stdout is not None:  # as after `>&-`
            sys.stdout.flush()
    except click.exceptions.Abort:
        return _complain("interrupted", INTERRUPTED)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        return _complain(_usage_line(error), 2)
    except BrokenPipeError:
        return _reader_left()
    except Exception as error:
        return _own_error(error)
    return code if isinstance(code, int) else 0


def _own_error(error: Exception) -> int:
    code = getattr(error, "exit_code", None)
    if isinstance(code, int):
        return _complain(str(error), code)
    if isinstance(error, OSError) and error.errno in _USERS_PATH and error.filename is not None:
        return _complain(f"{os.fsdecode(error.filename)}: {error.strerror}", 2)
    if isinstance(error, OSError) and error.errno == errno.EIO and error.filename is None:
        _let_go_of_output(2)  # the terminal is gone, and with it whoever would read an answer
        return INTERRUPTED
    if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
        _let_go_of_output()
        return _complain(f"the output cannot be written: {error.strerror}", 2)
    traceback.print_exc()
    return _complain("this is a defect of kernelarc; the lines above say where", DEFECT)


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """Say a warning in one line, without the place in our sources that raised it."""
    click.echo(f"kernelarc: warning: {' '.join(str(message).split())}", err=True)


def _complain(message: str, code: int) -> int:
    line = " ".join(message.split())
    click.echo(f"kernelarc: error: {line}", err=True)
    return code


def _usage_line(error: click.ClickException) -> str:
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if isinstance(context, click.Context):
        return f"{message} (see '{context.command_path} --help')"
    return message


def _reader_left() -> int:
    """End quietly when whoever read our output went away (``kernelarc best ... | head``)."""
    _let_go_of_output()
    return 0


def _let_go_of_output(streams: int = 1) -> None:
    """Send what is still buffered nowhere, so that leaving Python does not fail at it again."""
    for stream in (sys.stdout, sys.stderr)[:streams]:
        if stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
