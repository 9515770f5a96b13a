"""A build that nobody asked for, so that the first one that somebody waits for is as fast as any.

Triton imports, registers and looks up most of what it needs when it first compiles.
"""

from __future__ import annotations

import os

from kernelarc.genomes.kernels import TensorArgument
from kernelarc.genomes.triton._call import Pointer, TritonCall
from kernelarc.genomes.triton._compile import compile_call
from kernelarc.genomes.triton._kept import FOLDER_VARIABLE

_ARCH = "sm_90a"


def rehearsal() -> None:
    """Compile a small product, and keep nothing of it.

    Raises:
        BuildError: It does not compile.
        ImportError: Triton is not installed.
    """
    from kernelarc.genomes.triton._rehearsed import rehearsed  # noqa: PLC0415

    call = TritonCall(
        function=rehearsed,
        arguments={**{name: Pointer(TensorArgument(name), "bfloat16") for name in "abc"}, "K": 512},
        constants={"BLOCK": 64},
        grid=(1, 1, 1),
        options={"num_warps": 4, "num_stages": 3},
    )
    folder = os.environ.pop(FOLDER_VARIABLE, None)
    try:
        compile_call(call, _ARCH)
    finally:
        if folder is not None:
            os.environ[FOLDER_VARIABLE] = folder
