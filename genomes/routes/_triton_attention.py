"""The route ``triton`` of attention over 4-bit floats."""

from __future__ import annotations

import math
from typing import Any

from kernelarc.genomes._axes import axis_values
from kernelarc.genomes._constraints import ExpressionConstraint
from kernelarc.genomes._genes import Boolean, Choice, PowerOfTwo
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Operator, TensorSpec, Workload
from kernelarc.genomes._records import Proposal
from kernelarc.genomes._space import Space
from kernelarc.genomes._strategies import Strategy
from kernelarc.genomes.kernels import DeviceLimits, KernelRoute, TensorArgument
from kernelarc.genomes.routes._cuda_nvfp4_gqa import Nvfp4Roles, nvfp4_roles
from kernelarc.genomes.routes._cuda_route import started
from kernelarc.genomes.triton import ROUTE, Pointer, TritonCall
from kernelarc.genomes.triton._packaged import PackagedTritonRoute

_TENSOR, _MEMORY, _SCHEDULING = Strategy.TENSOR_CORE, Strategy.MEMORY, Strategy.SCHEDULING
_PRECISION = Strategy.PRECISION
_LOG2_E = 1.4426950408889634
_HEADS = (32, 64, 128, 256)


def triton_nvfp4_route(operator: Operator) -> KernelRoute | None:
    """Return the route for attention over 4-bit floats, or None."""
    roles = nvfp4_roles(operator)
    return None if roles is None else TritonNvfp4(operator, roles)


class TritonAttention(PackagedTritonRoute):
    """What routes of attention share: tensors by name."""

    def _shape(self, name: str, workload: Workload) -> tuple[int, ...]:
        axes = axis_values(self.operator, workload)
        shape = self._spec(name).shape or ()
        return tuple(int(part) if part.isdigit() else axes[part] for part in shape)

    def _spec(self, name: str) -> TensorSpec:
        tensors = (*self.operator.inputs, *self.operator.outputs)
        return next(spec for spec in tensors if spec.name == name)

    def _pointer(self, name: str) -> Pointer:
        return Pointer(TensorArgument(name), self._spec(name).dtype)


class TritonNvfp4(TritonAttention):
    """Attention over 4-bit floats by Triton, its weights returned too."""

    module = "triton_nvfp4"

    def __init__(self, operator: Operator, roles: Nvfp4Roles) -> None:
        super().__init__(operator)
        self.roles = roles

    def unsuited(self, workload: Workload) -> str | None:
        """Say that the heads are of a size that no tile has, or None."""
        head = self._shape(self.roles.q.codes, workload)[-1] * 2
        if head not in _HEADS:
            return f"route triton takes heads of {', '.join(map(str, _HEADS))} features, not {head}"
        return None

    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return tiles, what codes are widened to, how scales are spread, and the order."""
        length = self._shape(self.roles.k.codes, workload)[2]
        most = min(256, 1 << (length - 1).bit_length()) if length > 1 else 16
        genes = (
            PowerOfTwo(name="block_m", low=16, high=128, strategy=_TENSOR),
            PowerOfTwo(name="block_n", low=16, high=max(most, 16), strategy=_TENSOR),
            Choice(name="num_warps", options=(4, 8), strategy=_TENSOR),
            Choice(name="num_stages", options=(1, 2, 3), strategy=_MEMORY),
            Choice(name="factor", options=("bfloat16", "float16"), strategy=_PRECISION),
            Boolean(name="repeat", strategy=_MEMORY, description="Spread each scale in registers."),
            Boolean(name="heads_first", strategy=_SCHEDULING),
            Choice(name="maxnreg", options=(0, 128, 168, 224), strategy=_SCHEDULING),
        )
        names = tuple(gene.name for gene in genes)
        texts = (
            "block_m * block_n <= 8192 * num_warps // 4",
            "block_m * block_n >= 32 * num_warps",
        )
        return Space(ROUTE, genes, tuple(ExpressionConstraint(text, names) for text in texts))

    def seeds(self, workload: Workload, device: DeviceLimits) -> tuple[Proposal, ...]:
        """Return tiles that hold all keys of short sequences, and small ones."""
        small: dict[str, Any] = {"block_m": 64, "num_stages": 1, "factor": "float16"}
        starts = (
            {**small, "block_n": 128, "num_warps": 4, "repeat": True},
            {**small, "block_n": 256, "num_warps": 8, "repeat": True},
            {**small, "block_m": 32, "block_n": 128, "num_warps": 4, "repeat": True},
        )
        return started(self.space(workload, device), starts)

    def calls(self, workload: Workload, genome: Genome, arch: str) -> list[TritonCall]:
        """Return the one launch."""
        from triton import language as tl  # noqa: PLC0415

        roles, alleles = self.roles, dict[str, Any](genome.items())
        batch, heads, length, half = self._shape(roles.q.codes, workload)
        kv_heads, keys = self._shape(roles.k.codes, workload)[1:3]
        rows = heads // kv_heads * length
        grid = [-(-rows // alleles["block_m"]), batch * kv_heads]
        if alleles["heads_first"]:
            grid.reverse()
        tensors = {}
        for name, parts in (("q", roles.q), ("k", roles.k), ("v", roles.v)):
            tensors[name] = self._pointer(parts.codes)
            tensors[f"{name}_scale"] = self._pointer(parts.scales)
            tensors[f"{name}_whole"] = self._pointer(parts.whole)
        return [
            TritonCall(
                function=self.kernel("nvfp4_gqa"),
                arguments={
                    **tensors,
                    "out": self._pointer(roles.out),
                    "weights": self._pointer(roles.weights),
                    "LENGTH": keys,
                    "ROWS": rows,
                    "kv_heads": kv_heads,
                },
                constants={
                    "HEAD": 2 * half,
                    "BLOCK_M": alleles["block_m"],
                    "BLOCK_N": alleles["block_n"],
                    "FACTOR": getattr(tl, alleles["factor"]),
                    "REPEAT": alleles["repeat"],
                    "ONE": keys <= alleles["block_n"],
                    "HEADS_FIRST": alleles["heads_first"],
                    "SCALE": _LOG2_E / math.sqrt(2 * half),
                },
                grid=(grid[0], grid[1], 1),
                options={
                    "num_warps": alleles["num_warps"],
                    "num_stages": alleles["num_stages"],
                    "maxnreg": alleles["maxnreg"] or None,
                },
            )
        ]
