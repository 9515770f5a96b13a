"""PyTorch's compiler finds the entries of an exported table, and can use them. Needs torch."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.test_export_triton import exported, genome

from kernelarc.genomes import MatmulForm, matmul_operator, matmul_problem

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
)
SIZE = {"M": 512, "N": 1024, "K": 256}
# Shapes and strides of the factors, as a program has them.
FACTORS = {
    "TN": (([512, 256], [256, 1]), ([256, 1024], [1, 256])),
    "NN": (([512, 256], [256, 1]), ([256, 1024], [1024, 1])),
    "NT": (([512, 256], [1, 512]), ([256, 1024], [1024, 1])),
}


@pytest.fixture
def inside_the_compiler() -> Iterator[Any]:
    """Let PyTorch's compiler think that it compiles something, and tries what there is."""
    import torch
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = GraphLowering(make_fx(lambda x: x + 1)(torch.zeros(1)))
    with V.set_graph_handler(graph), config.patch(max_autotune=True):
        yield graph


def choices_of(table: dict[str, Any]) -> Any:
    """Return the compiler's own look-up, told of a device that is not here."""
    from torch._inductor.lookup_table.choices import LookupTableChoices

    class Choices(LookupTableChoices):  # type: ignore[misc]
        def _get_lookup_table(self) -> dict[str, Any]:
            return table

        @staticmethod
        def _get_device_key(device: Any) -> str:
            return "NVIDIA H200"

    return Choices()


def product(*shapes: tuple[list[int], list[int]], scalars: dict[str, int] | None = None) -> Any:
    """Return a product's inputs as the compiler holds them."""
    import torch
    from torch._inductor import ir
    from torch._inductor.kernel_inputs import MMKernelInputs

    place = torch.device("cuda:0")
    layouts = [ir.FixedLayout(place, torch.bfloat16, size, stride) for size, stride in shapes]
    nodes = [ir.InputBuffer(name=f"in{i}", layout=each) for i, each in enumerate(layouts)]
    return MMKernelInputs([ir.TensorBox(ir.StorageBox(node)) for node in nodes], scalars=scalars)


@pytest.mark.usefixtures("inside_the_compiler")
@pytest.mark.parametrize(
    ("layout", "residual", "batch", "name"),
    [
        ("TN", False, 1, "mm"), ("NN", False, 1, "mm"), ("NT", False, 1, "mm"),
        ("TN", True, 1, "addmm"), ("TN", False, 3, "bmm"),
    ],
)  # fmt: skip
def test_the_compiler_takes_the_configuration(
    tmp_path: Path, layout: str, residual: bool, batch: int, name: str
) -> None:
    from torch._inductor.kernel.bmm import bmm_template
    from torch._inductor.kernel.mm import mm_template

    form = MatmulForm(layout=layout, residual=residual, batched=batch > 1)
    axes = {**SIZE, "B": batch} if batch > 1 else SIZE
    problem = matmul_problem(matmul_operator(form), [axes])
    best = genome({"BLOCK_SIZE_M": 128, "num_warps": 8})
    (path,) = exported(tmp_path / "table.json", problem, [best], "inductor")

    shapes = list(FACTORS[layout])
    if batch > 1:
        shapes = [([batch, *size], [size[0] * size[1], *stride]) for size, stride in shapes]
    if residual:
        shapes.insert(0, ([SIZE["M"], SIZE["N"]], [SIZE["N"], 1]))
    inputs = product(*shapes, scalars={"alpha": 1, "beta": 1} if residual else None)
    template = bmm_template if batch > 1 else mm_template
    choices = choices_of(json.loads(path.read_text()))
    found = choices.lookup_template_configs(inputs, name, [template.uid])
    assert list(found) == [template.uid]
    (entry,) = found[template.uid]
    assert (entry["BLOCK_M"], entry["BLOCK_N"], entry["num_warps"]) == (128, 128, 8)

    # Its own configurations say the same things: nothing lacks, nothing is said twice.
    own = next(choices.get_ktc(inputs, template, name))
    assert set(entry) == set(own.params.to_kwargs())
    assert not set(entry) & set(own.extra_kwargs)
    assert {key: type(value) for key, value in entry.items()} == {
        key: type(value) for key, value in own.params.to_kwargs().items()
    }
