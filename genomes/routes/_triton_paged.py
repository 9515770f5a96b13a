"""The route ``triton`` of causal attention over a cache: paged or ragged, prefill or decoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelarc.genomes._constraints import ExpressionConstraint
from kernelarc.genomes._genes import Boolean, Choice, PowerOfTwo
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Operator, Workload
from kernelarc.genomes._records import Proposal
from kernelarc.genomes._space import Space
from kernelarc.genomes._strategies import Strategy
from kernelarc.genomes.kernels import (
    DeviceLimits,
    InputArgument,
    KernelRoute,
    Scratch,
    ScratchArgument,
)
from kernelarc.genomes.routes._cuda_gqa_paged import PagedRoles, paged_roles
from kernelarc.genomes.routes._cuda_route import started
from kernelarc.genomes.routes._triton_attention import TritonAttention
from kernelarc.genomes.triton import ROUTE, Pointer, TritonCall

_TENSOR, _MEMORY, _SCHEDULING = Strategy.TENSOR_CORE, Strategy.MEMORY, Strategy.SCHEDULING
_FUSION, _REDUCTION = Strategy.FUSION, Strategy.REDUCTION
_HEADS = (32, 64, 128, 256)
_MOST_SEQUENCES = 4096
_MOST_SCRATCH_BYTES = 256 << 20
_JOINED = 4  # queries of a head that a program of the second kernel joins


def triton_paged_route(operator: Operator) -> KernelRoute | None:
    """Return the route for causal attention over a paged or ragged cache, or None."""
    roles = paged_roles(operator)
    return None if roles is None else TritonPaged(operator, roles)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Sizes of one workload."""

    total_q: int
    heads: int
    kv_heads: int
    head: int
    page: int
    sequences: int
    decoding: bool

    @property
    def group(self) -> int:
        """Query heads to a key-value head."""
        return self.heads // self.kv_heads

    @property
    def lines(self) -> int:
        """Queries of all heads."""
        return self.total_q * self.heads

    @property
    def part_bytes(self) -> int:
        """Bytes that one part of the keys leaves for the second kernel."""
        return 4 * self.lines * (self.head + 1)

    def tiles(self, rows: int) -> int:
        """Return the most tiles of rows that the sequences can come to."""
        if self.decoding:
            return self.sequences * -(-self.group // rows)
        # A sequence's last tile may be almost empty: so many are enough, however they split.
        whole = -(-self.total_q * self.group // rows) + self.sequences
        return min(whole, max(self.total_q, 1) * self.group)


class TritonPaged(TritonAttention):
    """Causal attention over a cache by Triton.

    Args:
        operator: What it implements.
        roles: Which tensor does what.
    """

    module = "triton_paged"

    def __init__(self, operator: Operator, roles: PagedRoles) -> None:
        super().__init__(operator)
        self.roles = roles

    def unsuited(self, workload: Workload) -> str | None:
        """Say which size no tile has, or None."""
        size = self._sizes(workload)
        if size.head not in _HEADS:
            heads = ", ".join(map(str, _HEADS))
            return f"route triton takes heads of {heads} features, not {size.head}"
        if size.heads % size.kv_heads:
            return f"{size.heads} query heads do not share {size.kv_heads} key-value heads evenly"
        if not size.decoding and size.sequences > _MOST_SEQUENCES:
            return f"route triton takes at most {_MOST_SEQUENCES} sequences"
        return None

    def _sizes(self, workload: Workload) -> _Sizes:
        total, heads, head = self._shape(self.roles.q, workload)
        *pages, kv_heads, _ = self._shape(self.roles.k_cache, workload)
        return _Sizes(
            total_q=total,
            heads=heads,
            kv_heads=kv_heads,
            head=head,
            page=pages[1] if len(pages) == 2 else 1,
            sequences=self._shape(self.roles.kv_starts, workload)[0] - 1,
            decoding=self.roles.q_starts is None,
        )

    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return tiles, pipeline, how keys are shared out, order of tiles and cache hints."""
        size = self._sizes(workload)
        rows = size.group if size.decoding else size.total_q * size.group
        most_m = min(128, max(16, 1 << (rows - 1).bit_length()))
        most_n = 256 if most_m == 16 else 128
        splits = [n for n in (2, 4, 8, 16, 32, 64) if n * size.part_bytes <= _MOST_SCRATCH_BYTES]
        genes = (
            PowerOfTwo(name="block_m", low=16, high=most_m, strategy=_TENSOR),
            PowerOfTwo(name="block_n", low=16, high=most_n, strategy=_TENSOR),
            Choice(name="num_warps", options=(1, 2, 4, 8), strategy=_TENSOR),
            Choice(name="num_stages", options=(1, 2, 3, 4, 5), strategy=_MEMORY),
            Choice(name="evict", options=("", "evict_first", "evict_last"), strategy=_MEMORY),
            Choice(
                name="splits",
                options=(1, *splits),
                strategy=_REDUCTION,
                description="Programs that share out the keys of a tile; a second kernel joins.",
            ),
            Boolean(name="parted", strategy=_FUSION, description="Keys that all see first."),
            Boolean(name="heads_first", strategy=_SCHEDULING),
            Boolean(name="longest_first", strategy=_SCHEDULING),
            Choice(name="maxnreg", options=(0, 128, 168, 224), strategy=_SCHEDULING),
        )
        names = tuple(gene.name for gene in genes)
        texts = (
            f"(block_m + 2 * num_stages * block_n) * {2 * size.head} <= {device.shared_bytes}",
            "block_m * block_n <= 2048 * num_warps",
            f"block_m * {size.head} <= 4096 * num_warps",
            "block_m * block_n >= 32 * num_warps",
            "block_m >= 64 or num_warps <= 4",
        )
        return Space(ROUTE, genes, tuple(ExpressionConstraint(text, names) for text in texts))

    def seeds(self, workload: Workload, device: DeviceLimits) -> tuple[Proposal, ...]:
        """Return tiles for many queries and for few, whose keys are shared out."""
        few = {"block_m": 16, "block_n": 64, "num_warps": 4, "num_stages": 3, "parted": True}
        starts: tuple[dict[str, Any], ...] = (
            {"block_m": 128, "block_n": 64, "num_warps": 8, "num_stages": 2, "parted": True},
            few,
            {**few, "splits": 8},
            {**few, "splits": 32, "num_warps": 2, "block_n": 32, "num_stages": 5},
        )
        return started(self.space(workload, device), starts)

    def calls(self, workload: Workload, genome: Genome, arch: str) -> list[TritonCall]:
        """Return attention, and the joining kernel where programs share out the keys."""
        size, alleles = self._sizes(workload), dict[str, Any](genome.items())
        results = (self._pointer(self.roles.out), self._pointer(self.roles.lse))
        if alleles["splits"] == 1:
            return [self._attention(size, alleles, results)]
        parts = tuple(Pointer(ScratchArgument(name), "float32") for name in ("parts", "part_sums"))
        planes = alleles["splits"] * size.lines * 4
        held = (
            Scratch(name="parts", nbytes=planes * size.head),
            Scratch(name="part_sums", nbytes=planes),
        )
        join = TritonCall(
            function=self.kernel("gqa_joined"),
            arguments={
                **dict(zip(("parts", "part_sums", "out", "lse"), (*parts, *results), strict=True)),
                "lines": size.lines,
            },
            constants={"SPLITS": alleles["splits"], "HEAD": size.head, "BLOCK": _JOINED},
            grid=(-(-size.lines // _JOINED), 1, 1),
            options={"num_warps": 4},
        )
        return [self._attention(size, alleles, parts, held), join]

    def _attention(
        self,
        size: _Sizes,
        alleles: dict[str, Any],
        results: tuple[Pointer, ...],
        scratch: tuple[Scratch, ...] = (),
    ) -> TritonCall:
        roles = self.roles
        tiles = size.tiles(alleles["block_m"])
        grid = [size.kv_heads, tiles] if alleles["heads_first"] else [tiles, size.kv_heads]
        names = {
            "q": roles.q,
            "k_cache": roles.k_cache,
            "v_cache": roles.v_cache,
            "q_starts": roles.q_starts,
            "kv_starts": roles.kv_starts,
            "kv_pages": roles.kv_pages,
            "last_pages": roles.last_pages,
        }
        return TritonCall(
            function=self.kernel("gqa_paged"),
            arguments={
                **{r: None if name is None else self._pointer(name) for r, name in names.items()},
                "scale": InputArgument(roles.scale, "f32"),
                "out": results[0],
                "lse": results[1],
                "lines": size.lines,
            },
            constants={
                "SEQUENCES": size.sequences,
                "WIDTH": 1 << max(size.sequences - 1, 1).bit_length(),
                "HEADS": size.group,
                "KV_HEADS": size.kv_heads,
                "HEAD": size.head,
                "PAGE": size.page,
                "BLOCK_M": alleles["block_m"],
                "BLOCK_N": alleles["block_n"],
                "DECODING": size.decoding,
                "RAGGED": roles.kv_pages is None,
                "HAS_LAST_PAGE": roles.last_pages is not None,
                "SPLITS": alleles["splits"],
                "PARTED": alleles["parted"],
                "HEADS_FIRST": alleles["heads_first"],
                "LONGEST_FIRST": alleles["longest_first"],
                "EVICT": alleles["evict"],
            },
            grid=(grid[0], grid[1], alleles["splits"]),
            options={
                "num_warps": alleles["num_warps"],
                "num_stages": alleles["num_stages"],
                "maxnreg": alleles["maxnreg"] or None,
            },
            scratch=scratch,
        )
