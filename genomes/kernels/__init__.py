"""Compiled kernels for a GPU: what a route builds, and what a worker launches. Data only.

A ``KernelRoute`` turns a genome into a ``Build`` in a compile process, without any GPU. A device
worker loads the build's binaries and runs its ``LaunchPlan``; it never compiles. Nothing here
imports CUDA, and everything can be pickled.

- what is launched: LaunchPlan, Launch, LaunchAttributes, LibraryProduct, Clear, Scratch, Zeroing
- its arguments: TensorArgument, ScratchArgument, ScalarArgument, InputArgument, TensorMap
- what came of compiling: Build, KernelReport, BuildError, code_hash, report_of
- what a device allows: DeviceLimits, resource_fault
- who builds: KernelRoute, kernel_routes
"""

from kernelarc.genomes.kernels._build import Build, BuildError, KernelReport
from kernelarc.genomes.kernels._code import code_hash, report_of
from kernelarc.genomes.kernels._kernel_route import KernelRoute
from kernelarc.genomes.kernels._limits import ARCHES, DeviceLimits, resource_fault
from kernelarc.genomes.kernels._plan import (
    SCALAR_TYPES,
    Argument,
    Clear,
    InputArgument,
    Launch,
    LaunchAttributes,
    LaunchPlan,
    LibraryProduct,
    ScalarArgument,
    Scratch,
    ScratchArgument,
    Step,
    TensorArgument,
    TensorMap,
    Zeroing,
)
from kernelarc.genomes.kernels._registry import kernel_routes

__all__ = [
    "ARCHES",
    "SCALAR_TYPES",
    "Argument",
    "Build",
    "BuildError",
    "Clear",
    "DeviceLimits",
    "InputArgument",
    "KernelReport",
    "KernelRoute",
    "Launch",
    "LaunchAttributes",
    "LaunchPlan",
    "LibraryProduct",
    "ScalarArgument",
    "Scratch",
    "ScratchArgument",
    "Step",
    "TensorArgument",
    "TensorMap",
    "Zeroing",
    "code_hash",
    "kernel_routes",
    "report_of",
    "resource_fault",
]
