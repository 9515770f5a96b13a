"""What several solutions write into themselves: how they talk to cuBLASLt."""

from __future__ import annotations

import re
from importlib.resources import files

_FILLED = re.compile(r"# -- calls of the library: .*?# -- end --\n", re.DOTALL)
_BEGIN = "from __future__ import annotations\n"


def packaged_source(name: str) -> str:
    """Return a packaged source of solutions; what it imports of ours stands in it as text."""
    folder = files("kernelarc.storage.exports.solutions")
    calls = folder.joinpath("library_calls.py").read_text("utf-8").partition(_BEGIN)[2]
    text = folder.joinpath(name).read_text("utf-8")
    return _FILLED.sub(lambda _: calls.strip() + "\n", text)
