"""From a call of a decorated kernel to the configuration that it should run with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelarc.bench.kernelfile import configuration, kernel_of
from kernelarc.engine._run import artefacts_of
from kernelarc.engine.tuning._calls import captured
from kernelarc.engine.tuning._job import TuningJob, TuningSubject
from kernelarc.engine.tuning._known import Known, demand_store_place, look_up
from kernelarc.engine.tuning._program import Order
from kernelarc.engine.tuning._searching import SearchFailedError, have_searched
from kernelarc.engine.tuning._settings import SEARCH, Wishes, mode
from kernelarc.engine.tuning._sharing import one_at_a_time
from kernelarc.engine.tuning._sources import kernel_source
from kernelarc.engine.tuning._tables import Tabled, plain_answer, tabled
from kernelarc.engine.tuning._travel import CannotTravelError
from kernelarc.genomes import Allele, Gene, Space
from kernelarc.genomes.triton import OPTIONS, layers

_MOST_PRUNED = 20_000
_SLACK_S, _FREE_S = 300.0, 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call as the decorator sees it.

    Attributes:
        tuner: The decorated kernel, an ``Autotuner``.
        named: All arguments by name, constants and options among them.
        key: The key's names and values, types of tensors among them.
        grid: As it was given.
    """

    tuner: Any
    named: Mapping[str, Any]
    key: Mapping[str, Any]
    grid: Any


def found_configuration(call: Call, wishes: Wishes) -> Any:
    """Return the configuration that a store knows or a search finds.

    Raises:
        CannotTravelError: The call cannot be searched elsewhere.
        SearchFailedError: The search failed, or found nothing valid.
        KernelarcError: What the program says does not fit together.
    """
    subject = subject_of(call, wishes)
    known = look_up(wishes.place(), subject.identity, subject.device_model)
    if known is None or not known.finished:
        known = _searched(subject, call, wishes)
    if known.genome is None:
        raise SearchFailedError(f"campaign {known.campaign} found nothing valid")
    return configuration(known.genome)


def _searched(subject: TuningSubject, call: Call, wishes: Wishes) -> Known:
    """Have the subject searched by whoever comes first; return what is then known of it."""
    store, identity, model = wishes.place(), subject.identity, subject.device_model
    if mode() != SEARCH:
        raise SearchFailedError(f"{store} knows nothing of it, and searching is switched off")
    job = job_of(subject, call)
    demand_store_place(store)
    folder = artefacts_of(store).absolute() / "kernels"
    limit_s = _FREE_S if wishes.seconds is None else wishes.seconds + _SLACK_S
    with one_at_a_time(folder / f"{identity}.lock", wait_s=limit_s):
        known = look_up(store, identity, model)
        if known is None or not known.finished:
            order = Order(
                job=job,
                file=folder / f"{subject.kernel}_{identity}.py",
                store=store,
                budget=wishes.evaluations,
                seconds=wishes.seconds,
                wait_s=limit_s,
            )
            ready_device()
            have_searched(order, limit_s=limit_s)
            known = look_up(store, identity, model)
    if known is None:
        raise SearchFailedError("the search measured on another kind of device than this program")
    return known


# The job


def subject_of(call: Call, wishes: Wishes) -> TuningSubject:
    """Return what is tuned, without looking at the call's tensors.

    Raises:
        CannotTravelError: The kernel uses something of this process only, or has hooks.
        InputError: The space does not hold a configuration.
    """
    kernel = kernel_of(call.tuner.base_fn.__name__, call.tuner)
    if kernel.hooks:
        raise CannotTravelError(f"{kernel.hooks[0]} is code of this program")
    genes = wishes.genes(kernel.seeds or ({"num_warps": 4, "num_stages": 3, "maxnreg": 0},))
    names = [gene.name for gene in genes]
    seeds = tuple({n: s[n] for n in names if n in s} for s in kernel.seeds)
    device, model, arch = current_device()
    return TuningSubject(
        kernel=kernel.function,
        source=kernel_source(call.tuner),
        key=call.key,
        genes=genes,
        seeds=seeds or (_default_seed(genes),),
        arch=arch,
        device=device,
        device_model=model,
    )


