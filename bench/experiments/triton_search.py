"""How soon a search of the packaged Triton routes finds its best, from cold caches, on a GPU.

``python -m kernelarc.bench.experiments.triton_search -o FILE [--seconds S] [--random R]``: for each
size a campaign of S seconds with its audit against cuBLASLt's first heuristic, and R seconds of
random search through the same pool and worker.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernelarc.bench._session import Session
from kernelarc.bench.experiments._machine import keep, output_option, write
from kernelarc.bench.kernels import KernelDevice, KernelSession
from kernelarc.engine import CampaignSettings, Observer, resolve_target, run
from kernelarc.engine import Counts as CampaignCounts
from kernelarc.genomes import Allele, Candidate, Evaluation, Genome, Judged, Problem, Status

SIZES = ((4096, 4096, 4096), (8192, 8192, 8192), (64, 14336, 4096))
ROUTE = ("triton",)


class Timeline:
    """When which evaluation came, and how good the best was then."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.steps: list[tuple[float, float, int]] = []
        self.statuses: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.binaries: set[object] = set()
        self.best_us = float("inf")
        self.best: Genome | None = None
        self.last_s = 0.0

    def take(self, evaluation: Evaluation) -> None:
        """Take in an evaluation."""
        self.last_s = time.monotonic() - self.began
        self.statuses[evaluation.status.value] += 1
        if evaluation.failure is not None:
            self.failures[evaluation.failure] += 1
        self.binaries.add(evaluation.properties.get("binary"))
        measured = evaluation.measurement
        if measured is not None and not measured.censored and measured.objective < self.best_us:
            self.best_us, self.best = measured.objective, evaluation.candidate.genome
            count = sum(self.statuses.values())
            self.steps.append((round(self.last_s, 2), round(self.best_us, 2), count))

    def figures(self) -> dict[str, Any]:
        """Return what was seen, as JSON values."""
        first_s = self.steps[0][0] if self.steps else 0.0
        near = next((s for s, us, _ in self.steps if us <= 1.01 * self.best_us), None)
        distinct = len(self.binaries - {None})
        return {
            "best_us": self.best_us,
            "best": None if self.best is None else {"genome": dict(self.best.items())},
            "best_so_far": self.steps,
            "seconds_until_within_1_percent_of_own_best": near,
            "evaluations": sum(self.statuses.values()),
            "distinct_binaries_measured": distinct,
            "statuses": dict(self.statuses),
            "failures": dict(self.failures),
            "seconds": round(self.last_s, 2),
            "first_after_s": first_s,
            "judged_per_s_after_first": round(
                sum(self.statuses.values()) / max(self.last_s - first_s, 1e-9), 1
            ),
        }


class _Watcher(Observer):
    def __init__(self, timeline: Timeline, file: Path | None = None) -> None:
        self._timeline, self._file = timeline, file
        self._next_s = 0.0

    def on_verdict(self, judged: Judged, counts: CampaignCounts) -> None:
        self._timeline.take(judged.evaluation)
        if self._timeline.last_s >= self._next_s:
            write(self._timeline.figures(), self._file)
            self._next_s = self._timeline.last_s + 1.0


class WatchedDevice(KernelDevice):
    """Keeps what its sessions say of themselves before they close."""

    def __init__(self) -> None:
        super().__init__(only=ROUTE)
        self.said: list[dict[str, str]] = []
        self.opened_s: list[float] = []
        self.asked_s: list[float] = []
        self.prepared_s: dict[int, float] = {}
        self.searched: list[dict[str, str]] = []
        self.identity: dict[str, str] = {}
        self.roofline: dict[str, float] = {}

    def open(  # type: ignore[override]
        self, problem: Problem, *, seed: int, artefacts: Path, margin: float = 0.0
    ) -> Session:
        """Open a session whose closing is preceded by a look at it."""
        begun = time.monotonic()
        session = super().open(problem, seed=seed, artefacts=artefacts, margin=margin)
        self.opened_s.append(round(time.monotonic() - begun, 2))
        self.identity = dict(session.environment.identity)
        close, idle, submit = session.close, session.idle_s, session.submit

        def idling() -> float | None:
            if isinstance(session, KernelSession) and idle_asked:  # the search has just ended
                self.searched.append(session._moving().busy())
            idle_asked.append(True)
            return idle()

        def submitting(candidates: Sequence[Candidate], *, limit: Mapping[str, float]) -> None:
            self.asked_s.append(round(time.monotonic() - begun, 2))
            submit(candidates, limit=limit)

        def closing() -> None:
            try:
                if isinstance(session, KernelSession) and session._flow is not None:
                    self.said.append(dict(session.observe()))
                    self.prepared_s = self.prepared_s or dict(session._flow._line.prepared_s)
                    self.roofline = self.roofline or dict(session.roofline())  # no search's time
            finally:  # also where the device does not answer any more
                close()

        idle_asked: list[bool] = []
        session.idle_s = idling  # type: ignore[method-assign]
        session.close = closing  # type: ignore[method-assign]
        session.submit = submitting  # type: ignore[method-assign]
        return session


