"""kernelarc: evolutionary search, with a database, for the fastest correct kernel.

- a campaign: run, resume, verify, plan, CampaignSettings, CampaignResult, BestResult
- who watches it: Observer, Progress, Counts
- what is remembered: open_store, StoreReader, result_of
- a space of one's own: Space, Boolean, Choice, IntegerRange, Permutation, PowerOfTwo, When,
  ExpressionConstraint, PredicateConstraint, Genome
- a problem and a route of one's own: Operator, Axis, TensorSpec, Workload, Problem, Tolerance,
  Route, CpuDevice, builtin_operators, builtin_problem, load_problem
- a Triton kernel of one's own: TritonKernel, autotune
- records: Candidate, Conclusion, ConclusionKind, Estimate, Evaluation, GeneChange, Judged,
  Measurement, Status, Strategy, Verdict
- errors: KernelarcError, InputError, MissingPartError, NothingValidError, StoppedError
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelarc.bench import CpuDevice
    from kernelarc.engine import (
        BestResult,
        CampaignResult,
        CampaignSettings,
        Counts,
        Observer,
        Progress,
        plan,
        result_of,
        resume,
        run,
        verify,
    )
    from kernelarc.engine.tuning import autotune
    from kernelarc.genomes import (
        Axis,
        Boolean,
        Candidate,
        Choice,
        Conclusion,
        ConclusionKind,
        Estimate,
        Evaluation,
        ExpressionConstraint,
        GeneChange,
        Genome,
        InputError,
        IntegerRange,
        Judged,
        KernelarcError,
        Measurement,
        MissingPartError,
        NothingValidError,
        Operator,
        Permutation,
        PowerOfTwo,
        PredicateConstraint,
        Problem,
        Space,
        Status,
        StoppedError,
        Strategy,
        TensorSpec,
        Tolerance,
        Verdict,
        When,
        Workload,
        builtin_operators,
        builtin_problem,
        load_problem,
    )
    from kernelarc.genomes.routes import Route
    from kernelarc.genomes.triton import TritonKernel
    from kernelarc.storage import StoreReader
    from kernelarc.storage import open_reader as open_store

__all__ = [
    "Axis",
    "BestResult",
    "Boolean",
    "CampaignResult",
    "CampaignSettings",
    "Candidate",
    "Choice",
    "Conclusion",
    "ConclusionKind",
    "Counts",
    "CpuDevice",
    "Estimate",
    "Evaluation",
    "ExpressionConstraint",
    "GeneChange",
    "Genome",
    "InputError",
    "IntegerRange",
    "Judged",
    "KernelarcError",
    "Measurement",
    "MissingPartError",
    "NothingValidError",
    "Observer",
    "Operator",
    "Permutation",
    "PowerOfTwo",
    "PredicateConstraint",
    "Problem",
    "Progress",
    "Route",
    "Space",
    "Status",
    "StoppedError",
    "StoreReader",
    "Strategy",
    "TensorSpec",
    "Tolerance",
    "TritonKernel",
    "Verdict",
    "When",
    "Workload",
    "autotune",
    "builtin_operators",
    "builtin_problem",
    "load_problem",
    "open_store",
    "plan",
    "result_of",
    "resume",
    "run",
    "verify",
]

# Imported on first use: `kernelarc --help` and a worker process must not wait for everything.
_ELSEWHERE = {
    "CpuDevice": "bench",
    "Route": "genomes.routes",
    "TritonKernel": "genomes.triton",
    "autotune": "engine.tuning",
    "StoreReader": "storage",
    "open_store": "storage",
    **dict.fromkeys(("BestResult", "CampaignResult", "CampaignSettings"), "engine"),
    **dict.fromkeys(("Counts", "Observer", "Progress", "plan", "result_of"), "engine"),
    **dict.fromkeys(("resume", "run", "verify"), "engine"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'kernelarc' has no attribute {name!r}")
    found = import_module(f"kernelarc.{_ELSEWHERE.get(name, 'genomes')}")
    return getattr(found, "open_reader" if name == "open_store" else name)
