"""What a kernel file declares, as JSON values. Runs in the reading process; needs Triton."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from types import ModuleType
from typing import Any

import numpy as np

from kernelarc.bench._gene_json import gene_to_json
from kernelarc.bench.kernelfile._closure import closure_of
from kernelarc.bench.kernelfile._inspect import configuration, kernel_of
from kernelarc.genomes import (
    Allele,
    Axis,
    Constraint,
    ExpressionConstraint,
    Gene,
    InputError,
    KernelarcError,
    Operator,
    Space,
    Workload,
    nearest,
    widened,
)
from kernelarc.genomes.kernels import BuildError, Clear
from kernelarc.genomes.triton import (
    OPTIONS,
    TritonCall,
    TritonKernel,
    jitted,
    launch_values,
    layers,
    traced,
    tuner_of,
)

_MOST_TABLED = 1 << 18
_MOST_PRUNED = 20_000
_TRIED_AXIS, _TRIED_GENOMES = 128, 16
_PLAIN_SEED: Mapping[str, Allele] = {"num_warps": 4, "num_stages": 3, "maxnreg": 0}
_USUAL_OPTIONS: Mapping[str, Allele] = {**_PLAIN_SEED, "num_ctas": 1}


class Declared:
    """One declaration of a file, completed by what its kernel says.

    Args:
        module: The imported file.
        name: Under which the declaration stands in it.
        said: The declaration.

    Raises:
        InputError: Something in it does not fit; one line.
    """

    def __init__(self, module: ModuleType, name: str, said: TritonKernel) -> None:
        self.module, self.name, self.said = module, name, said
        self.kernel_name, self.object = self._the_kernel()
        self.kernel = kernel_of(self.kernel_name, self.object)
        self.seeds = tuple(said.seeds) or self.kernel.seeds
        self.genes = self._genes()
        self.axes = self._axes()

    def _the_kernel(self) -> tuple[str, Any]:
        wanted = self.said.kernel
        kernels = {n: v for n, v in vars(self.module).items() if _is_kernel(v)}
        if wanted is not None:
            base = jitted(wanted)
            same = {n: v for n, v in kernels.items() if jitted(v) is base}
            if base is None or not same:
                raise self._fault("kernel is no @triton.jit function of this file")
            name = max(same, key=lambda n: sum(1 for _ in layers(same[n])))
            return name, same[name]
        launched = _names_in(self.said.launch)
        found = {n: v for n, v in kernels.items() if n in launched} or kernels
        distinct = {id(jitted(v)): n for n, v in found.items()}
        if len(distinct) != 1:
            names = ", ".join(distinct.values()) or "none"
            raise self._fault(f"kernel is not given, and the file has several: {names}")
        (name,) = distinct.values()
        return name, found[name]

    def _fault(self, text: str) -> InputError:
        return InputError(f"{self.name}: {text}")

    def _genes(self) -> tuple[Gene, ...]:
        if self.said.genes and self.said.domains:
            raise self._fault(
                "domains change genes that are made of an autotuner's configurations, and genes "
                "says them all; give one of the two"
            )
        if self.said.genes:
            return tuple(self.said.genes)
        seeds = self.seeds or ((_PLAIN_SEED,) if not self._open_constants() else ())
        if not seeds and not self.said.domains:
            missing = ", ".join(sorted(self._open_constants()))
            raise self._fault(
                f"there are no genes: neither genes nor an autotuner says what {missing} can be"
            )
        return widened(seeds, self.said.domains)

    def _open_constants(self) -> set[str]:
        """Return the kernel's constants that have no value of their own."""
        parameters = self.kernel.parameters
        return {p.name for p in parameters if p.constant and not p.has_default} - {
            *self.kernel.heuristics
        }

    def _axes(self) -> dict[str, int | None]:
        if self.said.axes:
            return dict(self.said.axes)
        shapes = [s.shape or () for k in ("inputs", "outputs") for s in self.said.specs(k)]
        named = [part for shape in shapes for part in shape if not part.isdigit()]
        keys = [key for key in self.kernel.keys if key not in self.tensors]
        return dict.fromkeys([*keys, *named])

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of inputs and outputs."""
        return (*self.said.inputs, *self.said.outputs)

    # The description

    def to_json(self, workloads: Sequence[Mapping[str, int]]) -> dict[str, Any]:
        """Return everything that the coordinator needs, and nothing that must be imported.

        Args:
            workloads: Axes that the user sets, one table for each workload.
        """
        tables = [self._bound(axes) for axes in workloads]
        self._check_seeds()
        named = [self.check_launch(axes) for axes in tables]
        self._check_genes()
        said = self.said
        return {
            "name": self.name,
            "kernel": asdict(self.kernel),
            "operator": said.name or self.kernel.function,
            "axes": self.axes,
            "inputs": [[s.name, s.dtype, list(s.shape or ())] for s in said.specs("inputs")],
            "outputs": [[s.name, s.dtype, list(s.shape or ())] for s in said.specs("outputs")],
            "reference": self._reference(),
            "genes": [gene_to_json(gene) for gene in self.genes],
            "constraints": [self._constraint(c) for c in said.constraints],
            "seeds": [self._own(seed) for seed in self.seeds],
            "strategies": dict(said.strategies),
            "in_place": dict(said.in_place),
            "values": said.values is not None,
            "tolerance": asdict(said.tolerance),
            "flops": said.flops,
            "bytes_moved": said.bytes_moved,
            "pruned": [
                {"axes": axes, "rows": self._pruned(arguments)}
                for axes, arguments in zip(tables, named, strict=True)
                if self.kernel.prunes and arguments is not None
            ],
        }

    def _bound(self, given: Mapping[str, int]) -> dict[str, int]:
        """Return the axes of one workload; those that nobody bound are tried as 128."""
        known = {name: value for name, value in self.axes.items() if value is not None}
        unknown = [name for name in given if name not in self.axes]
        if unknown:
            raise self._fault(f"there is no axis {unknown[0]!r}{nearest(unknown[0], self.axes)}")
        return {name: given.get(name, known.get(name, _TRIED_AXIS)) for name in self.axes}

    def _pruned(self, named: Mapping[str, Any]) -> list[list[Allele]] | None:
        """Return the genomes that the kernel's own pruning leaves, None where it leaves all.

        Only what drops configurations counts; a performance model ranks them, and a search does
        that itself. A space that is too large to be listed is not pruned.
        """
        tuner = tuner_of(self.object)
        space = self._space()
        if tuner.early_config_prune is None or space.size().legal > _MOST_PRUNED:
            return None
        genomes = [genome.alleles() for genome in space.enumerate()]
        made = [configuration(alleles) for alleles in genomes]
        try:
            kept = {id(each) for each in tuner.early_config_prune(made, dict(named))}
        except Exception as error:
            text = str(error).strip().partition("\n")[0]
            raise self._fault(f"early_config_prune: {type(error).__name__}: {text}") from None
        names = [gene.name for gene in self.genes]
        return [
            [alleles[name] for name in names]
            for each, alleles in zip(made, genomes, strict=True)
            if id(each) in kept
        ]

    def _own(self, seed: Mapping[str, Allele]) -> dict[str, Allele]:
        """Return a seed's alleles of the genes there are; what it leaves out has its default."""
        constants = {p.name: p.default for p in self.kernel.parameters if p.default is not None}
        usual = {**constants, **_USUAL_OPTIONS}
        given = {gene.name: seed.get(gene.name, usual.get(gene.name)) for gene in self.genes}
        return {name: value for name, value in given.items() if value is not None}

    def _check_genes(self) -> None:
        """Refuse a gene that nobody takes: it would be searched, and change nothing."""
        taken = inspect.signature(self.said.launch).parameters.values()
        if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken):
            return
        constants = [parameter.name for parameter in self.kernel.parameters]
        known = {*(each.name for each in taken), *constants, *OPTIONS}
        for gene in self.genes:
            if gene.name not in known:
                raise self._fault(
                    f"gene {gene.name!r} changes nothing: it is no parameter of launch function "
                    f"{self.said.launch.__name__!r} or of kernel {self.kernel.function!r}, and no "
                    f"option of the compiler{nearest(gene.name, known)}"
                )

    def _check_seeds(self) -> None:
        """Refuse a seed of the user's that is no genome: what is run today must not get lost."""
        space, names = self._space(), [gene.name for gene in self.genes]
        if not self.said.seeds or space.size().legal == 0:  # the campaign says that there is none
            return
        for place, seed in enumerate(self.said.seeds, start=1):
            for name in seed:
                if name not in names:
                    raise self._fault(f"seed {place}: {name!r} is no gene{nearest(name, names)}")
            why = space.violation(self._own(seed))
            if why is not None:
                raise self._fault(f"seed {place}: {why}")

    def _reference(self) -> str | None:
        function = self.said.reference
        if function is None:
            return None
        taken = len(inspect.signature(function).parameters)
        if taken != len(self.said.inputs):
            raise self._fault(
                f"the reference takes {taken} parameters, and there are "
                f"{len(self.said.inputs)} inputs: {', '.join(self.said.inputs)}"
            )
        try:
            source = inspect.getsource(self.module)
            return closure_of(source, function.__name__, called="run")
        except (LookupError, OSError, TypeError) as error:
            raise self._fault(f"the reference must be a top-level function ({error})") from None

    def _constraint(self, given: str | Constraint) -> dict[str, Any]:
        names = [gene.name for gene in self.genes]
        if isinstance(given, str):
            ExpressionConstraint(given, names)
            return {"text": given}
        if isinstance(given, ExpressionConstraint):
            return {"text": given.text}
        domains = [gene.values() for gene in self.genes if gene.name in given.genes]
        named = [gene.name for gene in self.genes if gene.name in given.genes]
        size = int(np.prod([len(domain) for domain in domains], dtype=np.float64))
        if size > _MOST_TABLED:
            raise self._fault(
                f"constraint {given.text!r} is a function over {size:,} combinations; "
                f"write it as text, or over fewer genes"
            )
        rows = [r for r in itertools.product(*domains) if given.holds(dict(zip(named, r)))]  # noqa: B905
        return {"text": given.text, "genes": named, "rows": rows}

    # The launch function

    def check_launch(self, axes: Mapping[str, int]) -> dict[str, Any] | None:
        """Run the launch function on stand-ins; return what the kernel was called with.

        A genome may be one that cannot be launched; that all of several are says that the
        function is wrong.

        Raises:
            InputError: Its signature is wrong, or it fails.
        """
        self._check_signature()
        fault: InputError | None = None
        for alleles in self._some_genomes():
            try:
                return self._called(axes, alleles)
            except InputError as error:
                fault = fault or error
        if fault is not None:
            raise fault
        return None

    def _called(self, axes: Mapping[str, int], alleles: Mapping[str, Allele]) -> dict[str, Any]:
        operator = self._operator()
        workload = Workload(operator=operator.fingerprint, axes=axes)
        clears: list[Clear] = []
        values = launch_values(self.said, operator, workload, clears)
        try:
            calls = traced(
                self.module, self.said.launch, self.object,
                values=values, genes=alleles, clears=clears,
            )  # fmt: skip
        except BuildError as error:
            raise self._fault(f"{error.message} (with {_shown({**axes, **alleles})})") from None
        for call in calls:
            self._check_call(call)
        base = jitted(self.object)
        return next((dict(call.given) for call in calls if call.function is base), {})

    def _check_signature(self) -> None:
        launch, genes = self.said.launch, [gene.name for gene in self.genes]
        known = {*self.tensors, *self.axes, *genes, "kernel"}
        parameters = inspect.signature(launch).parameters.values()
        place = f"launch function {launch.__name__!r}"
        for each in parameters:
            if each.kind is inspect.Parameter.VAR_KEYWORD:
                return
            if each.name not in known and each.default is inspect.Parameter.empty:
                raise self._fault(
                    f"{place}: parameter {each.name!r} is no tensor, axis or gene "
                    f"(known: {', '.join(sorted(known))})"
                )
        taken = {each.name for each in parameters}
        missing = [name for name in self.said.outputs if name not in taken]
        if missing:
            raise self._fault(f"{place} takes no parameter {missing[0]!r}, which is an output")

    def _check_call(self, call: TritonCall) -> None:
        given = {*call.arguments, *call.constants}
        for parameter in call.function.params:
            if parameter.name not in given and not parameter.has_default:
                raise self._fault(
                    f"launch function {self.said.launch.__name__!r}: kernel "
                    f"{call.function.__name__!r} gets no {parameter.name!r}"
                )
        for name in given - {parameter.name for parameter in call.function.params}:
            raise self._fault(
                f"launch function {self.said.launch.__name__!r}: kernel "
                f"{call.function.__name__!r} has no parameter {name!r}"
            )

    def _some_genomes(self) -> list[dict[str, Allele]]:
        """Return the first seed or a few genomes; none where there is no legal one."""
        if self.seeds:
            return [self._own(self.seeds[0])]
        try:
            space, rng = self._space(), np.random.default_rng(0)
            return [space.sample(rng).alleles() for _ in range(_TRIED_GENOMES)]
        except KernelarcError:  # the campaign says that there is none
            return []

    def _space(self) -> Space:
        names = [gene.name for gene in self.genes]
        said = [ExpressionConstraint(c, names) if isinstance(c, str) else c
                for c in self.said.constraints]  # fmt: skip
        return Space("triton", self.genes, said)

    def _operator(self) -> Operator:
        return Operator(
            name=self.said.name or self.kernel.function,
            axes={name: Axis(name=name, kind="var") for name in self.axes},
            inputs=self.said.specs("inputs"),
            outputs=self.said.specs("outputs"),
        )


def _is_kernel(value: Any) -> bool:
    return hasattr(value, "fn") and jitted(value) is not None


def _names_in(function: Callable[..., Any]) -> Sequence[str]:
    code = getattr(function, "__code__", None)
    return () if code is None else code.co_names


def _shown(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
