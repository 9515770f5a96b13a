"""Hold the size budget: function bodies and files stay small, above all in the tail.

A body is the lines of a function after its signature and docstring; no whole definition,
docstring included, exceeds the largest. Tests are exempt.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("genomes", "bench", "islands", "storage", "engine", "cli", "src", "tools", "examples")

BODY_MEDIAN = 8
BODY_P95 = 40
FUNCTION_MOST = 60
FILE_P95 = 400
FILE_MOST = 600


def python_files() -> list[Path]:
    """Return our own Python files; the links under src/ are not followed twice."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted({path.resolve() for path in found})


def functions(path: Path) -> Iterator[tuple[str, int, int]]:
    """Yield (place, body lines, lines of the whole definition) of every function of a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            last = node.end_lineno or node.lineno
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            lines = last - body[0].lineno + 1 if body else 0
            place = f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
            yield place, lines, last - node.lineno + 1


def percentile_95(values: list[int]) -> int:
    """Return the nearest-rank 95th percentile."""
    return sorted(values)[max(-(-len(values) * 95 // 100) - 1, 0)]


def breaches(sizes: dict[Path, int], found: list[tuple[str, int, int]]) -> list[str]:
    """Return one line for everything over the budget."""
    bodies = [body for _, body, _ in found]
    rows = [
        ("median of function bodies", int(statistics.median(bodies)), BODY_MEDIAN),
        ("95th percentile of function bodies", percentile_95(bodies), BODY_P95),
        ("95th percentile of files", percentile_95(list(sizes.values())), FILE_P95),
    ]
    rows += [(place, whole, FUNCTION_MOST) for place, _, whole in found]
    rows += [(str(path.relative_to(ROOT)), lines, FILE_MOST) for path, lines in sizes.items()]
    return [f"{what}: {lines} lines, at most {most}" for what, lines, most in rows if lines > most]


def main() -> int:
    """Print the figures and every breach; return the exit code."""
    paths = python_files()
    sizes = {path: path.read_text().count("\n") for path in paths}
    found = [row for path in paths for row in functions(path)]
    over = breaches(sizes, found)
    bodies = [body for _, body, _ in found]
    lines = [
        f"size budget: {len(found)} functions, bodies median {statistics.median(bodies):g}, "
        f"95th percentile {percentile_95(bodies)}, longest {max(bodies)}; {len(sizes)} files, "
        f"95th percentile {percentile_95(list(sizes.values()))}, longest {max(sizes.values())}",
        *over,
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
