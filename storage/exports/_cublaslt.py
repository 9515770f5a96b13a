"""Formats ``cublaslt`` (one table of algorithms, for ``kernelarc.runtime`` or C) and ``npy``.

The table says everything that a call needs: for each workload the nine attributes of the algorithm
(and the library's own 64 bytes, which hold for one version only), what the matrices are like, and
how sure the gain is. An entry never promises what an audit did not show: where nothing is surely
faster than the library's first heuristic, the entry says to run that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelarc.genomes import (
    LT_ATTRIBUTES,
    LT_ROUTE,
    LT_TYPES,
    Evaluation,
    InputError,
    MatmulJob,
    Workload,
    axis_values,
    matmul_job,
)
from kernelarc.storage._contract import Best
from kernelarc.storage.exports._naming import paths_for
from kernelarc.storage.exports._placing import FileWriter
from kernelarc.storage.exports._subject import Subject

SCHEMA = 1
ALGORITHM, HEURISTIC = "algorithm", "heuristic"
_BLOB_WORDS = 8
# One result of the library's planner, as nvmath's ``Algorithm.from_numpy`` takes it.
STRUCT = np.dtype(
    [
        ("algo", [("data_", "<u8", (_BLOB_WORDS,))]),
        ("workspace_size", "<u8"),
        ("state", "<i4"),
        ("waves_count", "<f4"),
        ("reserved", "<i4", (4,)),
    ]
)
_FALLBACK = {
    "rule": HEURISTIC,
    "why": "a shape, type, layout or placement that no entry names runs the library's first "
    "heuristic under the table's largest workspace; so does every entry where the library has "
    "another version than here or refuses the algorithm",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """What is exported of one workload.

    Attributes:
        use: ``"algorithm"``, or ``"heuristic"`` where nothing is surely faster.
        evaluation: Of the algorithm; of the heuristic where it was evaluated, else None.
    """

    use: str
    why: str
    best: Best | None
    evaluation: Evaluation | None


def cublaslt_files(subject: Subject, path: Path) -> Mapping[Path, FileWriter]:
    """Write the table.

    Raises:
        InputError: The campaign has no genomes of this route, or no best was audited.
    """
    text = json.dumps(_table(subject, choices(subject)), indent=1, allow_nan=False) + "\n"

    def write(aside: Path) -> None:
        aside.write_text(text, encoding="utf-8")

    return {path: write}


def npy_files(subject: Subject, path: Path) -> Mapping[Path, FileWriter]:
    """Write one file for each workload: an array of one result, shape (1,).

    Raises:
        InputError: As for the table, or a workload's algorithm was not recorded.
    """
    places = paths_for(path, subject.workloads)
    return {
        places[workload.fingerprint]: _array_writer(_struct(workload, choice))
        for workload, choice in zip(subject.workloads, choices(subject), strict=True)
    }


def _array_writer(array: NDArray[Any]) -> FileWriter:
    def write(aside: Path) -> None:
        with aside.open("wb") as file:
            np.save(file, array, allow_pickle=False)

    return write


# What is exported


def choices(subject: Subject) -> list[Choice]:
    """Decide for each workload, in the problem's order, what is exported.

    Raises:
        InputError: The campaign has no genomes of this route, or no best was audited.
    """
    number = subject.campaign.id
    if all(b.evaluation.candidate.genome.route != LT_ROUTE for b in subject.bests):
        raise InputError(
            f"campaign {number}: formats cublaslt and npy hold matrix products that were searched "
            f"on cuda:N, not {subject.operator.name!r} on {subject.campaign.spec.device}"
        )
    if not any(best.audited for best in subject.bests):
        raise InputError(
            f"campaign {number}: no best was audited yet, and a table holds nothing else; "
            f"'kernelarc resume' or 'kernelarc verify' audits it"
        )
    return [_choice(subject, workload) for workload in subject.workloads]


def _choice(subject: Subject, workload: Workload) -> Choice:
    best = subject.best(workload)
    why = _doubt(best)
    if best is not None and why is None:
        return Choice(ALGORITHM, "audited: surely faster", best, best.evaluation)
    return Choice(HEURISTIC, str(why), best, _baseline(subject, workload))


def _doubt(best: Best | None) -> str | None:
    """Say why a best is not exported, or None where it is surely faster than the heuristic."""
    if best is None:
        return "no valid genome was found"
    if best.evaluation.candidate.genome.route != LT_ROUTE:
        return f"route {best.evaluation.candidate.genome.route} is faster than the library"
    if "baseline" in best.evaluation.properties:
        return "nothing was found that is faster than the library's first heuristic"
    if not best.audited or best.speedup is None:
        return "the best found was not audited beside the heuristic"
    s = best.speedup
    if s.low <= 1.0:
        return f"the best found is not surely faster: {s.value:.4f} [{s.low:.4f}, {s.high:.4f}]"
    return None


def _baseline(subject: Subject, workload: Workload) -> Evaluation | None:
    for judged in subject.reader.evaluations(subject.campaign.id, workload=workload.fingerprint):
        if "baseline" in judged.evaluation.properties:
            return judged.evaluation
    return None


# The table


def _table(subject: Subject, choices: list[Choice]) -> dict[str, Any]:
    campaign = subject.campaign
    identity = campaign.environment.identity
    entries = [
        _entry(subject, workload, choice)
        for workload, choice in zip(subject.workloads, choices, strict=True)
    ]
    return {
        "kernelarc_cublaslt": SCHEMA,
        "library": {"name": "cuBLASLt", "version": int(identity["cublaslt"])},
        "device": subject.device_label,
        "campaign": {
            "id": campaign.id,
            "created_unix_s": campaign.created_unix_s,
            "seed": campaign.spec.seed,
            "operator": subject.operator.name,
            "operator_fingerprint": subject.operator.fingerprint,
        },
        "environment": {
            "fingerprint": campaign.environment.fingerprint,
            "identity": dict(identity),
            "observations": dict(campaign.environment.observations),
        },
        "attributes": [
            {"name": name, "id": place, "type": kind}
            for place, (name, kind) in enumerate(zip(LT_ATTRIBUTES, LT_TYPES, strict=True))
        ],
        "fallback": _FALLBACK,
        "entries": entries,
    }


def _entry(subject: Subject, workload: Workload, choice: Choice) -> dict[str, Any]:
    job = _job(subject, workload)
    return {
        "workload": workload.label,
        "fingerprint": workload.fingerprint,
        "product": _product(job),
        "call": _call(job),
        "use": choice.use,
        "why": choice.why,
        "algorithm": None if choice.evaluation is None else _algorithm(choice.evaluation),
        "evidence": _evidence(choice.best),
    }


def _job(subject: Subject, workload: Workload) -> MatmulJob:
    job = matmul_job(subject.operator, workload, axis_values(subject.operator, workload))
    if job is None:
        raise InputError(f"workload {workload.label!r} is no matrix product")
    return job


def _product(job: MatmulJob) -> dict[str, Any]:
    """Say what is computed, row-major; ``layout`` and ``compute`` beside the job's own fields."""
    return {**asdict(job), "layout": job.layout, "compute": job.compute}


