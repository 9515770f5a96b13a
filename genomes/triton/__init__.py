"""From a Triton kernel and what it is called with to a launch of a plan, without a GPU.

Importing this package does not import Triton; what compiles, and what looks into kernel objects,
does so when called, in compiling and reading processes.

- a call: TritonCall, Pointer, Descriptor, OPTIONS
- compiling it: build_of, compile_call, Compiled, triton_identity, triton_missing
- a user's kernel file: TritonKernel, TritonFileRoute, TabledConstraint, content_of
- looking into one: imported, declarations_of, jitted, layers, tuner_of, traced, launch_values,
  StandIn, view_at, call_of, written_parameters
- running one's launch for real: first_results, made_inputs, own_reference, own_inputs
"""

from kernelarc.genomes.triton._call import OPTIONS, TRITON_TYPES, Descriptor, Pointer, TritonCall
from kernelarc.genomes.triton._compile import (
    Compiled,
    build_of,
    compile_call,
    triton_identity,
    triton_missing,
)
from kernelarc.genomes.triton._declaration import TritonKernel
from kernelarc.genomes.triton._file_route import (
    ROUTE,
    TritonFileRoute,
    content_of,
    device_constraints,
    launch_values,
)
from kernelarc.genomes.triton._kept import FOLDER_VARIABLE
from kernelarc.genomes.triton._layers import jitted, layers, tuner_of
from kernelarc.genomes.triton._module import MODULE, declarations_of, imported
from kernelarc.genomes.triton._rehearsal import rehearsal
from kernelarc.genomes.triton._running import (
    first_results,
    made_inputs,
    own_inputs,
    own_reference,
)
from kernelarc.genomes.triton._tabled import TabledConstraint
from kernelarc.genomes.triton._tracing import StandIn, call_of, element_bytes, traced, view_at
from kernelarc.genomes.triton._written import written_parameters

__all__ = [
    "FOLDER_VARIABLE",
    "MODULE",
    "OPTIONS",
    "ROUTE",
    "TRITON_TYPES",
    "Compiled",
    "Descriptor",
    "Pointer",
    "StandIn",
    "TabledConstraint",
    "TritonCall",
    "TritonFileRoute",
    "TritonKernel",
    "build_of",
    "call_of",
    "compile_call",
    "content_of",
    "declarations_of",
    "device_constraints",
    "element_bytes",
    "first_results",
    "imported",
    "jitted",
    "launch_values",
    "layers",
    "made_inputs",
    "own_inputs",
    "own_reference",
    "rehearsal",
    "traced",
    "triton_identity",
    "triton_missing",
    "tuner_of",
    "view_at",
    "written_parameters",
]
