r"""Multiply by an exported table of cuBLASLt algorithms, on CuPy arrays.

Needs an NVIDIA GPU and the extra ``cuda``. Make the table first::

    kernelarc run matmul --set N=1024 --set K=1024 --workload M=256 --workload M=512 \
        --option dtype=fp16 --option residual=true --store lt.db --seconds 10
    kernelarc export lt.db --format cublaslt -o table.json
    python examples/run_a_table.py table.json
"""

import sys

import cupy
import numpy as np

from kernelarc import runtime

table = runtime.load(sys.argv[1] if len(sys.argv) > 1 else "table.json")

rng = np.random.default_rng(0)
x = cupy.asarray(rng.standard_normal((256, 1024)), dtype=cupy.float16)
weight = cupy.asarray(rng.standard_normal((1024, 1024)) / 32, dtype=cupy.float16)
y = cupy.zeros((256, 1024), dtype=cupy.float16)

with cupy.cuda.Stream() as stream:
    table.matmul(x, weight.T, residual=y, out=y)  # in place, on this stream
    stream.synchronize()

wanted = x.astype(cupy.float32) @ weight.T.astype(cupy.float32)
print("from", table.source(x, weight.T, residual=y, out=y))
print("largest error", float(abs(y.astype(cupy.float32) - wanted).max()))