def _call(job: MatmulJob) -> dict[str, Any]:
    """Say the same as the library is told it: column-major, the transposed product."""
    bias = "BIAS" if job.bias else ""
    activation = "" if job.activation == "none" else job.activation.upper()
    stored = job.m * job.n
    return {
        "transa": "T" if job.transpose_b else "N",
        "transb": "T" if job.transpose_a else "N",
        "m": job.n,
        "n": job.m,
        "k": job.k,
        "lda": job.k if job.transpose_b else job.n,
        "ldb": job.m if job.transpose_a else job.k,
        "ldc": job.n,
        "ldd": job.n,
        "batch": job.batch,
        "strides": [job.n * job.k, job.k * job.m, stored, stored] if job.batch > 1 else None,
        "type_a": job.dtype,
        "type_b": job.dtype,
        "type_c": job.out_dtype,
        "type_d": job.out_dtype,
        "compute": "32F_FAST_TF32" if job.tf32 else "32F",
        "scale_type": "float32",
        "alpha": 1.0,
        "beta": 1.0 if job.residual else 0.0,
        "epilogue": "_".join(filter(None, (activation, bias))) or "DEFAULT",
    }


def _algorithm(evaluation: Evaluation) -> dict[str, Any]:
    genome, seen = evaluation.candidate.genome, evaluation.properties
    attributes, blob = recorded(evaluation)
    return {
        "attributes": dict(zip(LT_ATTRIBUTES, attributes, strict=True)),
        "workspace_bytes": int(genome["workspace_mib"]) << 20,  # type: ignore[arg-type]
        "needs_bytes": seen["workspace_bytes"],
        "aliased": bool(genome.get("aliased", False)),
        "blob": blob.hex(),
        "genome": genome.alleles(),
        "genome_fingerprint": genome.fingerprint,
    }


def recorded(evaluation: Evaluation) -> tuple[tuple[int, ...], bytes]:
    """Return the nine attributes and the 64 bytes that the device recorded.

    Raises:
        InputError: They were not: the campaign is of an older version.
    """
    attributes, blob = (evaluation.properties.get(name) for name in ("attributes", "blob"))
    if not isinstance(attributes, tuple) or not isinstance(blob, str):
        raise InputError(
            f"genome {evaluation.candidate.genome.fingerprint}: its algorithm was not recorded; "
            f"run the campaign again"
        )
    return tuple(int(value) for value in attributes), bytes.fromhex(blob)  # type: ignore[arg-type]


def _evidence(best: Best | None) -> dict[str, Any] | None:
    if best is None:
        return None
    timed, found = best.evaluation.measurement, best.speedup
    assert timed is not None
    speedup = None if found is None else asdict(found)
    if speedup is not None:
        speedup["estimate"] = speedup.pop("value")
    return {
        "latency_us": timed.latency_us,
        "cache": timed.cache,
        "speedup": speedup,
        "against": (best.against or "").removeprefix("baseline:") or None,
        "audited": best.audited,
        "candidate": best.number,
        "verdict": best.verdict.value,
    }


# The planner's structs


def _struct(workload: Workload, choice: Choice) -> NDArray[Any]:
    if choice.evaluation is None:
        raise InputError(
            f"workload {workload.label!r}: {choice.why}, and the heuristic itself was not recorded"
        )
    _, blob = recorded(choice.evaluation)
    seen = choice.evaluation.properties
    found = np.zeros(1, dtype=STRUCT)
    found["algo"]["data_"][0] = np.frombuffer(blob, dtype="<u8")
    found["workspace_size"] = int(seen["workspace_bytes"])  # type: ignore[arg-type]
    found["waves_count"] = float(seen["waves"])  # type: ignore[arg-type]
    return found
