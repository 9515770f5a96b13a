"""Which compiled routes come with the package."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from kernelarc.genomes._operators import Operator
from kernelarc.genomes.kernels._kernel_route import KernelRoute

_MAKERS: tuple[str, ...] = (
    "kernelarc.genomes.routes._triton_gemm:triton_gemm_route",
    "kernelarc.genomes.routes._triton_add_rmsnorm:triton_add_rmsnorm_route",
    "kernelarc.genomes.routes._triton_moe:triton_moe_route",
    "kernelarc.genomes.routes._triton_saved:triton_saved_route",
    "kernelarc.genomes.routes._triton_block:triton_block_route",
    "kernelarc.genomes.routes._triton_paged:triton_paged_route",
    "kernelarc.genomes.routes._triton_attention:triton_nvfp4_route",
    "kernelarc.genomes.routes._triton_gated:triton_gated_route",
    "kernelarc.genomes.routes._cuda_gemm:cuda_gemm_route",
    "kernelarc.genomes.routes._cuda_gemm:cuda_gated_route",
    "kernelarc.genomes.routes._cuda_moe:cuda_expert_route",
    "kernelarc.genomes.routes._cuda_saved:cuda_saved_route",
    "kernelarc.genomes.routes._cuda_layer:cuda_layer_route",
    "kernelarc.genomes.routes._cuda_block:cuda_block_route",
    "kernelarc.genomes.routes._cuda_add_rmsnorm:cuda_add_rmsnorm_route",
    "kernelarc.genomes.routes._cuda_gqa_paged:cuda_gqa_paged_route",
    "kernelarc.genomes.routes._cuda_nvfp4_gqa:cuda_nvfp4_gqa_route",
)
"""``module:function`` each; the function takes an operator and returns a route or None."""


def kernel_routes(operator: Operator) -> tuple[KernelRoute, ...]:
    """Return the packaged routes that can implement an operator, recognised by its structure."""
    found = []
    for place in _MAKERS:
        module, _, name = place.partition(":")
        make: Callable[[Operator], KernelRoute | None] = getattr(import_module(module), name)
        route = make(operator)
        if route is not None:
            found.append(route)
    return tuple(found)
