"""C sources that come with the package, made self-contained."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_INCLUDE = re.compile(r'^#include "(?P<file>[a-z_]+\.h)"\n', re.MULTILINE)


def _text(file: str) -> str:
    return files("kernelarc.genomes").joinpath("routes", file).read_text("utf-8")


@cache
def packaged_source(file: str) -> str:
    """Return a packaged C source with its own headers written in where they are included."""
    return _INCLUDE.sub(lambda found: _text(found["file"]), _text(file))
