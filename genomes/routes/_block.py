"""What the routes of a decoder block share: its tensors, its sizes, its subtasks as operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernelarc.genomes._axes import axis_values
from kernelarc.genomes._operators import Operator, TensorSpec, Workload
from kernelarc.genomes._packaged import packaged_problem
from kernelarc.genomes.routes._signature import Binding, extent

BLOCK_INPUTS = (
    "float B S H", "float S D", "float S D", "float H", "float Q H", "float C H", "float C H",
    "float D", "float D", "float H Q", "float H", "float I H", "float I H", "float H I", "scalar",
)  # fmt: skip
BLOCK_ROLES = (
    "x", "cos", "sin", "norm_1", "wq", "wk", "wv", "norm_q", "norm_k", "wo", "norm_2",
    "gate", "up", "down", "eps",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSizes:
    """Sizes of one workload.

    Attributes:
        batch: Sequences.
        seq: Tokens of each.
        hidden: Features of a token.
        head: Features of a head.
        q: Features of all query heads.
        kv: Features of all key-value heads.
        wide: Features inside the feed-forward layer.
    """

    batch: int
    seq: int
    hidden: int
    head: int
    q: int
    kv: int
    wide: int

    @property
    def tokens(self) -> int:
        """Of all sequences."""
        return self.batch * self.seq


def block_sizes(operator: Operator, found: Binding, workload: Workload) -> BlockSizes:
    """Return the sizes of a workload of an operator whose axes were found by ``matched``."""
    axes = axis_values(operator, workload)
    b, s, h, d, q, c, i = (extent(found, letter, axes) for letter in "BSHDQCI")
    return BlockSizes(batch=b, seq=s, hidden=h, head=d, q=q, kv=c, wide=i)


def gated_operator(size: BlockSizes, dtype: str) -> Operator:
    """Return the block's gated projection as an operator; its free axes are batch and seq."""
    return _resized("swiglu", {"hidden": size.hidden, "intermediate": size.wide}, dtype)


def attention_operator(size: BlockSizes, dtype: str) -> Operator:
    """Return the block's attention as one over ragged keys; total_q, total_kv, len_indptr free."""
    heads = {"num_qo_heads": size.q // size.head, "num_kv_heads": size.kv // size.head}
    return _resized("gqa_ragged_prefill", {**heads, "head_dim": size.head}, dtype)


def _resized(name: str, sizes: Mapping[str, int], dtype: str) -> Operator:
    """Return a packaged operator with other constants, its 16-bit tensors of another type."""
    plain = packaged_problem(name).operator
    axes = {
        axis: replace(held, value=sizes[axis]) if axis in sizes else held
        for axis, held in plain.axes.items()
    }

    def typed(specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        return tuple(replace(s, dtype=dtype) if s.dtype == "bfloat16" else s for s in specs)

    return replace(plain, axes=axes, inputs=typed(plain.inputs), outputs=typed(plain.outputs))
