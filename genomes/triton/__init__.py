"""From a Triton kernel and what it is called with to a launch of a plan, without a GPU.

Importing this package does not import Triton; only ``compile_call`` does, and it runs in compile
processes.

- a call: TritonCall, Pointer, Descriptor, OPTIONS
- compiling it: build_of, compile_call, Compiled, triton_identity, triton_missing
"""

from kernelarc.genomes.triton._call import OPTIONS, TRITON_TYPES, Descriptor, Pointer, TritonCall
from kernelarc.genomes.triton._compile import (
    Compiled,
    build_of,
    compile_call,
    triton_identity,
    triton_missing,
)

__all__ = [
    "OPTIONS",
    "TRITON_TYPES",
    "Compiled",
    "Descriptor",
    "Pointer",
    "TritonCall",
    "build_of",
    "compile_call",
    "triton_identity",
    "triton_missing",
]
