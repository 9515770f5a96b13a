"""Attention over pages or ragged keys by torch's flash attention: baselines, read as text.

The keys of the pages in use are gathered first: torch's kernel takes no pages. Its causal mask ends
at the last key of the last query, as the job's does; its public function tells no sums, so what
stands below it is called.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def _told(output: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
    """Return sums of shape (heads, rows) as the job wants them: base 2, -inf where nothing is."""
    sums = sums.t() / math.log(2)
    return output, torch.where(sums == math.inf, -sums, sums).contiguous()


def _ragged(
    q: Tensor, k: Tensor, v: Tensor, q_at: Tensor, k_at: Tensor, most: tuple[int, int],
    scale: float, causal: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attend in all sequences at once; none is longer than ``most`` says.

    Told that none has more than one query, torch takes it that each has one.
    """
    most_q, most_k = most
    if q.shape[0] != q_at.shape[0] - 1:
        most_q = max(most_q, 2)
    output, sums, *_ = torch.ops.aten._flash_attention_forward(
        q, k, v, q_at, k_at, most_q, most_k, 0.0, causal, False, scale=scale
    )
    return _told(output, sums)


def _each(
    q: Tensor, k: Tensor, v: Tensor, q_at: Tensor, k_at: Tensor, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """Attend in one sequence after the other; of one alone the bounds are known without asking."""
    alone = q_at.shape[0] == 2
    queries = [0, q.shape[0]] if alone else q_at.tolist()
    keys = [0, k.shape[0]] if alone else k_at.tolist()
    output = torch.zeros_like(q)
    sums = q.new_full((q.shape[1], q.shape[0]), -math.inf, dtype=torch.float32)
    for begin, end, first, last in zip(queries, queries[1:], keys, keys[1:], strict=False):
        if begin == end or first == last:
            continue
        part, log_sums, *_ = torch.ops.aten._flash_attention_forward(
            q[None, begin:end], k[None, first:last], v[None, first:last], None, None,
            end - begin, last - first, 0.0, causal, False, scale=scale,
        )  # fmt: skip
        output[begin:end] = part[0]
        sums[:, begin:end] = log_sums[0, :, : end - begin]
    return _told(output, sums)


def _gathered(k_cache: Tensor, v_cache: Tensor, pages: Tensor) -> tuple[Tensor, Tensor]:
    k, v = (cache.index_select(0, pages).flatten(0, 1) for cache in (k_cache, v_cache))
    return k, v


def _longest(*starts: Tensor) -> tuple[int, int]:
    """Return the most rows of a sequence in each; waits for the device, once."""
    queries, keys = torch.stack([at.diff().max() for at in starts]).tolist()
    return queries, keys


def flash(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, qo_indptr: Tensor, kv_indptr: Tensor,
    kv_indices: Tensor, sm_scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """All sequences at once, the longest asked for."""
    k, v = _gathered(k_cache, v_cache, kv_indices)
    keys_at = kv_indptr * k_cache.shape[1]
    most = _longest(qo_indptr, keys_at)
    return _ragged(q, k, v, qo_indptr, keys_at, most, sm_scale, causal=True)


def flash_bound(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, qo_indptr: Tensor, kv_indptr: Tensor,
    kv_indices: Tensor, sm_scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """All sequences at once; none is longer than all together, so nothing waits for the device."""
    k, v = _gathered(k_cache, v_cache, kv_indices)
    keys_at, most = kv_indptr * k_cache.shape[1], (q.shape[0], k.shape[0])
    return _ragged(q, k, v, qo_indptr, keys_at, most, sm_scale, causal=True)


def flash_each(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, qo_indptr: Tensor, kv_indptr: Tensor,
    kv_indices: Tensor, sm_scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """One sequence after the other: torch may share out a sequence's keys."""
    k, v = _gathered(k_cache, v_cache, kv_indices)
    return _each(q, k, v, qo_indptr, kv_indptr * k_cache.shape[1], sm_scale, causal=True)


def _ones(q: Tensor) -> Tensor:
    return torch.arange(q.shape[0] + 1, dtype=torch.int32, device=q.device)


def decode_flash(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor,
    sm_scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As ``flash_bound``, of one query each: its mask would hide nothing."""
    k, v = _gathered(k_cache, v_cache, kv_indices)
    most = 1, k.shape[0]
    keys_at = kv_indptr * k_cache.shape[1]
    return _ragged(q, k, v, _ones(q), keys_at, most, sm_scale, causal=False)


def decode_each(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor,
    sm_scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As ``flash_each``, of one query each."""
    k, v = _gathered(k_cache, v_cache, kv_indices)
    return _each(q, k, v, _ones(q), kv_indptr * k_cache.shape[1], sm_scale, causal=False)


def decode_padded(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor,
    sm_scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Every sequence as long as the longest: two batched products by cuBLAS, and a softmax."""
    batch, heads, head = q.shape
    size, kv_heads = k_cache.shape[1:3]
    counts = kv_indptr.diff()
    longest = kv_indices.shape[0] if batch == 1 else int(counts.max())
    places = torch.arange(longest, device=q.device)
    held = places < counts[:, None]
    at = torch.where(held, kv_indptr[:-1, None] + places, 0)
    pages = kv_indices[at].flatten()
    k, v = (
        cache.index_select(0, pages).view(batch, longest * size, kv_heads, head).transpose(1, 2)
        for cache in (k_cache, v_cache)
    )
    grouped = q.view(batch, kv_heads, heads // kv_heads, head)
    scores = torch.matmul(grouped, k.transpose(-1, -2)).float() * sm_scale
    unseen = ~held.repeat_interleave(size, dim=1)[:, None, None, :]
    scores = scores.masked_fill(unseen, -math.inf)
    sums = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - sums.where(sums > -math.inf, 0.0)[..., None])
    mixed = torch.matmul(weights.to(v.dtype), v).reshape(batch, heads, head)
    return mixed, (sums / math.log(2)).reshape(batch, heads)


def ragged_flash(
    q: Tensor, k: Tensor, v: Tensor, qo_indptr: Tensor, kv_indptr: Tensor, sm_scale: float
) -> tuple[Tensor, Tensor]:
    """All sequences at once, the longest asked for."""
    most = _longest(qo_indptr, kv_indptr)
    return _ragged(q, k, v, qo_indptr, kv_indptr, most, sm_scale, causal=True)


def ragged_bound(
    q: Tensor, k: Tensor, v: Tensor, qo_indptr: Tensor, kv_indptr: Tensor, sm_scale: float
) -> tuple[Tensor, Tensor]:
    """All sequences at once; nothing waits for the device."""
    most = q.shape[0], k.shape[0]
    return _ragged(q, k, v, qo_indptr, kv_indptr, most, sm_scale, causal=True)


def ragged_each(
    q: Tensor, k: Tensor, v: Tensor, qo_indptr: Tensor, kv_indptr: Tensor, sm_scale: float
) -> tuple[Tensor, Tensor]:
    """One sequence after the other."""
    return _each(q, k, v, qo_indptr, kv_indptr, sm_scale, causal=True)
