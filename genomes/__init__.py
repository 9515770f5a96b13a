"""The vocabulary: genes, spaces, constraints, operators, routes, and the records passed on."""

from typing import TYPE_CHECKING

from kernelarc.genomes._on_first_use import on_first_use

if TYPE_CHECKING:
    from kernelarc.genomes._alleles import (
        Allele,
        allele_from_json,
        allele_text,
        canonical_json,
        fingerprint_of,
        same_allele,
    )
    from kernelarc.genomes._axes import (
        axis_values,
        bytes_of,
        evaluate_over_axes,
        flops_of,
        tensor_bytes,
    )
    from kernelarc.genomes._baselines import ALL_BASELINES, EAGER_BASELINE, BaselineAttempt
    from kernelarc.genomes._blobs import Blob, StandIn, find_blob, open_blob, stand_in
    from kernelarc.genomes._builtin import builtin_operators, builtin_problem, builtin_workloads
    from kernelarc.genomes._child import child_environment
    from kernelarc.genomes._constraints import (
        AllowedAlleles,
        Constraint,
        ExpressionConstraint,
        PredicateConstraint,
    )
    from kernelarc.genomes._definitions import load_definition
    from kernelarc.genomes._errors import (
        DeviceInUseError,
        IllegalGenomeError,
        InputError,
        KernelarcError,
        MissingPartError,
        NothingValidError,
        StoppedError,
        StoreInUseError,
        nearest,
    )
    from kernelarc.genomes._gene import Gene, When
    from kernelarc.genomes._genes import Boolean, Choice, IntegerRange, Permutation, PowerOfTwo
    from kernelarc.genomes._genome import Genome
    from kernelarc.genomes._hints import Hint
    from kernelarc.genomes._operators import (
        Axis,
        Operator,
        Problem,
        TensorSpec,
        Tolerance,
        Workload,
    )
    from kernelarc.genomes._packaged import packaged_problem, packaged_problems
    from kernelarc.genomes._records import (
        Candidate,
        Conclusion,
        ConclusionKind,
        Contest,
        Environment,
        Estimate,
        Evaluation,
        GeneChange,
        Judged,
        Measurement,
        Proposal,
        Status,
        Verdict,
    )
    from kernelarc.genomes._solutions import (
        Solution,
        checked_solution,
        load_solution,
        require_definition,
    )
    from kernelarc.genomes._space import Space, SpaceSize
    from kernelarc.genomes._strategies import Strategy
    from kernelarc.genomes._strategy_rules import assign_strategies
    from kernelarc.genomes._widening import as_seen, widened
    from kernelarc.genomes._workloads import load_problem, load_workloads
    from kernelarc.genomes.routes._cublaslt import (
        LT_ATTRIBUTES,
        LT_ROUTE,
        LT_TYPES,
        CublasLtSpace,
        LtAlgoDomain,
        LtDomain,
        LtRow,
        ShapePair,
        workspace_levels_mib,
    )
    from kernelarc.genomes.routes._grid_hint import GridHint
    from kernelarc.genomes.routes._matmul import (
        MOST_WORKSPACE_MIB,
        MatmulForm,
        MatmulJob,
        dtype_bytes,
        matmul_job,
        matmul_operator,
        matmul_problem,
    )
    from kernelarc.genomes.routes._matmul_roles import MatmulRoles, matmul_roles
    from kernelarc.genomes.routes._matmul_target import (
        MATMUL,
        job_options,
        matmul_target,
        with_job_options,
    )
    from kernelarc.genomes.routes._recognise import recognised_matmul
    from kernelarc.genomes.routes._recognise_more import recognised
    from kernelarc.genomes.routes._torch_forms import TorchForm, torch_forms

