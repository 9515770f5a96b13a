"""The job that goes to the searching process: all of one call, and no code but its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelarc.engine.tuning._calls import CapturedCall
from kernelarc.engine.tuning._tables import Tabled
from kernelarc.genomes import Allele, Gene, canonical_json, fingerprint_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningSubject:
    """What is tuned, for which key: enough to know it again.

    Attributes:
        kernel: Name of the jitted function.
        source: Python source that defines it.
        key: Names and values that call for a choice of their own; whole numbers become axes.
        genes: What there is to choose.
        seeds: The program's own configurations; the first is what it would run.
        arch: What is compiled for.
        device: ``"cuda:0"``.
        device_model: Its model.
    """

    kernel: str
    source: str
    key: Mapping[str, Any]
    genes: tuple[Gene, ...]
    seeds: tuple[Mapping[str, Allele], ...]
    arch: str
    device: str
    device_model: str

    @property
    def identity(self) -> str:
        """Content fingerprint: the same kernel, key, space and device model have the same one.

        Sizes and values that are not in the key do not count: a program says by its key what
        calls for another choice.
        """
        content = {
            "kernel": self.kernel,
            "source": self.source,
            "key": [[name, str(value)] for name, value in self.key.items()],
            "genes": [[gene.name, [str(v) for v in gene.values()]] for gene in self.genes],
            "seeds": [{name: str(v) for name, v in seed.items()} for seed in self.seeds],
            "device": self.device_model,
        }
        return fingerprint_of(canonical_json(content))

    @property
    def axes(self) -> dict[str, int]:
        """The key's whole numbers that can be axes."""
        return {n: v for n, v in self.key.items() if type(v) is int and v >= 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningJob:
    """A kernel to be tuned for one key, with all of the call that it is tuned for.

    Attributes:
        subject: What is tuned.
        call: What it was called with.
        grid: Its grid by genes.
        computed: Constants that ``triton.heuristics`` computes, by name.
        pruned: Genomes that the program's own pruning leaves, as alleles in the order of the
            genes; None where it leaves all.
    """

    subject: TuningSubject
    call: CapturedCall
    grid: Tabled
    computed: Mapping[str, Tabled]
    pruned: tuple[tuple[Allele, ...], ...] | None