def job_of(subject: TuningSubject, call: Call) -> TuningJob:
    """Return a call as a job for another process.

    Raises:
        CannotTravelError: Something of it exists in this process only.
    """
    genes, first = subject.genes, subject.seeds[0]
    computed = _computed(call, genes, first)
    given = {name: value for name, value in call.named.items() if name not in computed}
    return TuningJob(
        subject=subject,
        call=captured(given, zeroed=call.tuner.reset_to_zero),
        grid=_grid(call, genes, first),
        computed=computed,
        pruned=_pruned(call, genes),
    )


def _default_seed(genes: Sequence[Gene]) -> dict[str, Allele]:
    plain: Mapping[str, Allele] = {"num_warps": 4, "num_stages": 3, "maxnreg": 0, "num_ctas": 1}
    return {g.name: plain[g.name] if g.contains(plain.get(g.name)) else g.at(0) for g in genes}


def _grid(call: Call, genes: Sequence[Gene], first: Mapping[str, Allele]) -> Tabled:
    if callable(call.grid):
        return tabled("the grid", call.grid, call.named, genes, first)
    return Tabled(genes=(), rows={(): plain_answer("the grid", call.grid)})


def _computed(call: Call, genes: Sequence[Gene], first: Mapping[str, Allele]) -> dict[str, Tabled]:
    """Return the constants of ``triton.heuristics`` below the decorator, as tables."""
    found: dict[str, Tabled] = {}
    for layer in layers(call.tuner):
        rules = getattr(layer, "values", None)
        for name, rule in rules.items() if isinstance(rules, Mapping) else ():
            what = f"the heuristic of {name}"
            found[name] = tabled(what, rule, call.named, genes, first)
    return found


def _pruned(call: Call, genes: Sequence[Gene]) -> tuple[tuple[Allele, ...], ...] | None:
    """Return what the program's own pruning leaves of a space that can be listed."""
    prune = call.tuner.early_config_prune
    space = Space("triton", genes)
    if prune is None or space.size().legal > _MOST_PRUNED:
        return None
    alleles = [genome.alleles() for genome in space.enumerate()]
    made = [configuration(each) for each in alleles]
    tensors = {n: v for n, v in call.named.items() if n in call.tuner.arg_names}
    others = {n: v for n, v in call.named.items() if n in OPTIONS}
    kept = {id(each) for each in prune(made, tensors, **others)}
    names = [gene.name for gene in genes]
    return tuple(
        tuple(each[name] for name in names)
        for each, one in zip(alleles, made, strict=True)
        if id(one) in kept
    )


def current_device() -> tuple[str, str, str]:
    """Return the current device's name here, its model, and what is compiled for it.

    Raises:
        CannotTravelError: PyTorch is not here or sees no NVIDIA GPU.
    """
    try:
        import torch  # noqa: PLC0415 - only programs that call a kernel have it
    except ImportError:
        raise CannotTravelError("PyTorch is not installed here") from None
    if not torch.cuda.is_available() or torch.version.hip is not None:
        raise CannotTravelError("there is no NVIDIA GPU here")
    ordinal = torch.cuda.current_device()
    major, minor = torch.cuda.get_device_capability(ordinal)
    arch = f"sm_{major}{minor}" + ("a" if major >= 9 else "")
    return f"cuda:{ordinal}", torch.cuda.get_device_name(ordinal), arch


def ready_device() -> None:
    """Finish what is queued on the device and return memory that is reserved and unused."""
    import torch  # noqa: PLC0415

    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def is_capturing() -> bool:
    """Tell whether the current stream is being captured into a graph: nothing can be timed."""
    try:
        import torch  # noqa: PLC0415
    except ImportError:
        return False
    return bool(torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())
