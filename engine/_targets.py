"""From what the user named to a device and a problem."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelarc.bench import CpuDevice, Device, replay_device
from kernelarc.bench.kernelfile import kernel_target, names_kernel_file
from kernelarc.bench.kernelfolder import brings_kernel, own_route
from kernelarc.bench.kernels import KernelDevice
from kernelarc.engine._settings import CampaignSettings
from kernelarc.genomes import (
    MATMUL,
    InputError,
    Problem,
    Workload,
    builtin_operators,
    builtin_problem,
    job_options,
    load_problem,
    load_solution,
    matmul_target,
    nearest,
    packaged_problem,
    packaged_problems,
    recognised,
    recognised_matmul,
    require_definition,
    with_job_options,
)
from kernelarc.genomes.kernels import kernel_routes

DEVICES = ("cpu", "cuda:0", "replay")
FIRST_GPU = "cuda:0"
_RECORDINGS = (".json", ".json.gz", ".gz")
_DEFINITION, _SOLUTION = "definition.json", "solution.json"


@dataclass(frozen=True, slots=True)
class Target:
    """What a campaign works on.

    Attributes:
        device: Where.
        problem: What.
    """

    device: Device
    problem: Problem


def target_names() -> tuple[str, ...]:
    """Return the targets that are named and not files."""
    return (*builtin_operators(), MATMUL, *packaged_problems())


def resolve_target(settings: CampaignSettings) -> Target:
    """Find out what the target is: a recorded space, a problem folder, or a named operator.

    Raises:
        InputError: There is no such operator, file or device, or they do not go together.
        MissingPartError: The device or toolchain is missing.
    """
    name = settings.target
    if name in packaged_problems():
        return _served(settings, packaged_problem(name, _shapes(settings)))
    if name not in target_names():
        if names_kernel_file(name):
            return _kernel_file(settings)
        if _is_problem(name):
            return _folder(settings)
        if _is_path(name):
            return _recording(settings)
        raise InputError(
            f"unknown target {name!r}: neither an operator{nearest(name, target_names())} "
            f"nor a file"
        )
    device_name = _device_name(settings)
    device = _device(device_name, settings.routes)
    return Target(device, _named(settings, on_gpu=_on_gpu(device_name)))


def device_for(settings: CampaignSettings) -> Device:
    """Return the device of a campaign that is resumed or verified; its problem is in the store.

    Raises:
        InputError: The recorded space that answered is gone, or a program had brought the device.
        MissingPartError: The device or toolchain is missing.
    """
    name = settings.target
    if name not in target_names() and names_kernel_file(name):
        return _kernel_file(settings).device
    if name not in target_names() and _is_problem(name) and brings_kernel(Path(name)):
        return _folder(settings).device
    if name not in target_names() and not _is_problem(name) and _is_path(name):
        return replay_device(Path(name))
    if name not in target_names() and not _is_problem(name):
        raise InputError(
            f"the target {name!r} is neither an operator nor a file here: a program brought its "
            f"problem and device; resume and verify it from Python, with device="
        )
    return _device(_device_name(settings), settings.routes)


def _is_path(name: str) -> bool:
    return name.endswith(_RECORDINGS) or os.sep in name or Path(name).exists()


def _is_problem(name: str) -> bool:
    return (Path(name) / _DEFINITION).is_file()


def _device_name(settings: CampaignSettings) -> str:
    """Return the device that was named, or what the target needs."""
    if settings.device == "replay":
        raise InputError("device 'replay' needs a recorded space (.json or .json.gz) as target")
    return settings.device or ("cpu" if settings.target in builtin_operators() else FIRST_GPU)


def _on_gpu(device: str) -> bool:
    return device.partition(":")[0] == "cuda"


def _device(name: str, routes: Sequence[str] | None = None) -> Device:
    if name == "cpu":
        return CpuDevice()
    if "," in name:
        raise InputError(f"device {name!r}: a campaign runs on one device")
    if _on_gpu(name):
        return KernelDevice(name, only=routes)
    raise InputError(f"unknown device {name!r}{nearest(name, DEVICES)}")


# Problems


def _named(settings: CampaignSettings, *, on_gpu: bool) -> Problem:
    if settings.target == MATMUL:
        if not on_gpu:
            raise InputError("target 'matmul' runs on cuda:N; on cpu the matrix product is 'gemm'")
        return _distinct(matmul_target(_tables(settings), settings.options))
    job = job_options(settings.options) if on_gpu else {}
    form = {name: value for name, value in settings.options.items() if name not in job}
    problems = [builtin_problem(settings.target, axes, options=form) for axes in _tables(settings)]
    workloads = tuple(workload for problem in problems for workload in problem.workloads)
    problem = Problem(operator=problems[0].operator, workloads=workloads)
    return _distinct(with_job_options(problem, job) if on_gpu else problem)


def _tables(settings: CampaignSettings) -> list[Mapping[str, int]]:
    """Return the axes of each workload, those of all workloads below them."""
    return [{**settings.axes, **workload} for workload in settings.workloads or ({},)]


def _distinct(problem: Problem) -> Problem:
    seen: dict[str, Workload] = {}
    for workload in problem.workloads:
        if workload.fingerprint in seen:
            raise InputError(f"workload {workload.label!r} is given twice")
        seen[workload.fingerprint] = workload
    return problem


def _shapes(settings: CampaignSettings) -> list[Mapping[str, int]]:
    """Return the shapes that were asked for; none stand for the problem's own workloads."""
    return _tables(settings) if settings.axes or settings.workloads else []


