"""A user's Python file with Triton kernels, read in a process of its own.

- reading: read_kernel_file, KernelFile
- what stands in it: Kernel, Parameter
"""

from kernelarc.bench.kernelfile._reading import KernelFile, read_kernel_file
from kernelarc.bench.kernelfile._records import Kernel, Parameter

__all__ = ["Kernel", "KernelFile", "Parameter", "read_kernel_file"]