__all__ = [
    "ALL_BASELINES",
    "EAGER_BASELINE",
    "LT_ATTRIBUTES",
    "LT_ROUTE",
    "LT_TYPES",
    "MATMUL",
    "MOST_WORKSPACE_MIB",
    "Allele",
    "AllowedAlleles",
    "Axis",
    "BaselineAttempt",
    "Blob",
    "Boolean",
    "Candidate",
    "Choice",
    "Conclusion",
    "ConclusionKind",
    "Constraint",
    "Contest",
    "CublasLtSpace",
    "DeviceInUseError",
    "Environment",
    "Estimate",
    "Evaluation",
    "ExpressionConstraint",
    "Gene",
    "GeneChange",
    "Genome",
    "GridHint",
    "Hint",
    "IllegalGenomeError",
    "InputError",
    "IntegerRange",
    "Judged",
    "KernelarcError",
    "LtAlgoDomain",
    "LtDomain",
    "LtRow",
    "MatmulForm",
    "MatmulJob",
    "MatmulRoles",
    "Measurement",
    "MissingPartError",
    "NothingValidError",
    "Operator",
    "Permutation",
    "PowerOfTwo",
    "PredicateConstraint",
    "Problem",
    "Proposal",
    "ShapePair",
    "Solution",
    "Space",
    "SpaceSize",
    "StandIn",
    "Status",
    "StoppedError",
    "StoreInUseError",
    "Strategy",
    "TensorSpec",
    "Tolerance",
    "TorchForm",
    "Verdict",
    "When",
    "Workload",
    "allele_from_json",
    "allele_text",
    "as_seen",
    "assign_strategies",
    "axis_values",
    "builtin_operators",
    "builtin_problem",
    "builtin_workloads",
    "bytes_of",
    "canonical_json",
    "checked_solution",
    "child_environment",
    "dtype_bytes",
    "evaluate_over_axes",
    "find_blob",
    "fingerprint_of",
    "flops_of",
    "job_options",
    "load_definition",
    "load_problem",
    "load_solution",
    "load_workloads",
    "matmul_job",
    "matmul_operator",
    "matmul_problem",
    "matmul_roles",
    "matmul_target",
    "nearest",
    "on_first_use",
    "open_blob",
    "packaged_problem",
    "packaged_problems",
    "recognised",
    "recognised_matmul",
    "require_definition",
    "same_allele",
    "stand_in",
    "tensor_bytes",
    "torch_forms",
    "widened",
    "with_job_options",
    "workspace_levels_mib",
]

# Imported on first use: the command line's help must not wait for everything.
_HOMES = {
    "_alleles": (
        "Allele",
        "allele_from_json",
        "allele_text",
        "canonical_json",
        "fingerprint_of",
        "same_allele",
    ),
    "_axes": ("axis_values", "bytes_of", "evaluate_over_axes", "flops_of", "tensor_bytes"),
    "_baselines": ("ALL_BASELINES", "EAGER_BASELINE", "BaselineAttempt"),
    "_blobs": ("Blob", "StandIn", "find_blob", "open_blob", "stand_in"),
    "_builtin": ("builtin_operators", "builtin_problem", "builtin_workloads"),
    "_child": ("child_environment",),
    "_constraints": ("AllowedAlleles", "Constraint", "ExpressionConstraint", "PredicateConstraint"),
    "_definitions": ("load_definition",),
    "_errors": (
        "DeviceInUseError",
        "IllegalGenomeError",
        "InputError",
        "KernelarcError",
        "MissingPartError",
        "NothingValidError",
        "StoppedError",
        "StoreInUseError",
        "nearest",
    ),
    "_gene": ("Gene", "When"),
    "_genes": ("Boolean", "Choice", "IntegerRange", "Permutation", "PowerOfTwo"),
    "_genome": ("Genome",),
    "_hints": ("Hint",),
    "_operators": ("Axis", "Operator", "Problem", "TensorSpec", "Tolerance", "Workload"),
    "_packaged": ("packaged_problem", "packaged_problems"),
    "_records": (
        "Candidate",
        "Conclusion",
        "ConclusionKind",
        "Contest",
        "Environment",
        "Estimate",
        "Evaluation",
        "GeneChange",
        "Judged",
        "Measurement",
        "Proposal",
        "Status",
        "Verdict",
    ),
    "_solutions": ("Solution", "checked_solution", "load_solution", "require_definition"),
    "_space": ("Space", "SpaceSize"),
    "_strategies": ("Strategy",),
    "_strategy_rules": ("assign_strategies",),
    "_widening": ("as_seen", "widened"),
    "_workloads": ("load_problem", "load_workloads"),
    "routes._cublaslt": (
        "LT_ATTRIBUTES",
        "LT_ROUTE",
        "LT_TYPES",
        "CublasLtSpace",
        "LtAlgoDomain",
        "LtDomain",
        "LtRow",
        "ShapePair",
        "workspace_levels_mib",
    ),
    "routes._grid_hint": ("GridHint",),
    "routes._matmul": (
        "MOST_WORKSPACE_MIB",
        "MatmulForm",
        "MatmulJob",
        "dtype_bytes",
        "matmul_job",
        "matmul_operator",
        "matmul_problem",
    ),
    "routes._matmul_roles": ("MatmulRoles", "matmul_roles"),
    "routes._matmul_target": ("MATMUL", "job_options", "matmul_target", "with_job_options"),
    "routes._recognise": ("recognised_matmul",),
    "routes._recognise_more": ("recognised",),
    "routes._torch_forms": ("TorchForm", "torch_forms"),
}

__getattr__ = on_first_use(__name__, _HOMES)
