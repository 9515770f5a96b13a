"""The eight strategies. A gene carries the one that owns it; an island proposes for one."""

from __future__ import annotations

from enum import StrEnum


class Strategy(StrEnum):
    """Who owns a gene: a bias of one island's proposals, not a wall (docs/vocabulary.md)."""

    LIBRARY = "library"
    TENSOR_CORE = "tensor_core"
    MEMORY = "memory"
    FUSION = "fusion"
    PRECISION = "precision"
    REDUCTION = "reduction"
    SCHEDULING = "scheduling"
    BLACKWELL = "blackwell"
