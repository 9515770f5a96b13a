"""What Kernel Tuner's two formats share: units, failure words, and the flat table of genomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from kernelarc.genomes import Evaluation, Status, Workload, axis_values
from kernelarc.storage.exports._domains import FlatTable, flat_table
from kernelarc.storage.exports._subject import GenomeRow, Subject

_MILLISECONDS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
ERRORS: Mapping[Status, str] = MappingProxyType(
    {
        Status.COMPILE_ERROR: "CompilationFailedConfig",
        Status.LAUNCH_ERROR: "RuntimeFailedConfig",
        Status.WRONG_RESULT: "RuntimeFailedConfig",
        Status.TIMEOUT: "RuntimeFailedConfig",
    }
)


@dataclass(frozen=True, slots=True)
class TunerTable:
    """One workload's rows as Kernel Tuner sees them.

    Attributes:
        objective: ``"time"`` in milliseconds, or the recorded number's own unit as its name.
        scale: What our numbers are multiplied by.
        unit: ``"ms"``, or empty where the number is no time.
    """

    table: FlatTable
    rows: Sequence[GenomeRow]
    objective: str
    scale: float
    unit: str

    def times(self, row: GenomeRow) -> list[float]:
        """Return a row's samples in the table's unit; none where its claim was refused."""
        timed = row.evaluation.measurement
        if timed is None or row.objective != row.measured:
            return []
        return [sample * self.scale for sample in timed.samples]


def tuner_table(subject: Subject, workload: Workload) -> TunerTable:
    """Return the table of one workload."""
    rows = subject.rows(workload)
    units = [r.evaluation.measurement.unit for r in rows if r.evaluation.measurement is not None]
    unit = units[0] if units else "us"
    table = flat_table([row.genome for row in rows])
    if unit in _MILLISECONDS:
        return TunerTable(table, rows, "time", _MILLISECONDS[unit], "ms")
    return TunerTable(table, rows, unit, 1.0, "")


def problem_size(subject: Subject, workload: Workload) -> list[int]:
    """Return the workload's axes as a problem size; a single 1 where it has none."""
    return list(axis_values(subject.operator, workload).values()) or [1]


def costs_ms(evaluation: Evaluation) -> tuple[float, float]:
    """Return (compile, benchmark) milliseconds; all is benchmark where it was not told apart."""
    told = evaluation.properties.get("compile_s", 0.0)
    compile_s = told if isinstance(told, float) and told <= evaluation.cost_s else 0.0
    return compile_s * 1e3, (evaluation.cost_s - compile_s) * 1e3
