"""Writes spaces that nobody tuned a search on: run by hand.

    python -m kernelarc.bench.experiments.generated_spaces FOLDER [--count N] [--seed S]

Each is a Kernel Tuner cache of a made-up kernel. Its time is a product of effects: every gene has a
preferred place, pairs of genes interact, one product of genes has a cliff where something no longer
fits, some genes only count while a switch is on, and each genome has a small share of its own that
nothing explains. Another product fails above a limit, and a few genomes fail for no reason.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

_LEGAL = (3_000, 20_000)
_KINDS: Mapping[str, Sequence[Sequence[int]]] = {
    "powers": ([1, 2, 4, 8, 16, 32], [16, 32, 64, 128, 256], [1, 2, 4, 8], [8, 16, 32, 64]),
    "steps": (list(range(1, 9)), list(range(32, 257, 16)), list(range(1, 13)), [0, 1, 2, 3, 4]),
    "switch": ([0, 1],),
    "variants": ([0, 1, 2], [0, 1, 2, 3]),
}


@dataclass(frozen=True, slots=True)
class MadeUpKernel:
    """One kernel's genes and what decides its time.

    Attributes:
        domains: By gene.
        legal: Restriction on a product of two genes, as text.
        mains: Log-time of each gene's alleles, by gene.
        pairs: Log-time of pairs of alleles, by pair of genes.
        cliff: Two genes and the product above which the time is a multiple.
        failing: Two genes and the product above which nothing runs.
        switched: A gene that only counts while a switch is on.
    """

    domains: Mapping[str, Sequence[int]]
    legal: str
    mains: Mapping[str, np.ndarray[Any, Any]]
    pairs: Mapping[tuple[str, str], np.ndarray[Any, Any]]
    cliff: tuple[str, str, int, float]
    failing: tuple[str, str, int]
    switched: tuple[str, str]

    def time_ms(self, genome: Mapping[str, int], salt: str) -> float | None:
        """Return a genome's time, None where it fails."""
        own = blake2b(f"{salt}{sorted(genome.items())}".encode(), digest_size=8).digest()
        chance = int.from_bytes(own, "big") / 2**64
        first, second, limit = self.failing
        if genome[first] * genome[second] > limit or chance < 0.01:
            return None
        place = {name: list(self.domains[name]).index(value) for name, value in genome.items()}
        log = 0.03 * chance
        gene, switch = self.switched
        for name, effect in self.mains.items():
            log += effect[place[name]] if name != gene or genome[switch] else 0.0
        for (one, other), effect in self.pairs.items():
            log += effect[place[one], place[other]]
        first, second, limit, factor = self.cliff
        if genome[first] * genome[second] > limit:
            log += math.log(factor)
        return 1.5 * math.exp(log)


def make_kernel(rng: np.random.Generator) -> MadeUpKernel:
    """Draw a kernel whose space is of a size that can be listed."""
    while True:
        kinds = ["powers", "powers", "powers", "steps", "steps", "switch"]
        kinds += [str(kind) for kind in rng.choice(list(_KINDS), size=int(rng.integers(1, 4)))]
        rng.shuffle(kinds)
        domains = {
            f"p{i}": _KINDS[kind][int(rng.integers(len(_KINDS[kind])))]
            for i, kind in enumerate(kinds)
        }
        wide = [name for name, values in domains.items() if len(values) >= 4]
        if not _LEGAL[0] <= math.prod(map(len, domains.values())) <= 3 * _LEGAL[1]:
            continue
        return _with_effects(rng, domains, wide)


def _with_effects(
    rng: np.random.Generator, domains: Mapping[str, Sequence[int]], wide: Sequence[str]
) -> MadeUpKernel:
    def two() -> tuple[str, str]:
        one, other = rng.choice(wide, size=2, replace=False)
        return str(one), str(other)

    def limit(pair: tuple[str, str], quantile: float) -> int:
        products = [a * b for a in domains[pair[0]] for b in domains[pair[1]]]
        return int(np.quantile(products, quantile))

    legal, cliff, failing = two(), two(), two()
    pairs = {tuple(sorted(two())) for _ in range(3)}
    switches = [name for name, values in domains.items() if len(values) == 2]
    return MadeUpKernel(
        domains=domains,
        legal=f"{legal[0]} * {legal[1]} <= {limit(legal, 0.8)}",
        mains={name: _bowl(rng, len(values)) for name, values in domains.items()},
        pairs={
            (one, other): 0.25
            * np.outer(rng.normal(size=len(domains[one])), rng.normal(size=len(domains[other])))
            for one, other in sorted(pairs)
        },
        cliff=(*cliff, limit(cliff, 0.7), float(rng.uniform(1.5, 4.0))),
        failing=(*failing, limit(failing, 0.9)),
        switched=(str(rng.choice(wide)), str(rng.choice(switches))),
    )


def _bowl(rng: np.random.Generator, alleles: int) -> np.ndarray[Any, Any]:
    """Return log-times with one preferred place, uneven to its sides, and a little roughness."""
    places, best = np.arange(alleles), int(rng.integers(alleles))
    steep = rng.uniform(0.1, 0.9, size=2)
    away = np.where(places < best, steep[0], steep[1]) * np.abs(places - best) / max(alleles - 1, 1)
    rough: np.ndarray[Any, Any] = away * 1.5 + 0.04 * rng.random(alleles)
    return rough


def rows_of(kernel: MadeUpKernel, salt: str) -> dict[str, Any]:
    """Return the cache: every legal genome with its time."""
    code = compile(kernel.legal, "restriction", "eval")
    rows: dict[str, Any] = {}
    for values in itertools.product(*kernel.domains.values()):
        genome = dict(zip(kernel.domains, values, strict=True))
        if not eval(code, {"__builtins__": {}}, genome):
            continue
        time_ms = kernel.time_ms(genome, salt)
        outcome: Any = "RuntimeFailedConfig" if time_ms is None else round(time_ms, 6)
        rows[",".join(map(str, values))] = {**genome, "time": outcome}
    return rows


def main() -> None:
    """Parse the command line and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(asked.seed)
    for number in range(asked.count):
        name = f"generated_{asked.seed}_{number}"
        kernel = make_kernel(rng)
        rows = rows_of(kernel, name)
        document = {
            "device_name": "none",
            "kernel_name": name,
            "problem_size": 1,
            "tune_params_keys": list(kernel.domains),
            "tune_params": {gene: list(values) for gene, values in kernel.domains.items()},
            "objective": "time",
            "restrictions": [kernel.legal],
            "cache": rows,
        }
        with gzip.open(asked.folder / f"{name}.json.gz", "wt") as file:
            json.dump(document, file)
        print(f"{name}: {len(rows)} legal, {kernel.legal}")


if __name__ == "__main__":
    main()
