"""A user's own source beside a problem: ``kernel.toml`` in the problem's folder.

- brings_kernel, own_route, own_cuda_route, triton_source
"""

from kernelarc.bench.kernelfolder._reading import brings_kernel, own_cuda_route, triton_source
from kernelarc.bench.kernelfolder._routes import own_route

__all__ = ["brings_kernel", "own_cuda_route", "own_route", "triton_source"]
