"""What a user would run without us: NumPy, the best of several forms, on the same buffers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController, threadpool_info

from kernelarc.bench._reference import _by_name, reference_of
from kernelarc.bench.cpu._references import Arrays
from kernelarc.genomes import Operator, builtin_operators

Form: TypeAlias = "Callable[[Mapping[str, Any], Mapping[str, Any]], None]"
"""Reads inputs and writes outputs, both by name."""


def blas_text() -> str:
    """Return which BLAS NumPy uses, with which kernels, on how many threads."""
    beside = str(Path(np.__file__).parent)
    for library in threadpool_info():
        if library["user_api"] == "blas" and str(library["filepath"]).startswith(beside):
            kernels = library.get("architecture") or "unknown kernels"
            return f"{library['internal_api']} {kernels}, {library['num_threads']} threads"
    return "unknown BLAS"


@contextlib.contextmanager
def blas_on_one_thread() -> Iterator[None]:
    """Let NumPy's BLAS use one thread for a while."""
    with _blas_libraries().limit(limits=1):
        yield


@cache
def _blas_libraries() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


@dataclass(frozen=True, slots=True)
class BaselineForm:
    """One way to compute an operator with NumPy.

    Attributes:
        form: What is timed.
        around: Entered before the clock starts and left after it stops.
    """

    form: Form
    around: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext


def baseline_forms(operator: Operator) -> dict[str, BaselineForm]:
    """Return the forms of an operator's baseline by name."""
    return {**_on_all_threads(operator), **_on_one_thread(operator)}


def _on_one_thread(operator: Operator) -> dict[str, BaselineForm]:
    """Return what is faster where threads cost more than they bring: small shapes, a busy host."""
    how = blas_text()
    several = how.endswith(" threads") and not how.endswith(" 1 threads")
    if operator.fingerprint != builtin_operators()["gemm"].fingerprint or not several:
        return {}
    alone = f"{how.rpartition(',')[0]}, 1 thread"
    return {f"numpy.matmul ({alone})": BaselineForm(_matmul, blas_on_one_thread)}


def _on_all_threads(operator: Operator) -> dict[str, BaselineForm]:
    return {name: BaselineForm(form) for name, form in _plain_forms(operator).items()}


def _plain_forms(operator: Operator) -> dict[str, Form]:
    builtin = builtin_operators()
    if operator.fingerprint == builtin["gemm"].fingerprint:
        return _named({"numpy.matmul": _matmul, "numpy.dot": _dot}, blas_text())
    if operator.fingerprint == builtin["add_rmsnorm"].fingerprint:
        forms: dict[str, Form] = {
            "numpy expression": _norm_expression,
            "numpy in place, einsum": _norm_einsum,
            "numpy in place, square": _norm_square,
        }
        return _named(forms, "1 thread")
    return {"numpy reference": _reference_form(operator)}


def _named(forms: Mapping[str, Form], how: str) -> dict[str, Form]:
    return {f"{name} ({how})": form for name, form in forms.items()}


def _matmul(given: Mapping[str, Any], out: Mapping[str, Any]) -> None:
    np.matmul(given["a"], given["b"], out=out["c"])
    if "residual" in given:
        np.add(out["c"], given["residual"], out=out["c"])


def _dot(given: Mapping[str, Any], out: Mapping[str, Any]) -> None:
    np.dot(given["a"], given["b"], out=out["c"])
    if "residual" in given:
        np.add(out["c"], given["residual"], out=out["c"])


_EPSILON = np.float32(1e-6)


def _norm_expression(given: Mapping[str, Any], out: Mapping[str, Any]) -> None:
    summed = given["x"] + given["residual"]
    mean_square = np.mean(np.square(summed), axis=-1, keepdims=True)
    out["y"][...] = summed / np.sqrt(mean_square + _EPSILON) * given["norm_weight"]
    out["summed"][...] = summed


def _norm_einsum(given: Mapping[str, Any], out: Mapping[str, Any]) -> None:
    summed = np.add(given["x"], given["residual"], out=out["summed"])
    squares = np.einsum("ij,ij->i", summed, summed)
    _scale(summed, squares, given["norm_weight"], out["y"])


def _norm_square(given: Mapping[str, Any], out: Mapping[str, Any]) -> None:
    summed = np.add(given["x"], given["residual"], out=out["summed"])
    squares = np.square(summed, out=out["y"]).sum(axis=-1)
    _scale(summed, squares, given["norm_weight"], out["y"])


def _scale(
    summed: NDArray[Any], squares: NDArray[Any], weight: NDArray[Any], y: NDArray[Any]
) -> None:
    inverse = 1 / np.sqrt(squares / np.float32(summed.shape[1]) + _EPSILON)
    np.multiply(summed, inverse[:, None], out=y)
    np.multiply(y, weight, out=y)


def _reference_form(operator: Operator) -> Form:
    """The operator's own reference, on the tensors' own types."""
    run = reference_of(operator)

    def form(given: Arrays, out: Arrays) -> None:
        answer = run(*(given.get(spec.name) for spec in operator.inputs))
        for name, part in _by_name(operator, answer).items():
            np.copyto(out[name], part, casting="unsafe")

    return form