def _folder(settings: CampaignSettings) -> Target:
    """Read a problem folder; its solution, where there is one, must at least be well-formed."""
    if settings.axes or settings.workloads:
        raise InputError(
            f"{settings.target}: a problem folder brings its workloads; drop --set and --workload"
        )
    problem = _once(load_problem(Path(settings.target)), settings.target)
    beside = Path(settings.target) / _SOLUTION
    if beside.exists():
        require_definition(load_solution(beside), problem.operator.name, str(beside))
    if brings_kernel(Path(settings.target)):
        return _own_kernel(settings, problem)
    return _served(settings, problem)


def _once(problem: Problem, folder: str) -> Problem:
    """Return a folder's problem with every workload once: some differ in their uuid alone."""
    first: dict[str, Workload] = {}
    for workload in problem.workloads:
        first.setdefault(workload.fingerprint, workload)
    spare = len(problem.workloads) - len(first)
    if spare:
        warnings.warn(
            f"{folder}: {spare} of {len(problem.workloads)} workloads repeat another but for their "
            f"uuid; each is searched for once",
            stacklevel=2,
        )
    return replace(problem, workloads=tuple(first.values()))


def _own_kernel(settings: CampaignSettings, problem: Problem) -> Target:
    """Return a problem for a GPU with the source that its folder brings."""
    name = settings.device or FIRST_GPU
    if not _on_gpu(name):
        raise InputError(
            f"{settings.target}: a kernel of one's own runs on cuda:N, not on {name!r}"
        )
    route = own_route(Path(settings.target), problem)
    known = _distinct(with_job_options(problem, settings.options))
    return Target(KernelDevice(name, [route], only=settings.routes), known)


def _served(settings: CampaignSettings, problem: Problem) -> Target:
    """Return a problem for a GPU, recognised by its structure."""
    name = settings.target
    operator = recognised(problem.operator)
    if recognised_matmul(operator) is None and not kernel_routes(operator):
        raise InputError(
            f"{name}: no route can run {problem.operator.name!r}: its reference is not "
            f"recognised as a matrix product, nor its tensors as another operator with routes; "
            f"bring a kernel of your own (kernel.toml beside it), or give a kernel file as target"
        )
    device_name = _device_name(settings)
    device = _device(device_name, settings.routes)
    if not _on_gpu(device_name):
        raise InputError(f"{name}: a problem folder runs on cuda:N")
    known = Problem(operator=operator, workloads=problem.workloads)
    return Target(device, _distinct(with_job_options(known, settings.options)))


def _kernel_file(settings: CampaignSettings) -> Target:
    """Read a user's kernel: its problem, and the one route that builds it."""
    name = settings.device or FIRST_GPU
    if not _on_gpu(name):
        raise InputError(f"{settings.target}: a kernel file runs on cuda:N, not on {name!r}")
    found = kernel_target(settings.target, _tables(settings))
    problem = _distinct(with_job_options(found.problem, settings.options))
    return Target(KernelDevice(name, [found.route], only=settings.routes), problem)


def _recording(settings: CampaignSettings) -> Target:
    if settings.device not in {None, "replay"}:
        raise InputError(
            f"a recorded space answers on device 'replay' only, not on {settings.device!r}"
        )
    if settings.axes or settings.workloads or settings.options:
        raise InputError(
            f"{settings.target}: a recorded space brings its workload; "
            f"drop --set, --workload and --option"
        )
    device = replay_device(Path(settings.target))
    return Target(device, device.problem)
