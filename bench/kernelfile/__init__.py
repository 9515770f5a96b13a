"""A user's Python file with Triton kernels, read in a process of its own.

- as a target: kernel_target, names_kernel_file, KernelTarget
- reading: read_kernel_file, KernelFile
- what stands in it: Kernel, Parameter
- where kernels are at hand: kernel_of, configuration, options_of
"""

from kernelarc.bench.kernelfile._inspect import configuration, kernel_of, options_of
from kernelarc.bench.kernelfile._reading import KernelFile, read_kernel_file
from kernelarc.bench.kernelfile._records import Kernel, Parameter
from kernelarc.bench.kernelfile._target import KernelTarget, kernel_target, names_kernel_file

__all__ = [
    "Kernel",
    "KernelFile",
    "KernelTarget",
    "Parameter",
    "configuration",
    "kernel_of",
    "kernel_target",
    "names_kernel_file",
    "options_of",
    "read_kernel_file",
]
