"""What cuBLASLt is told of every product in a block and an expert computes that product.

The worker's calls and a solution's are carried out as descriptors and layouts say
(``lt_emulated``); beside them stands the same product over row-major matrices.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.emulated import bits, numbers
from tests.unit.interpreted import small_operator
from tests.unit.lt_emulated import EmulatedLibrary, EmulatedLt
from tests.unit.test_library_parts import KINDS, left

from kernelarc.bench.kernels._library_steps import LibrarySteps
from kernelarc.bench.kernels._program import Addresses, _bound_product
from kernelarc.genomes import Problem
from kernelarc.genomes.kernels import LibraryProduct, kernel_routes
from kernelarc.genomes.routes._cuda_parts import PartedCudaRoute
from kernelarc.storage.exports._sol_cuda import LIBRARY, _product
from kernelarc.storage.exports._sol_library import packaged_source

Memory: TypeAlias = dict[str, NDArray[Any]]
Carried: TypeAlias = Callable[[LibraryProduct, Mapping[str, int]], None]
SIZES = {
    "decoder_block": {
        "batch": 1, "seq": 21, "hidden": 72, "query_heads": 2, "kv_heads": 1, "head": 64,
        "intermediate": 56,
    },
    "moe_swiglu_backward": {"tokens": 21, "hidden": 40, "intermediate": 24},
}  # fmt: skip


def products(name: str) -> list[LibraryProduct]:
    """Return all products of one job that leaves each to the library; no two axes are equal."""
    operator, workload = small_operator(name, SIZES[name], "bfloat16")
    problem = Problem(operator=operator, workloads=(workload,))
    (route,) = (r for r in kernel_routes(operator) if isinstance(r, PartedCudaRoute))
    found: list[LibraryProduct] = []
    for adds in (True, False) if name == "decoder_block" else (True,):
        more = {"product_adds": adds} if name == "decoder_block" else {}
        ready = route.prepared(workload, left(route, problem, KINDS[name], **more), "sm_90a")
        found += [step for step in ready.steps if isinstance(step, LibraryProduct)]
    assert len(found) == (14 if name == "decoder_block" else 8)
    return found


def drawn(step: LibraryProduct, rng: np.random.Generator) -> Memory:
    """Return the matrices that a product names, each at the start of 256 bytes."""
    sizes = {step.out.name: step.rows * step.columns}
    if step.added is not None:
        sizes[step.added.name] = step.rows * step.columns
    sizes |= {step.left.name: step.rows * step.depth, step.right.name: step.columns * step.depth}
    memory: Memory = {}
    for name, count in sizes.items():
        room = np.empty(count + 128, np.uint16)
        start = (-room.ctypes.data % 256) // 2
        memory[name] = room[start : start + count]
        memory[name][:] = bits(rng.standard_normal(count))
    return memory


def expected(step: LibraryProduct, memory: Memory) -> NDArray[Any]:
    """Return the result by row-major arithmetic, index by index."""
    one, two = numbers(memory[step.left.name]), numbers(memory[step.right.name])
    m, n, k = step.rows, step.columns, step.depth
    first = one.reshape(k, m) if step.left_across else one.reshape(m, k)
    second = two.reshape(k, n) if step.right_across else two.reshape(n, k)
    index = f"{'km' if step.left_across else 'mk'},{'kn' if step.right_across else 'nk'}->mn"
    sums = np.einsum(index, first, second)
    if step.added is not None:
        sums = sums + numbers(memory[step.added.name]).reshape(m, n)
    return bits(sums)


def by_worker() -> tuple[Carried, Any]:
    lt = EmulatedLt()
    steps = LibrarySteps(lt, 1)

    def carried(step: LibraryProduct, places: Mapping[str, int]) -> None:
        at = Addresses(tensors=places, scratch=places, scalars={}, maps=lambda content: 0)
        _bound_product(steps.ready(step), at, 3)()

    return carried, lt.made


def by_solution(monkeypatch: pytest.MonkeyPatch) -> tuple[Carried, Any]:
    module, library = ModuleType("library_products"), EmulatedLibrary()
    cuda = SimpleNamespace(current_blas_handle=lambda: 77, current_device=lambda: 0)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    exec(packaged_source(LIBRARY), module.__dict__)
    module.__dict__["library"] = lambda: library

    def carried(step: LibraryProduct, places: Mapping[str, int]) -> None:
        row = _product(step, None)
        assert all(offset == 0 for _, _, offset in row["arguments"])
        found = [places[name.removeprefix("scratch ")] for _, name, _ in row["arguments"]]
        module.bound(module.Form(*row["product"]), found[:4], found[4], 9)()

    return carried, library.made


@pytest.mark.parametrize("side", ["worker", "solution"])
@pytest.mark.parametrize("name", KINDS)
def test_the_library_is_told_what_a_product_is(
    name: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried, made = by_worker() if side == "worker" else by_solution(monkeypatch)
    rng = np.random.default_rng(5)
    for step in products(name):
        memory = drawn(step, rng)
        wanted = expected(step, memory)
        places = {n: array.ctypes.data for n, array in memory.items()}
        carried(step, {"library workspace": 0, **places})
        found = memory[step.out.name].reshape(step.rows, step.columns)
        assert np.array_equal(found, wanted), step
        third = step.out if step.added is None else step.added
        names = (step.right, step.left, third, step.out)
        assert made.multiplied[-1] == tuple(places[one.name] for one in names)
    assert len(made.multiplied) == len(products(name))


def test_all_forms_of_transposition_are_among_them() -> None:
    forms = {
        (step.left_across, step.right_across, _added(step))
        for name in KINDS
        for step in products(name)
    }
    assert forms == {
        (False, False, "nothing"), (False, False, "another"), (False, True, "nothing"),
        (False, True, "itself"), (True, True, "nothing"),
    }  # fmt: skip


def _added(step: LibraryProduct) -> str:
    if step.added is None:
        return "nothing"
    return "itself" if step.added == step.out else "another"
