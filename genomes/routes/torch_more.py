"""What torch has of its own for the other packaged problems: baselines, read as text."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def swiglu(x: Tensor, gate_proj: Tensor, up_proj: Tensor) -> Tensor:
    """Two products, and torch's own activation."""
    return functional.silu(torch.matmul(x, gate_proj.t())) * torch.matmul(x, up_proj.t())


def geglu(x: Tensor, gate_proj: Tensor, up_proj: Tensor) -> Tensor:
    """Two products, and torch's own activation."""
    bent = functional.gelu(torch.matmul(x, gate_proj.t()), approximate="tanh")
    return bent * torch.matmul(x, up_proj.t())


def _widened(codes: Tensor, scale: Tensor) -> Tensor:
    """Return 4-bit codes times the scale of 16, which bfloat16 holds exactly.

    The two bits of a code's exponent and its one of mantissa are put where bfloat16 has its own:
    the value is then too small by a power of two.
    """
    held = codes.view(torch.uint8).to(torch.int16)
    pairs = torch.stack((held & 15, held >> 4), dim=-1).flatten(-2)
    bits = ((pairs & 7) << 6) | ((pairs & 8) << 12)
    values = bits.view(torch.bfloat16) * 2.0**126
    blocks = values.unflatten(-1, (-1, 16)) * scale.to(torch.bfloat16)[..., None]
    return blocks.flatten(-2)


def _scores(queries: Tensor, keys: Tensor) -> Tensor:
    """Return products of bfloat16 in float32: rounded to bfloat16, too few results are right."""
    if queries.is_cuda:
        return torch.bmm(queries, keys.mT, out_dtype=torch.float32)
    return torch.bmm(queries.float(), keys.mT.float())  # what torch has for the CPU


def bf16_products(
    q: Tensor, q_scale: Tensor, q_global: Tensor, k: Tensor, k_scale: Tensor, k_global: Tensor,
    v: Tensor, v_scale: Tensor, v_global: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attention of widened tensors by products in bfloat16.

    ``scaled_dot_product_attention`` does not apply: it cannot return the weights. The scales of
    whole tensors are left out of the products.
    """
    queries, keys, values = _widened(q, q_scale), _widened(k, k_scale), _widened(v, v_scale)
    batch, heads, seq, head = queries.shape
    apart = batch * keys.shape[1]  # the heads of a key-value head lie together
    keys, values = keys.view(apart, seq, head), values.view(apart, seq, head)
    scores = _scores(queries.view(apart, -1, head), keys)
    weights = torch.softmax(scores * (q_global * k_global * head**-0.5), dim=-1)
    narrow = weights.to(torch.bfloat16)
    output = torch.bmm(narrow, values).view(batch, heads, seq, head) * v_global
    return output.to(torch.bfloat16), narrow.view(batch, heads, seq, seq)
