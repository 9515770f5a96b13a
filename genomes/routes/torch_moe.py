"""The experts' backward pass by cuBLAS's products: baselines, read as text."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

_grouped_mm = getattr(functional, "grouped_mm", None) or torch._grouped_mm
_LEAST = 8  # rows of an expert: none is empty, and each begins at a multiple


def products(
    grad: Tensor, x: Tensor, gate_proj: Tensor, up_proj: Tensor, down_proj: Tensor
) -> tuple[Tensor, ...]:
    """Nine products in the tensors' own type; what is between them by torch's own kernels."""
    wide, rows = x.shape, (-1, x.shape[-1])
    grad, x = grad.view(rows), x.view(rows)
    gate, up = torch.mm(x, gate_proj.t()), torch.mm(x, up_proj.t())
    silu, inner = functional.silu(gate), torch.mm(grad, down_proj)
    grad_up = inner * silu
    grad_gate = torch.ops.aten.silu_backward(inner * up, gate)
    return (
        torch.addmm(torch.mm(grad_gate, gate_proj), grad_up, up_proj).view(wide),
        torch.mm(grad_gate.t(), x),
        torch.mm(grad_up.t(), x),
        torch.mm(grad.t(), silu * up),
    )


def saved_products(
    grad: Tensor, x: Tensor, gate_proj: Tensor, up_proj: Tensor, down_proj: Tensor,
    gate: Tensor, sigmoid: Tensor, silu: Tensor, up: Tensor, inner: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Six products in the tensors' own type, from kept activations; what is between is rounded."""
    wide, rows, kept = x.shape, (-1, x.shape[-1]), (-1, up.shape[-1])
    grad, x = grad.view(rows), x.view(rows)
    gate, sigmoid, silu, up, inner = (t.view(kept) for t in (gate, sigmoid, silu, up, inner))
    grad_inner = torch.mm(grad, down_proj)
    grad_up = grad_inner * silu
    grad_gate = grad_inner * up * torch.addcmul(sigmoid, gate * sigmoid, 1 - sigmoid)
    return (
        torch.addmm(torch.mm(grad_gate, gate_proj), grad_up, up_proj).view(wide),
        torch.mm(grad_gate.t(), x),
        torch.mm(grad_up.t(), x),
        torch.mm(grad.t(), inner),
    )


def saved_pairs(
    grad: Tensor, x: Tensor, gate_proj: Tensor, up_proj: Tensor, down_proj: Tensor,
    gate: Tensor, sigmoid: Tensor, silu: Tensor, up: Tensor, inner: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Four products; the gradients of gate and up are sums of two roundings, side by side."""
    wide, rows, kept = x.shape, (-1, x.shape[-1]), (-1, up.shape[-1])
    grad, x = grad.view(rows), x.view(rows)
    gate, sigmoid, silu, up, inner = (t.view(kept) for t in (gate, sigmoid, silu, up, inner))
    grad_inner = torch.mm(grad, down_proj, out_dtype=torch.float32)
    gate, sigmoid = gate.float(), sigmoid.float()
    slope = torch.addcmul(sigmoid, gate * sigmoid, 1 - sigmoid)
    both = torch.cat([grad_inner * up * slope, grad_inner * silu], 1)
    rounded = both.to(x.dtype)
    pair = rounded, (both - rounded).to(x.dtype)
    weights = torch.cat([gate_proj, up_proj], 0)
    sums = torch.mm(torch.cat(pair, 0).t(), torch.cat([x, x], 0))
    return (
        torch.mm(torch.cat(pair, 1), torch.cat([weights, weights], 0)).view(wide),
        sums[: kept[1]],
        sums[kept[1] :],
        torch.mm(grad.t(), inner),
    )


def _scaled(
    gate: Tensor, up: Tensor, inner: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of gate and up, the hidden rows, and what the scale is worth."""
    silu = functional.silu(gate)
    hidden = silu * up
    worth = (inner.float() * hidden.float()).sum(-1)
    inner = inner * scale
    grad_gate = torch.ops.aten.silu_backward(inner * up, gate)
    return grad_gate, inner * silu, hidden * scale, worth


def grouped(
    grad: Tensor, x: Tensor, routing: Tensor, selected: Tensor, gate_proj: Tensor, up_proj: Tensor,
    down_proj: Tensor, shared_gate: Tensor, shared_up: Tensor, shared_down: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """All experts' products at once, over rows sorted by expert; nothing waits for the device."""
    experts, (tokens, top_k) = gate_proj.shape[0], selected.shape
    chosen, order = torch.sort(selected.flatten(), stable=True)
    each = torch.arange(experts, device=x.device, dtype=chosen.dtype)
    starts, ends = torch.searchsorted(chosen, each), torch.searchsorted(chosen, each, right=True)
    sizes = (ends - starts + (_LEAST - 1)).div(_LEAST, rounding_mode="floor").clamp(min=1) * _LEAST
    bounds = sizes.cumsum(0)
    place = (bounds - sizes - starts)[chosen] + torch.arange(tokens * top_k, device=x.device)
    rows = tokens * top_k + _LEAST * experts

    def packed(values: Tensor) -> Tensor:
        return values.new_zeros(rows, values.shape[1]).index_copy_(0, place, values)

    token, offs = order // top_k, bounds.to(torch.int32)
    x_rows, grad_rows = packed(x[token]), packed(grad[token])
    scale = packed(routing.flatten()[order][:, None].to(x.dtype))
    gate = _grouped_mm(x_rows, gate_proj.mT, offs=offs)
    up = _grouped_mm(x_rows, up_proj.mT, offs=offs)
    inner = _grouped_mm(grad_rows, down_proj, offs=offs)
    grad_gate, grad_up, hidden, worth = _scaled(gate, up, inner, scale)
    parts = _grouped_mm(grad_gate, gate_proj, offs=offs)
    parts = parts + _grouped_mm(grad_up, up_proj, offs=offs)
    back = torch.empty_like(place).index_copy_(0, order, place)  # where each choice's row lies
    grad_x, *grad_shared = products(grad, x, shared_gate, shared_up, shared_down)
    summed = parts[back].view(tokens, top_k, -1).sum(1, dtype=torch.float32)
    return (
        (summed + grad_x).to(x.dtype),
        worth[back].view(tokens, top_k).to(routing.dtype),
        _grouped_mm(grad_gate.t(), x_rows, offs=offs),
        _grouped_mm(grad_up.t(), x_rows, offs=offs),
        _grouped_mm(grad_rows.t(), hidden, offs=offs),
        *grad_shared,
    )
