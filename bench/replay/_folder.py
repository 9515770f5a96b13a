"""Several recordings of one operator, opened as one problem with many workloads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from kernelarc.bench._session import Device, Session
from kernelarc.bench.replay._device import WINDOW, ReplayDevice, ReplaySession
from kernelarc.genomes import (
    Candidate,
    Contest,
    Environment,
    Evaluation,
    Genome,
    InputError,
    Problem,
    Proposal,
    Space,
    Workload,
)

_ENDINGS = (".json", ".json.gz")


def replay_device(path: Path) -> ReplayDevice | ReplayFolder:
    """Return the device that answers from a recording, or from a folder of recordings.

    Raises:
        InputError: As in ``ReplayDevice`` and ``ReplayFolder``.
    """
    return ReplayFolder(path) if path.is_dir() else ReplayDevice(path)


class ReplayFolder(Device):
    """Answers from all recordings of a folder: each is one workload of one problem.

    Args:
        folder: Its files ending in .json or .json.gz are read, in the order of their names.

    Raises:
        InputError: There is none; one is no recording; two are of different operators, or of
            the same workload. The message names the files.
    """

    name = "replay"
    deterministic = True

    def __init__(self, folder: Path) -> None:
        paths = sorted(path for path in folder.iterdir() if path.name.endswith(_ENDINGS))
        if not paths:
            raise InputError(
                f"{folder}: holds neither a problem (definition.json) nor recordings "
                f"(.json, .json.gz)"
            )
        self._devices = [ReplayDevice(path) for path in paths]
        first = self._devices[0].recording
        known: dict[str, Path] = {}
        for recording in (device.recording for device in self._devices):
            if recording.operator.fingerprint != first.operator.fingerprint:
                raise InputError(
                    f"{folder}: {recording.path.name} records {recording.operator.name}, "
                    f"{first.path.name} records {first.operator.name}: a problem has one operator"
                )
            other = known.setdefault(recording.workload.fingerprint, recording.path)
            if other is not recording.path:
                raise InputError(
                    f"{folder}: {other.name} and {recording.path.name} record the same workload "
                    f"{recording.workload.label}"
                )

    @property
    def problem(self) -> Problem:
        """The operator with one workload a file."""
        recordings = [device.recording for device in self._devices]
        workloads = tuple(recording.workload for recording in recordings)
        return Problem(operator=recordings[0].operator, workloads=workloads)

    def environment(self) -> Environment:
        """Return what the recorded devices have in common, and a hash of all recordings."""
        identities = [dict(device.environment().identity) for device in self._devices]
        digests = "".join(identity.pop("recording") for identity in identities)
        shared = {
            name: value
            for name, value in identities[0].items()
            if all(identity.get(name) == value for identity in identities)
        }
        digest = sha256(digests.encode()).hexdigest()[:16]
        files = ", ".join(device.recording.path.name for device in self._devices)
        return Environment(
            identity={**shared, "recording": digest}, observations={"recordings": files}
        )

    def open(
        self, problem: Problem, *, seed: int, artefacts: Path, margin: float = 0.0
    ) -> _FolderSession:
        """Open a session; needs no lock, no worker and no folder."""
        recorded = {device.recording.workload.fingerprint: device for device in self._devices}
        sessions = {}
        for workload in problem.workloads:
            device = recorded.get(workload.fingerprint)
            if device is None:
                raise InputError(f"no recording of the folder is of workload {workload.label}")
            sessions[workload.fingerprint] = device.open(
                device.problem, seed=seed, artefacts=artefacts, margin=margin
            )
        return _FolderSession(sessions, problem, self.environment())


class _FolderSession(Session):
    """One session a recording; candidates go to their workload's."""

    def __init__(
        self, sessions: Mapping[str, ReplaySession], problem: Problem, environment: Environment
    ) -> None:
        self.device, self.deterministic = "replay", True
        self.environment, self.problem = environment, problem
        self.window, self.lag = WINDOW, 0
        self.sifts = any(session.sifts for session in sessions.values())
        self._sessions = sessions
        self._order: list[str] = []

    def _of(self, workload: Workload) -> ReplaySession:
        return self._sessions[workload.fingerprint]

    def spaces(self, workload: Workload) -> Mapping[str, Space]:
        return self._of(workload).spaces(workload)

    def seeds(self, workload: Workload) -> tuple[Proposal, ...]:
        return self._of(workload).seeds(workload)

    def check(self, workload: Workload, genomes: Sequence[Genome]) -> list[str | None]:
        return self._of(workload).check(workload, genomes)

    def submit(self, candidates: Sequence[Candidate], *, limit: Mapping[str, float]) -> None:
        for candidate in candidates:
            self._sessions[candidate.workload].submit([candidate], limit=limit)
            self._order.append(candidate.workload)

    def collect(self) -> Iterator[Evaluation]:
        while self._order:
            yield next(self._sessions[self._order.pop(0)].collect())

    def contest(
        self, workload: Workload, genomes: Sequence[Genome], *, rounds: int, baseline: bool = False
    ) -> Contest:
        return self._of(workload).contest(workload, genomes, rounds=rounds, baseline=baseline)

    def baseline_name(self, workload: Workload) -> str | None:
        return self._of(workload).baseline_name(workload)

    def observe(self) -> Mapping[str, str]:
        return {}

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
