"""Our search of the packaged Triton product beside others' tuners, in one run on one GPU.

``python -m kernelarc.bench.experiments.triton_beside -o FILE [--limit S] [--parts A,B,...]``

Every part is a process of its own with empty caches and a wall limit; FILE is written after each,
so that a kill loses one part at most. All search one space, ``PINS`` laid over the route's. What
another tuner answers is measured again by our own judge, against the same baseline.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelarc.bench.experiments._beside_parts import PARTS
from kernelarc.bench.experiments._machine import output_option, with_machine, write

_CACHES = (
    "TRITON_CACHE_DIR",
    "CUPY_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "HELION_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "TMPDIR",
)
_LEAST_S = 8.0  # no part says anything in less
SQUARE, SKINNY, LARGE = (4096, 4096, 4096), (64, 14336, 4096), (8192, 8192, 8192)
# Many tiles, about as many tiles as multiprocessors, and many tiles of few steps.
SWEPT = (SQUARE, (1024, 4096, 4096), (8192, 2048, 512))
# Of the baseline's speed: 0.964 is what Helion's answer was worth at 4096 in an earlier run.
_SHARES = (0.95, 0.964, 0.97, 0.99, 1.0)


def _answers(size: str) -> tuple[str, ...]:
    """Return the parts whose answers are judged at a size, those that are missing left out."""
    tuners = ("ours {}", "ours {} again", "helion {}", "random {}", "random {} again")
    return tuple(tuner.format(size) for tuner in tuners)


@dataclass(frozen=True, slots=True)
class Part:
    """One process.

    Attributes:
        kind: What it does, a name of ``PARTS``.
        cap_s: After so much wall time it is killed; what it has written until then counts.
        given: Its arguments.
    """

    name: str
    kind: str
    cap_s: float
    given: Mapping[str, Any] = field(default_factory=dict)


PLAN = (
    Part("ours 4096", "ours", 45, {"size": SQUARE, "seconds": 14, "seed": 0}),
    Part("random 4096", "random", 30, {"size": SQUARE, "seconds": 14, "seed": 1}),
    Part("ours 4096 again", "ours", 45, {"size": SQUARE, "seconds": 14, "seed": 1}),
    Part("random 4096 again", "random", 30, {"size": SQUARE, "seconds": 14, "seed": 2}),
    Part("helion 4096", "helion", 95, {"size": SQUARE}),
    Part("judge 4096", "judge", 30, {"size": SQUARE, "of": _answers("4096")}),
    Part("autotune 4096", "autotune", 30, {"size": SQUARE, "seconds": 12}),
    Part("norm", "norm", 45, {"seconds": 8}),
    Part("ours skinny", "ours", 40, {"size": SKINNY, "seconds": 12, "seed": 0}),
    Part("helion skinny", "helion", 60, {"size": SKINNY}),
    Part("judge skinny", "judge", 25, {"size": SKINNY, "of": _answers("skinny")}),
    Part("ours 8192", "ours", 45, {"size": LARGE, "seconds": 16, "seed": 0}),
    Part("helion 8192", "helion", 200, {"size": LARGE}),
    Part("judge 8192", "judge", 30, {"size": LARGE, "of": _answers("8192")}),
    Part("sweep", "sweep", 85, {"sizes": SWEPT, "seconds": 65}),
)


def main() -> None:
    """Run the parts that were asked for, as long as time is left."""
    parser = argparse.ArgumentParser(description=__doc__)
    output_option(parser)
    parser.add_argument("--limit", type=float, default=800.0, help="wall seconds in all")
    parser.add_argument("--parts", default="", help="names of parts in order, with commas")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.part:
        one = json.loads(asked.part)
        PARTS[one["kind"]](Path(one["file"]), **one["given"])
        return
    wanted = [name.strip() for name in asked.parts.split(",") if name.strip()]
    unknown = sorted(set(wanted) - {part.name for part in PLAN})
    if unknown:
        parser.error(f"no part {unknown[0]!r}: there are {', '.join(p.name for p in PLAN)}")
    plan = {part.name: part for part in PLAN}
    _run_all([plan[name] for name in wanted or plan], asked.limit, asked.output)


def _run_all(plan: list[Part], limit_s: float, output: Path | None) -> None:
    begun, found = time.monotonic(), dict[str, Any]()
    kept = None if output is None else output.parent
    for part in plan:
        left = limit_s - (time.monotonic() - begun)
        if left < _LEAST_S:
            found[part.name] = {"skipped": f"only {max(left, 0.0):.0f} s were left"}
        else:
            found[part.name] = _run(part, min(part.cap_s, left), found, kept)
        print(
            f"{time.monotonic() - begun:6.1f} s  {part.name}: {_line(found[part.name])}", flush=True
        )
        write(with_machine({"what": "triton beside", "parts": found}), output)
    write(with_machine({"what": "triton beside", "parts": found, "sums": sums(found)}), output)
    print(json.dumps(sums(found), indent=1))


def _run(part: Part, cap_s: float, found: Mapping[str, Any], kept: Path | None) -> dict[str, Any]:
    """Run one part in a process of its own; return what it wrote, and how it ended."""
    with tempfile.TemporaryDirectory(prefix="kernelarc-beside-") as folder:
        caches = {name: str(Path(folder, name)) for name in _CACHES}
        for path in caches.values():
            Path(path).mkdir()
        file = Path(folder, "found.json")
        given = dict(part.given)
        if "of" in given:
            given["of"] = {name: answer(found.get(name, {})) for name in given["of"]}
        if part.kind == "sweep":  # the recordings are what it is for
            given["folder"] = str(Path(kept or folder).absolute())
        asked = {"kind": part.kind, "file": str(file), "given": given}
        begun = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, "--part", json.dumps(asked)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **caches},
            start_new_session=True,
        )
        try:
            said, ended = process.communicate(timeout=cap_s)[0], f"exit {process.returncode}"
        except subprocess.TimeoutExpired:
            ended = f"stopped after {cap_s:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if ended != "exit 0":
            said = process.communicate()[0] if ended.startswith("stopped") else said
        last = said.decode(errors="replace").strip().splitlines()[-6:]
        figures = json.loads(file.read_text()) if file.exists() else {}
        ending = {} if ended == "exit 0" else {"ended": ended, "last_lines": last}
        return {**figures, "wall_s": round(time.monotonic() - begun, 1), **ending}


def answer(figures: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the genome that a part ended with, or None."""
    best = figures.get("best")
    return None if not best else dict(best["genome"])


