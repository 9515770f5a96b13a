"""Paged attention's CUDA text on this machine's processor, against float64.

Every thread runs: page tables, packed heads, swizzles, masks, stages, shared keys, turns and
clusters are the kernel's own. What a GPU may finish late is finished late; the order is drawn.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.device import cuda_host

from kernelarc.genomes import Operator, Workload, packaged_problem
from kernelarc.genomes._alleles import Allele
from kernelarc.genomes.kernels import DeviceLimits
from kernelarc.genomes.routes._cuda_gqa_paged import CudaGqaPagedRoute

HOPPER = DeviceLimits.of_arch("sm_90a")
GROUP, KV_HEADS, HEAD = 8, 2, 128
BASE: dict[str, Allele] = {
    "products": "warpgroup", "consumers": 1, "tile_kv": 64, "stages": 2, "splits": 1,
    "join": "kernel", "overlap": True, "turns": False, "blocks": 1, "order": "longest",
    "heads": "first", "producer_registers": 56, "pdl": False,
}  # fmt: skip

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")


def rounded(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def widened(bits: NDArray[np.uint16]) -> NDArray[np.float64]:
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


class Job:
    """Sequences of some queries and keys over pages of some size, and what is right for them."""

    def __init__(self, queries: Sequence[int], pages: Sequence[int], page: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.page, in_use, held = page, sum(pages), sum(pages) + 7
        self.total = sum(queries)
        shape = (held, page, KV_HEADS, HEAD)
        self.tensors: dict[str, NDArray[Any]] = {
            "q": rounded(rng.standard_normal((self.total, GROUP * KV_HEADS, HEAD), np.float32)),
            "k_cache": rounded(rng.standard_normal(shape, np.float32)),
            "v_cache": rounded(rng.standard_normal(shape, np.float32)),
            "qo_indptr": np.cumsum([0, *queries], dtype=np.int32),
            "kv_indptr": np.cumsum([0, *pages], dtype=np.int32),
            "kv_indices": rng.permutation(held)[:in_use].astype(np.int32),
            "sm_scale": np.array(HEAD**-0.5, np.float32),
        }
        self.axes = {
            "total_q": self.total,
            "num_pages": held,
            "len_indptr": len(queries) + 1,
            "num_kv_indices": in_use,
        }
        self.outputs: dict[str, NDArray[Any]] = {
            "output": np.zeros((self.total, GROUP * KV_HEADS, HEAD), np.uint16),
            "lse": np.zeros((self.total, GROUP * KV_HEADS), np.float32),
        }

    def operator(self) -> Operator:
        whole = packaged_problem("gqa_paged_prefill").operator
        sizes = {
            "num_qo_heads": GROUP * KV_HEADS, "num_kv_heads": KV_HEADS, "head_dim": HEAD,
            "page_size": self.page,
        }  # fmt: skip
        axes = {n: replace(a, value=sizes.get(n, a.value)) for n, a in whole.axes.items()}
        return replace(whole, axes=axes)

    def expected(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        given = self.tensors
        out = np.zeros(self.outputs["output"].shape)
        lse = np.full(self.outputs["lse"].shape, -np.inf)
        q, keys, values = (widened(given[n]) for n in ("q", "k_cache", "v_cache"))
        for place in range(len(given["qo_indptr"]) - 1):
            begin, end = given["qo_indptr"][place : place + 2]
            slots = given["kv_indices"][slice(*given["kv_indptr"][place : place + 2])]
            own_keys = keys[slots].reshape(-1, KV_HEADS, HEAD)
            own_values = values[slots].reshape(-1, KV_HEADS, HEAD)
            ahead = len(own_keys) - (end - begin)
            for i in range(begin, end):
                seen = max(0, min(len(own_keys), i - begin + ahead + 1))
                for head in range(GROUP * KV_HEADS if seen else 0):
                    at = own_keys[:seen, head // GROUP] @ q[i, head] * float(given["sm_scale"])
                    weights = np.exp(at - at.max())
                    mixed = weights @ own_values[:seen, head // GROUP]
                    out[i, head] = mixed / weights.sum()
                    lse[i, head] = (at.max() + math.log(weights.sum())) / math.log(2)
        return out, lse


RAGGED = Job((5, 0, 19, 9, 1), (70, 30, 130, 4, 0), page=1, seed=3)
PAGED = Job((17, 3), (9, 2), page=16, seed=4)


def outcome(job: Job, folder: Path, planted: tuple[str, ...] = ("", ""), **genes: Allele) -> str:
    """Say what is wrong with a genome's run, ``""`` where nothing is; results are asserted.

    Args:
        job: What is computed.
        folder: Where to work.
        planted: Text of the kernel, and what stands in its place; once or more.
        genes: What differs from ``BASE``.
    """
    operator = job.operator()
    route = CudaGqaPagedRoute(operator)
    workload = Workload(operator=operator.fingerprint, axes=job.axes)
    genome = route.space(workload, HOPPER).genome({**BASE, **genes})
    ready = route.prepared(workload, genome, "sm_90a")
    source = ready.source
    for right, wrong in zip(planted[::2], planted[1::2], strict=True):
        assert right in source
        source = source.replace(right, wrong)
    program = cuda_host.built(replace(ready, source=source), folder)
    found, complaint = cuda_host.run(program, job.tensors, job.outputs, seed=1)
    if complaint:
        return complaint
    out, lse = job.expected()
    np.testing.assert_allclose(found["lse"], lse, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(widened(found["output"].astype(np.uint16)), out, atol=2e-2)
    return ""


@pytest.mark.parametrize(
    "genes",
    [
        {},
        {"overlap": False, "consumers": 2, "tile_kv": 32, "order": "given", "heads": "last"},
        {"consumers": 2, "turns": True},
        {"consumers": 3, "turns": True, "tile_kv": 32, "stages": 1},
        {"blocks": 2},
        {"splits": 4, "tile_kv": 32, "pdl": True},
        {"splits": 2, "join": "cluster"},
        {"splits": 8, "join": "cluster", "tile_kv": 32, "stages": 3},
        {"splits": 4, "join": "cluster", "consumers": 2, "turns": True, "stages": 3},
    ],
    ids=lambda genes: ",".join(f"{n}={a}" for n, a in genes.items()) or "plain",
)
def test_results_are_right(tmp_path: Path, genes: dict[str, Allele]) -> None:
    assert outcome(RAGGED, tmp_path, ("", ""), **genes) == ""


@pytest.mark.parametrize("join", ["kernel", "cluster"])
def test_pages_of_several_keys(tmp_path: Path, join: str) -> None:
    assert outcome(PAGED, tmp_path, splits=2, join=join) == ""


def test_a_turn_that_is_never_passed_is_a_deadlock(tmp_path: Path) -> None:
    planted = ("give_turn((consumer + 1) % CONSUMERS);", "")
    complaint = outcome(RAGGED, tmp_path, planted, consumers=2, turns=True)
    assert complaint.startswith("deadlock:") and "bar.sync" in complaint


@pytest.mark.parametrize(
    "planted",
    [
        ("(chunk % 8 ^ (row & 7))", "(chunk % 8)"),
        ("            keys_there();", "            // keys_there();"),
        ("if (key > limits[i / 2 % 2])", "if (key > limits[0])"),
    ],
    ids=["no swizzle", "no wait for keys", "one limit for two rows"],
)
def test_what_is_wrong_shows(tmp_path: Path, planted: tuple[str, str]) -> None:
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        outcome(RAGGED, tmp_path, planted)


def test_a_block_that_leaves_while_others_read_its_rows_is_seen(tmp_path: Path) -> None:
    both = "// a cluster's barrier counts all of its threads\n        cluster_sync();"
    planted = (
        "cluster_sync();                       // nobody leaves",
        "// nobody leaves",
        both,
        "",
    )
    genes: dict[str, Allele] = {"splits": 8, "join": "cluster", "tile_kv": 32, "stages": 3}
    complaint = outcome(RAGGED, tmp_path, planted, **genes)
    assert complaint.startswith("a block is reached into after it has left")
