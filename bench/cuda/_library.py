"""One matrix product as cuBLASLt sees it: descriptors, legality, heuristics, launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelarc.bench.cuda._binding import (
    COMPUTE_32F,
    COMPUTE_32F_FAST_TF32,
    DATA_TYPES,
    Lt,
    attribute_types,
    setter,
    status_of,
)
from kernelarc.bench.cuda._capabilities import Facts, read_facts
from kernelarc.genomes import LT_ATTRIBUTES, Allele, LtRow, MatmulJob

REFUSED_WORKSPACE = 1000
"""Our own code beside the library's: more scratch memory than the genome allows."""

WORKSPACE_ALIGNMENT = 256
MOST_HEURISTICS = 200
_BLOB_WORDS = 8
_EPILOGUES = {"none": 1, "relu": 2, "gelu": 32}
_BIAS = 4
_DESC = {"trans_a": 3, "trans_b": 4, "epilogue": 7, "bias": 8, "a_scale": 17, "b_scale": 18}
_DESC_FAST_ACCUM, _DESC_BIAS_TYPE = 25, 26
_LAYOUT_BATCH, _LAYOUT_STRIDE = 5, 6
_PREF_MODE, _PREF_WORKSPACE = 0, 1
_LIMITED_BY_ALGO_ID = 1


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A row turned into the library's own form.

    Attributes:
        row: The attribute row.
        blob: The 64 bytes, shape (8,), uint64. Valid for one library version.
        workspace_bytes: What it needs.
        waves: How often the grid fills the device, as the library says.
    """

    row: LtRow
    blob: NDArray[np.uint64]
    workspace_bytes: int
    waves: float

    def properties(self) -> dict[str, Allele]:
        """Return what is recorded of it: enough to make it again without asking a library."""
        return {
            "attributes": tuple(self.row[: len(LT_ATTRIBUTES)]),
            "blob": self.blob.tobytes().hex(),
            "workspace_bytes": self.workspace_bytes,
            "waves": self.waves,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Addresses that belong to the description and not to a call; 0 where there is none."""

    bias: int = 0
    scale_a: int = 0
    scale_b: int = 0