def sums(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is asked of the figures: times to another's answer, and ratios."""
    out: dict[str, Any] = {"seconds_to_share_of_baseline": {}}
    for name, figures in found.items():
        if name.startswith("ours") and (reached := _reached(figures)) is not None:
            out["seconds_to_share_of_baseline"][name] = reached
    for size in ("4096", "skinny", "8192"):
        judged, ours = found.get(f"judge {size}", {}), found.get(f"ours {size}", {})
        theirs = judged.get("judged_us", {}).get(f"helion {size}")
        helion = found.get(f"helion {size}", {})
        if theirs is None:
            continue
        steps = ours.get("best_so_far", [])
        out[size] = {
            "helion_answer_us_by_our_clock": theirs,
            "ours_as_good_after_s": next((s for s, us, _ in steps if us <= theirs), None),
            "helion_to_its_answer_s": helion.get("answer_after_s"),
            "helion_in_all_s": helion.get("seconds"),
            "over_baseline": judged.get("over_baseline"),
            "baseline": (judged.get("contest_names") or [None])[-1],
        }
    auto = found.get("autotune 4096", {}).get("extrapolated_s")
    near = found.get("ours 4096", {}).get("seconds_until_within_1_percent_of_own_best")
    if auto and near:
        out["autotune_over_ours"] = round(auto / near, 1)
    copied = found.get("norm", {})
    if copied.get("share_of_copy"):
        out["norm_share_of_copy"] = copied["share_of_copy"]
    return out


def _reached(figures: Mapping[str, Any]) -> dict[str, float | None] | None:
    """Return after how many seconds a search was so near its baseline, None where never."""
    best = figures.get("best") or {}
    if "speedup" not in best:
        return None
    baseline_us, steps = best["objective"] * best["speedup"]["estimate"], figures["best_so_far"]
    return {
        str(share): next((s for s, us, _ in steps if us <= baseline_us / share), None)
        for share in _SHARES
    }


def _line(figures: Mapping[str, Any]) -> str:
    keys = (
        "skipped",
        "ended",
        "best_us",
        "wall_s",
        "extrapolated_s",
        "share_of_copy",
        "judged_us",
        "recordings",
    )
    return ", ".join(f"{key} {figures[key]}" for key in keys if key in figures)


if __name__ == "__main__":
    main()
