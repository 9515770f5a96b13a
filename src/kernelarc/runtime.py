"""Run matrix products by a table that a campaign found: load it, then multiply.

::

    from kernelarc import runtime

    # kernelarc export STORE --format cublaslt -o table.json
    table = runtime.load("table.json")
    y = table.matmul(x, weight.T)                     # CuPy, torch, anything with DLPack
    table.matmul(x, weight.T, residual=y, out=y)      # y += x @ weight.T, in place

Nothing is copied, and the work goes to the stream that is current for CuPy or torch. What the table
does not name runs the library's own first heuristic, and so does everything, after one
``TableWarning``, where another version of cuBLASLt is loaded than the table was made with.
"""

from kernelarc.engine._runtime import Table, TableWarning, load

__all__ = ["Table", "TableWarning", "load"]