class Matmul:
    """The descriptors of one job on one library handle.

    The library is column-major: it is given the transposed product, so the job's B is its first
    factor. Legality and heuristics run on the host and launch nothing.

    Args:
        lt: The binding.
        handle: The library's handle.
        job: What is computed.
        side: Bias and scale addresses.
    """

    def __init__(self, lt: Lt, handle: int, job: MatmulJob, side: Side) -> None:
        self.lt, self.handle, self.job = lt, handle, job
        factor, out = DATA_TYPES[job.dtype], DATA_TYPES[job.out_dtype]
        compute = COMPUTE_32F_FAST_TF32 if job.tf32 else COMPUTE_32F
        self._types = (compute, 0, factor, factor, out, out)
        self._desc = self._description(compute, side)
        self._first = self._layout(factor, job.n, job.k, job.transpose_b)
        self._second = self._layout(factor, job.k, job.m, job.transpose_a)
        self._out = self._layout(out, job.n, job.m, False)
        self._descriptors = (self._desc, self._first, self._second, self._out, self._out)
        self._kinds = attribute_types(lt)
        self._initial: dict[int, NDArray[np.uint64] | None] = {}
        self._blob = np.zeros(_BLOB_WORDS, dtype=np.uint64)
        self._blob_address = int(self._blob.ctypes.data)
        self._result = np.zeros(1, dtype=lt.matmul_heuristic_result_dtype)
        self._result_address = int(self._result.ctypes.data)
        self._state, self._needed = self._result["state"], self._result["workspace_size"]
        self._alphas = {s: np.array([s], dtype=np.float32) for s in (1.0, -1.0)}
        self._beta = np.array([1.0 if job.residual else 0.0], dtype=np.float32)

    def _description(self, compute: int, side: Side) -> int:
        job, put = self.job, self.lt.matmul_desc_set_attribute
        desc = int(self.lt.matmul_desc_create(compute, 0))
        setter(put, desc, _DESC["trans_a"], int(job.transpose_b), np.int32)
        setter(put, desc, _DESC["trans_b"], int(job.transpose_a), np.int32)
        epilogue = _EPILOGUES[job.activation]
        if job.bias:
            epilogue = _BIAS if job.activation == "none" else epilogue | _BIAS
            setter(put, desc, _DESC["bias"], side.bias, np.int64)
            setter(put, desc, _DESC_BIAS_TYPE, DATA_TYPES[job.out_dtype], np.int32)
        setter(put, desc, _DESC["epilogue"], epilogue, np.uint32)
        if job.scaled:
            setter(put, desc, _DESC["a_scale"], side.scale_b, np.int64)
            setter(put, desc, _DESC["b_scale"], side.scale_a, np.int64)
            setter(put, desc, _DESC_FAST_ACCUM, int(job.fast_accum), np.int8)
        return desc

    def _layout(self, kind: int, rows: int, columns: int, transposed: bool) -> int:
        """Describe op(X) of rows x columns, stored transposed or not, column-major, packed."""
        stored = (columns, rows) if transposed else (rows, columns)
        layout = int(self.lt.matrix_layout_create(kind, stored[0], stored[1], stored[0]))
        if self.job.batch > 1:
            put = self.lt.matrix_layout_set_attribute
            setter(put, layout, _LAYOUT_BATCH, self.job.batch, np.int32)
            setter(put, layout, _LAYOUT_STRIDE, rows * columns, np.int64)
        return layout

    def close(self) -> None:
        """Destroy the descriptors."""
        for layout in (self._first, self._second, self._out):
            self.lt.matrix_layout_destroy(layout)
        self.lt.matmul_desc_destroy(self._desc)

    # What the library offers

    def ids(self) -> tuple[int, ...]:
        """Return the ids of all algorithms for these types."""
        compute, scale, a, b, c, d = self._types
        found = self.lt.matmul_algo_get_ids(
            self.handle, compute, scale, a, b, c, d, MOST_HEURISTICS
        )
        return tuple(int(number) for number in found)

    def facts(self, algo: int) -> Facts | None:
        """Return an algorithm's capabilities, or None where it cannot be initialised."""
        blob = self._start(algo)
        return None if blob is None else read_facts(self.lt, algo, blob.ctypes.data)

    def _start(self, algo: int) -> NDArray[np.uint64] | None:
        if algo not in self._initial:
            blob = np.zeros(_BLOB_WORDS, dtype=np.uint64)
            try:
                self.lt.matmul_algo_init(self.handle, *self._types, algo, blob.ctypes.data)
                self._initial[algo] = blob
            except Exception:  # the library lists ids that this type or device does not have
                self._initial[algo] = None
        return self._initial[algo]

    # Legality

    def check(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ask the library about many rows.

        Args:
            rows: Attribute rows, shape (n, 11).

        Returns:
            Per row a status (0: legal) and the scratch bytes it needs (0 where illegal).
        """
        columns = [
            np.ascontiguousarray(rows[:, place].astype(kind))
            for place, kind in enumerate(self._kinds)
        ]
        starts = [(column.ctypes.data, column.itemsize) for column in columns]
        answers = [
            self._ask(algo, ceiling, starts, i)
            for i, (algo, ceiling) in enumerate(zip(*rows[:, (0, 9)].T.tolist(), strict=True))
        ]
        found = np.array(answers, dtype=np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    def _ask(
        self, algo: int, ceiling: int, starts: Sequence[tuple[int, int]], i: int
    ) -> tuple[int, int]:
        """Ask about row ``i`` of columns that start at these addresses."""
        start = self._start(algo)
        if start is None:
            return -1, 0
        self._blob[:] = start
        blob, result = self._blob_address, self._result_address
        put = self.lt.matmul_algo_config_set_attribute
        try:
            for place in range(1, len(starts)):
                address, size = starts[place]
                put(blob, place, address + i * size, size)
            self.lt.matmul_algo_check(self.handle, *self._descriptors, blob, result)
        except Exception as error:
            return status_of(error) or -1, 0
        state, needed = int(self._state[0]), int(self._needed[0])
        if state != 0:
            return state, 0
        return (REFUSED_WORKSPACE if needed > ceiling else 0), needed

    def algorithm(self, row: LtRow) -> Algorithm | None:
        """Return a row in the library's form, or None where it is illegal."""
        status, needed = self.check(np.array([row], dtype=np.int64))
        if status[0] != 0:
            return None
        waves = float(self._result[0]["waves_count"])
        return Algorithm(row, self._blob.copy(), int(needed[0]), waves)

    # Heuristics

    def heuristics(self, ceiling: int, algo: int | None = None) -> list[LtRow]:
        """Return what the library would run, best first, with duplicates left out.

        Args:
            ceiling: Scratch bytes it may use.
            algo: Limit the search to one algorithm.
        """
        lt = self.lt
        results = np.zeros(MOST_HEURISTICS, dtype=lt.matmul_heuristic_result_dtype)
        preference = lt.matmul_preference_create()
        put = lt.matmul_preference_set_attribute
        setter(put, preference, _PREF_WORKSPACE, ceiling, np.uint64)
        count = np.zeros(1, dtype=np.int32)
        try:
            if algo is not None:
                start = self._start(algo)
                if start is None:
                    return []
                setter(put, preference, _PREF_MODE, _LIMITED_BY_ALGO_ID, np.uint32)
                results["algo"]["data_"][:] = start
            lt.matmul_algo_get_heuristic(
                self.handle,
                *self._descriptors,
                preference,
                MOST_HEURISTICS,
                results.ctypes.data,
                count.ctypes.data,
            )
        except Exception:  # "not supported" is how the library says that it has none
            return []
        finally:
            lt.matmul_preference_destroy(preference)
        rows = [
            self._read(results, i, ceiling)
            for i in range(int(count[0]))
            if int(results["state"][i]) == 0
        ]
        return [row for row in dict.fromkeys(rows) if algo is None or row[0] == algo]

    def _read(self, results: NDArray[Any], i: int, ceiling: int) -> LtRow:
        blob = results.ctypes.data + i * results.itemsize
        written = np.zeros(1, dtype=np.uint64)
        values = []
        for place, kind in enumerate(self._kinds):
            held = np.zeros(1, dtype=kind)
            self.lt.matmul_algo_config_get_attribute(
                blob, place, held.ctypes.data, held.nbytes, written.ctypes.data
            )
            values.append(int(held[0]))
        return (*values, ceiling, int(self.job.in_place))

    # Launch

    def launch(
        self,
        algorithm: Algorithm,
        addresses: tuple[int, int, int, int],
        workspace: tuple[int, int],
        stream: int,
        alpha: float = 1.0,
    ) -> None:
        """Launch on a stream.

        Args:
            algorithm: From ``algorithm``.
            addresses: Of the job's A, B, residual (or output) and output.
            workspace: Address and bytes of scratch memory.
            stream: The CUDA stream.
            alpha: 1 or -1.
        """
        a, b, c, d = addresses
        self.lt.matmul(
            self.handle,
            self._desc,
            self._alphas[alpha].ctypes.data,
            b,
            self._first,
            a,
            self._second,
            self._beta.ctypes.data,
            c,
            self._out,
            d,
            self._out,
            algorithm.blob.ctypes.data,
            workspace[0],
            workspace[1],
            stream,
        )

    def launcher(
        self, algorithm: Algorithm, workspace_bytes: int
    ) -> Callable[[int, int, int, int, int, int], None]:
        """Return a function that launches with as little work as possible.

        It takes the addresses of A, B, residual (or output), output and scratch memory, and the
        stream. What it needs stays alive with it; ``close`` must not be called before.
        """
        product, handle, desc = self.lt.matmul, self.handle, self._desc
        first, second, out = self._first, self._second, self._out
        alpha, beta = int(self._alphas[1.0].ctypes.data), int(self._beta.ctypes.data)
        blob = int(algorithm.blob.ctypes.data)
        kept = (self, algorithm)

        def launch(  # noqa: PLR0917 - keywords cost time in every call
            a: int, b: int, c: int, d: int, scratch: int, stream: int, _kept: object = kept
        ) -> None:
            product(
                handle, desc, alpha, b, first, a, second, beta, c, out, d, out,
                blob, scratch, workspace_bytes, stream,
            )  # fmt: skip

        return launch

    def point(self, side: Side) -> None:
        """Put other addresses into the description: they hold for the launches that follow."""
        put = self.lt.matmul_desc_set_attribute
        if self.job.bias:
            setter(put, self._desc, _DESC["bias"], side.bias, np.int64)
        if self.job.scaled:
            setter(put, self._desc, _DESC["a_scale"], side.scale_b, np.int64)
            setter(put, self._desc, _DESC["b_scale"], side.scale_a, np.int64)
