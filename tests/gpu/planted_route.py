"""The route of the planted Triton kernels; importable without Triton and by compile processes."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from kernelarc.genomes import Boolean, Choice, Genome, Operator, Space, Workload, axis_values
from kernelarc.genomes.kernels import Build, DeviceLimits, KernelRoute, TensorArgument
from kernelarc.genomes.triton import Pointer, TritonCall, build_of, triton_identity

WAYS = (
    "good",
    "wrong with 8 warps",
    "input",
    "hang",
    "illegal",
    "outside",
    "half",
    "too much shared memory",
    "compiler aborts",
    "compiler hangs",
)
BLOCK, DEPTH = 64, 64


class PlantedKernels(KernelRoute):
    """A small bfloat16 product, right only where ``way`` is good."""

    name = "planted"

    def __init__(self, operator: Operator) -> None:
        self.operator = operator

    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return every way with 4 and 8 warps; ``idle`` changes nothing."""
        genes = [
            Choice(name="way", options=WAYS),
            Choice(name="num_warps", options=(4, 8)),
            Boolean(name="idle"),
        ]
        return Space(self.name, genes)

    def identity(self) -> Mapping[str, str]:
        """Return Triton's version."""
        return triton_identity()

    def build(self, workload: Workload, genome: Genome, arch: str) -> Build:
        """Compile the kernel, or fail as the genome says."""
        from tests.gpu.planted_kernels import planted

        way, warps = str(genome["way"]), int(genome["num_warps"])  # type: ignore[arg-type]
        if way == "compiler aborts":
            os.abort()
        if way == "compiler hangs":
            time.sleep(600)
        axes = axis_values(self.operator, workload)
        m, n, k = axes["M"], axes["N"], axes["K"]
        wide = way == "too much shared memory"
        block = 256 if wide else BLOCK
        call = TritonCall(
            function=planted,
            arguments={
                "a": Pointer(TensorArgument("a"), "bfloat16"),
                "b": Pointer(TensorArgument("weight"), "bfloat16"),
                "c": Pointer(TensorArgument("out"), "bfloat16"),
                "M": m,
                "N": n,
                "K": k,
            },
            constants={"WAY": way, "WARPS": warps, "BLOCK": block, "DEPTH": DEPTH},
            grid=(m // block, n // block, 1),
            options={"num_warps": warps, "num_stages": 7 if wide else 2},
        )
        return build_of([call], arch)
