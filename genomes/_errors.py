"""Errors that know their exit code. Every message is one line: what, where, what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class KernelarcError(Exception):
    """Base of every error that a user can cause or meet.

    Attributes:
        exit_code: What the command line exits with when this error ends it.
        busy: Whether the same may work once another process has ended.
    """

    exit_code = 2
    busy = False


class InputError(KernelarcError):
    """Bad usage or bad input. Nothing was written."""

    exit_code = 2


class IllegalGenomeError(InputError):
    """The alleles do not form a legal genome of the space; the message names the constraint."""


class NothingValidError(KernelarcError):
    """No legal or no working genome was found."""

    exit_code = 1


class StoppedError(KernelarcError):
    """The campaign stopped and can be resumed; the message says why and how."""

    exit_code = 3


class DeviceInUseError(StoppedError):
    """Another process uses the device."""

    busy = True


class StoreInUseError(InputError):
    """Another process writes to the store."""

    busy = True


class MissingPartError(KernelarcError):
    """The device or toolchain is missing; the message says what to install."""

    exit_code = 4


_MOST_SHOWN = 40


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``" (did you mean X?)"`` for the known word nearest to ``word``, or the known ones."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if close:
        return f" (did you mean {close[0]!r}?)"
    shown = [*names[:_MOST_SHOWN], *(["..."] if len(names) > _MOST_SHOWN else [])]
    return f" (known: {', '.join(shown)})" if names else ""