def campaign(
    target: str,
    axes: dict[str, int],
    options: dict[str, Any],
    seconds: float,
    *,
    file: Path | None = None,
    **more: Any,
) -> Any:
    """Search for so many seconds, audit, and return the figures.

    The figures so far are written into a file while the search goes on; what else is named is a
    setting of the campaign.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "search.db")
        settings = CampaignSettings(
            target=target,
            device="cuda:0",
            axes=axes,
            options=options,
            seconds=seconds,
            routes=ROUTE,
            **{"store": store, **more},
        )
        device, timeline = WatchedDevice(), Timeline()
        problem = resolve_target(settings).problem
        observer = _Watcher(timeline, file)
        result = run(settings, observer=observer, device=device, problem=problem)
        best = result.best
        return {
            **timeline.figures(),
            "device_said": device.said[0] if device.said else {},
            "when_the_search_ended": device.searched[0] if device.searched else {},
            "session_open_after_s": device.opened_s[0] if device.opened_s else None,
            "first_asked_after_s": device.asked_s[0] if device.asked_s else None,
            "inputs_and_reference_s": device.prepared_s.get(0),
            "device": device.identity,
            "roofline": device.roofline,
            "best": None if best is None else json.loads(json.dumps(best.to_json())),
        }


def random_search(
    target: str,
    axes: dict[str, int],
    seconds: float,
    *,
    seed: int = 1,
    pins: Mapping[str, Allele] | None = None,
) -> Any:
    """Draw genomes evenly and judge them through the same pool and worker."""
    settings = CampaignSettings(target=target, device="cuda:0", axes=axes, routes=ROUTE)
    problem = resolve_target(settings).problem
    (workload,) = problem.workloads
    timeline, rng, number = Timeline(), np.random.default_rng(seed), 0
    with (
        tempfile.TemporaryDirectory() as folder,
        WatchedDevice().open(problem, seed=1, artefacts=Path(folder)) as session,
    ):
        space = session.spaces(workload)["triton"].pin(dict(pins or {}))
        while time.monotonic() - timeline.began < seconds:
            batch = []
            for _ in range(4 * session.window):
                genome = space.sample(rng)
                batch.append(
                    Candidate(
                        number=number,
                        round=0,
                        workload=workload.fingerprint,
                        island="user",
                        mutation="sample",
                        genome=genome,
                    )
                )
                number += 1
            known = {workload.fingerprint: timeline.best_us}
            limit = known if np.isfinite(timeline.best_us) else {}
            session.submit(batch, limit=limit)
            for evaluation in session.collect():
                timeline.take(evaluation)
        said = dict(session.observe())
    return {**timeline.figures(), "device_said": said, "ok": timeline.statuses[Status.OK.value]}


def main() -> None:
    """Run everything and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    output_option(parser)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--random", type=float, default=15.0)
    parser.add_argument("--norm", type=float, default=12.0)
    parser.add_argument("--sizes", type=int, default=len(SIZES))
    asked = parser.parse_args()
    figures: dict[str, Any] = {"what": "triton search", "seconds_asked": asked.seconds, "sizes": []}
    for m, n, k in SIZES[: asked.sizes]:
        axes = {"M": m, "N": n, "K": k}
        one = {"axes": axes, "campaign": campaign("matmul", axes, {}, asked.seconds)}
        if asked.random:
            one["random"] = random_search("matmul", axes, asked.random)
            asked.random = 0.0  # once: at the first size
        figures["sizes"].append(one)
        keep(figures, asked.output)
    if asked.norm:
        axes = {"rows": 8192, "hidden": 8192}
        figures["add_rmsnorm"] = campaign("add_rmsnorm_bf16", axes, {}, asked.norm)
    keep(figures, asked.output)


if __name__ == "__main__":
    main()
