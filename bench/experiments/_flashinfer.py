"""FlashInfer's own attention over pages as a peer, where it is installed.

Its kernels are planned for some starts and pages ahead of the call: ``prepare`` does that, and only
``run`` is timed, as FlashInfer's own benchmarks have it. Modules are compiled ahead for one dtype
and head (``data/aot`` of its package) or by its own just-in-time compiler, which needs nvcc.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any, Protocol

from kernelarc.genomes import Operator

_PREFILL = ("q", "k_cache", "v_cache", "qo_indptr", "kv_indptr", "kv_indices", "sm_scale")
_BACKENDS = ("fa3", "fa2")
_WORKSPACE_BYTES = 512 << 20


class Peer(Protocol):
    """Something that is prepared on a workload's inputs, then run on them."""

    def prepare(self, *inputs: Any) -> None:
        """Plan for these inputs."""

    def run(self, *inputs: Any) -> tuple[Any, Any]:
        """Return outputs and log sums."""


class FlashInfer:
    """One of FlashInfer's backends for causal prefill over pages.

    Args:
        backend: ``"fa2"`` or ``"fa3"``.
        torch: The module.
        workspace: Bytes on the device for its partial results.
    """

    def __init__(self, backend: str, torch: Any, workspace: Any) -> None:
        self._torch, self._backend, self._workspace = torch, backend, workspace
        self._planned: Any = None

    def prepare(self, *inputs: Any) -> None:
        """Plan for the starts and pages of these inputs."""
        q, k_cache, _, q_starts, kv_starts, pages, scale = inputs
        flashinfer = importlib.import_module("flashinfer")
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
            self._workspace, "NHD", backend=self._backend
        )
        page, kv_heads = k_cache.shape[1:3]
        in_last = (kv_starts.diff() > 0).to(self._torch.int32) * page
        wrapper.plan(
            q_starts,
            kv_starts,
            pages,
            in_last,
            q.shape[1],
            kv_heads,
            q.shape[2],
            page,
            causal=True,
            sm_scale=float(scale),
            q_data_type=q.dtype,
            kv_data_type=k_cache.dtype,
        )
        self._planned = wrapper

    def run(self, *inputs: Any) -> tuple[Any, Any]:
        """Return outputs and log sums of inputs with the starts and pages that were planned for."""
        q, k_cache, v_cache, *_ = inputs
        found: tuple[Any, Any] = self._planned.run(q, (k_cache, v_cache), return_lse=True)
        return found


def flashinfer_peers(operator: Operator, torch: Any) -> Mapping[str, Peer]:
    """Return FlashInfer's backends for an operator by name; none where it is not installed.

    Args:
        operator: Only causal prefill over pages, as the packaged problem has it, is served.
        torch: The module.
    """
    serves = tuple(spec.name for spec in operator.inputs) == _PREFILL
    if not serves or importlib.util.find_spec("flashinfer") is None:
        return {}
    workspace = torch.empty(_WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")
    return {f"flashinfer_{name}": FlashInfer(name, torch, workspace) for name in _BACKENDS}
