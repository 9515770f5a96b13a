"""A user's CUDA source beside a problem: ``kernel.toml`` in the problem's folder.

- brings_kernel, own_cuda_route
"""

from kernelarc.bench.kernelfolder._reading import brings_kernel, own_cuda_route

__all__ = ["brings_kernel", "own_cuda_route"]
