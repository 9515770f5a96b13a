"""A decoder block as one writes it with torch's own kernels: a baseline, read as text."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


def sdpa(
    x: Tensor, cos: Tensor, sin: Tensor, norm_1: Tensor, wq: Tensor, wk: Tensor, wv: Tensor,
    norm_q: Tensor, norm_k: Tensor, wo: Tensor, norm_2: Tensor, gate: Tensor, up: Tensor,
    down: Tensor, eps: float,
) -> Tensor:  # fmt: skip
    """Fused norms, ``scaled_dot_product_attention`` for few key-value heads, sums in products."""
    batch, seq, hidden = x.shape
    head = norm_q.shape[0]
    flat = x.view(-1, hidden)
    normed = functional.rms_norm(flat, (hidden,), norm_1, eps)

    def heads(weight: Tensor) -> Tensor:
        return torch.mm(normed, weight.t()).view(batch, seq, -1, head)

    q = functional.rms_norm(heads(wq), (head,), norm_q, eps).transpose(1, 2)
    k = functional.rms_norm(heads(wk), (head,), norm_k, eps).transpose(1, 2)
    mixed = functional.scaled_dot_product_attention(
        _turned(q, cos, sin),
        _turned(k, cos, sin),
        heads(wv).transpose(1, 2),
        is_causal=True,
        enable_gqa=True,
    )
    mixed = mixed.transpose(1, 2).reshape(batch * seq, -1)
    middle = torch.addmm(flat, mixed, wo.t())
    normed = functional.rms_norm(middle, (hidden,), norm_2, eps)
    inner = functional.silu(torch.mm(normed, gate.t())) * torch.mm(normed, up.t())
    return torch.addmm(middle, inner, down.t()).view(batch, seq, hidden)
