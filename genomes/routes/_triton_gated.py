"""The route ``triton`` of a gated projection: both products in one pass over x."""

from __future__ import annotations

from typing import Any

from kernelarc.genomes._axes import axis_values
from kernelarc.genomes._constraints import ExpressionConstraint
from kernelarc.genomes._genes import Choice, PowerOfTwo
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Operator, Workload
from kernelarc.genomes._records import Proposal
from kernelarc.genomes._space import Space
from kernelarc.genomes._strategies import Strategy
from kernelarc.genomes.kernels import DeviceLimits, KernelRoute, TensorArgument
from kernelarc.genomes.routes._cuda_gemm import gated_tensors
from kernelarc.genomes.routes._cuda_route import started
from kernelarc.genomes.routes._signature import extent, matched
from kernelarc.genomes.triton import ROUTE, Pointer, TritonCall
from kernelarc.genomes.triton._packaged import PackagedTritonRoute

_MOST_ELEMENTS = 2**31 - 1
_TENSOR, _MEMORY, _SCHEDULING = Strategy.TENSOR_CORE, Strategy.MEMORY, Strategy.SCHEDULING
_STARTS = (
    {"block_m": 128, "block_n": 64, "block_k": 64, "num_warps": 8, "num_stages": 4, "group": 8},
    {"block_m": 64, "block_n": 64, "block_k": 64, "num_warps": 4, "num_stages": 4, "group": 8},
)


def triton_gated_route(operator: Operator) -> KernelRoute | None:
    """Return the route for a gated projection of 16-bit floats, or None."""
    found = matched(operator, ("float *T H", "float I H", "float I H"), ("float *T I",))
    if operator.op_type != "gated_projection" or found is None or gated_tensors(operator) is None:
        return None
    return TritonGated(operator)


class TritonGated(PackagedTritonRoute):
    """Gated projections by Triton."""

    module = "triton_gated"

    def _sizes(self, workload: Workload) -> tuple[int, int, int]:
        """Return rows, columns and depth."""
        found = matched(self.operator, ("float *T H", "float I H", "float I H"), ("float *T I",))
        assert found is not None
        axes = axis_values(self.operator, workload)
        return extent(found, "T", axes), extent(found, "I", axes), extent(found, "H", axes)

    def unsuited(self, workload: Workload) -> str | None:
        """Say that there are too many elements, or None."""
        m, n, k = self._sizes(workload)
        if max(m * k, n * k, m * n) > _MOST_ELEMENTS:
            return "route triton counts elements in 32 bits"
        return None

    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return tiles, pipeline, raster, persistence and caps."""
        m, _, k = self._sizes(workload)
        genes = (
            PowerOfTwo(name="block_m", low=16 if m < 128 else 64, high=256, strategy=_TENSOR),
            PowerOfTwo(name="block_n", low=32, high=256, strategy=_TENSOR),
            PowerOfTwo(name="block_k", low=32, high=128, strategy=_TENSOR),
            Choice(name="num_warps", options=(4, 8), strategy=_TENSOR),
            Choice(name="num_stages", options=(2, 3, 4, 5, 6), strategy=_MEMORY),
            Choice(name="evict", options=("", "evict_first", "evict_last"), strategy=_MEMORY),
            PowerOfTwo(name="group", low=1, high=32, strategy=_SCHEDULING),
            Choice(
                name="programs",
                options=(0, 1, 2),
                strategy=_SCHEDULING,
                description="Programs a multiprocessor that take tiles in turn; 0 is one a tile.",
            ),
            Choice(name="maxnreg", options=(0, 128, 168, 224), strategy=_SCHEDULING),
        )
        names = tuple(gene.name for gene in genes)
        texts = (
            f"num_stages * block_k * (block_m + 2 * block_n) * 2 <= {device.shared_bytes}",
            "block_m * block_n * 2 <= 6144 * num_warps",
            "block_m * block_n >= 128 * num_warps",
            "maxnreg == 0 or 2 * block_m * block_n // (num_warps * 32) + 40 <= maxnreg",
            f"block_k <= {max(32, k)}",
        )
        return Space(ROUTE, genes, tuple(ExpressionConstraint(text, names) for text in texts))

    def seeds(self, workload: Workload, device: DeviceLimits) -> tuple[Proposal, ...]:
        """Return middling tiles."""
        return started(self.space(workload, device), _STARTS)

    def calls(self, workload: Workload, genome: Genome, arch: str) -> list[TritonCall]:
        """Return the one launch."""
        tensors = gated_tensors(self.operator)
        assert tensors is not None
        m, n, k = self._sizes(workload)
        alleles: dict[str, Any] = dict(genome.items())
        tiles = -(-m // alleles["block_m"]) * -(-n // alleles["block_n"])
        programs = self.limits(arch).multiprocessors * alleles["programs"]
        programs = min(programs, tiles)
        names = dict(zip(("x", "gate", "up"), tensors[:3], strict=True))
        names["out"] = self.operator.outputs[0].name
        dtype = self.operator.outputs[0].dtype
        return [
            TritonCall(
                function=self.kernel("gated"),
                arguments={
                    **{role: Pointer(TensorArgument(name), dtype) for role, name in names.items()},
                    "M": m,
                    "N": n,
                    "K": k,
                },
                constants={
                    "BLOCK_M": alleles["block_m"],
                    "BLOCK_N": alleles["block_n"],
                    "BLOCK_K": alleles["block_k"],
                    "GROUP": alleles["group"],
                    "EVEN_M": m % alleles["block_m"] == 0,
                    "EVEN_N": n % alleles["block_n"] == 0,
                    "EVEN_K": k % alleles["block_k"] == 0,
                    "BEND": tensors[3],
                    "EVICT": alleles["evict"],
                    "PROGRAMS": programs,
                },
                grid=(programs or tiles, 1, 1),
                options={
                    "num_warps": alleles["num_warps"],
                    "num_stages": alleles["num_stages"],
                    "maxnreg": alleles["maxnreg"] or None,
                },
            )
        ]
