"""The route ``triton`` of a decoder block: a graph of subtasks with genes of their own.

Subtasks that are operators with a Triton route (products, the gated projection) are launched by
that route; their tensors are the block's or buffers between subtasks. How neighbours are fused is
two genes: who adds the residual after the attention, and whether gate and up-projection are one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from kernelarc.genomes._constraints import ExpressionConstraint
from kernelarc.genomes._gene import Gene
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
    TensorArgument,
)
from kernelarc.genomes.routes._block import (
    BLOCK_INPUTS,
    BLOCK_ROLES,
    BlockSizes,
    block_sizes,
    gated_operator,
)
from kernelarc.genomes.routes._cuda_route import started
from kernelarc.genomes.routes._matmul import MatmulForm, matmul_operator
from kernelarc.genomes.routes._signature import Binding, matched
from kernelarc.genomes.routes._triton_gated import TritonGated
from kernelarc.genomes.routes._triton_gemm import TritonGemm
from kernelarc.genomes.triton import ROUTE, Descriptor, Pointer, TritonCall
from kernelarc.genomes.triton._call import CallArgument
from kernelarc.genomes.triton._packaged import PackagedTritonRoute

_PRODUCTS = ("q", "kv", "o", "wide", "down")
_PLAIN: dict[str, Any] = {
    "load": "pointer", "store_descriptor": False, "evict_a": "", "evict_b": "", "cache": "",
    "warp_specialize": False, "persistent": False, "loop_stages": 0, "maxnreg": 0, "num_ctas": 1,
    "split_k": 1, "epilogue_parts": 1,
}  # fmt: skip
_TENSOR, _MEMORY, _FUSION = Strategy.TENSOR_CORE, Strategy.MEMORY, Strategy.FUSION
_SCHEDULING = Strategy.SCHEDULING
_HEADS, _WIDEST, _MOST_ELEMENTS = (32, 64, 128, 256), 1 << 15, 2**31 - 1
_ACTIVATED_BLOCK = 1024


def triton_block_route(operator: Operator) -> KernelRoute | None:
    """Return the route of an operator whose tensors are those of a decoder block, or None."""
    found = matched(operator, BLOCK_INPUTS, ("float B S H",))
    return None if found is None else TritonBlock(operator, found)


class TritonBlock(PackagedTritonRoute):
    """A decoder block by Triton.

    Args:
        operator: What it implements.
        found: Which axes are sequences (B, S), features (H, D, I), of all query heads (Q) and of
            all key-value heads (C).
    """

    module = "triton_block"
    others = ("triton_gemm", "triton_gated")

    def __init__(self, operator: Operator, found: Binding) -> None:
        super().__init__(operator)
        self.found = found

    def _sizes(self, workload: Workload) -> BlockSizes:
        return block_sizes(self.operator, self.found, workload)

    def unsuited(self, workload: Workload) -> str | None:
        """Say which size the kernels do not take, or None."""
        size = self._sizes(workload)
        if size.head not in _HEADS or size.hidden > _WIDEST or size.q % size.kv:
            return (
                f"route triton takes heads of {', '.join(map(str, _HEADS))} features, rows of at "
                f"most {_WIDEST}, and as many query heads as key-value heads or a multiple"
            )
        widest = max(size.wide, size.q, size.hidden)
        if max(size.tokens, size.hidden) * widest > _MOST_ELEMENTS:
            return "route triton counts elements in 32 bits"
        return None

    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return the genes of every subtask and of their fusion."""
        size = self._sizes(workload)
        genes: list[Gene] = []
        for name in _PRODUCTS:
            genes += _product_genes(name, size.tokens)
        genes += [
            PowerOfTwo(name="attention_m", low=16, high=128, strategy=_TENSOR),
            PowerOfTwo(name="attention_n", low=16, high=128, strategy=_TENSOR),
            Choice(name="attention_warps", options=(4, 8), strategy=_TENSOR),
            Choice(name="attention_stages", options=(1, 2, 3), strategy=_MEMORY),
            Choice(name="norm_warps", options=(4, 8, 16), strategy=_MEMORY),
            PowerOfTwo(name="turn_block", low=4, high=64, strategy=_MEMORY),
            Boolean(
                name="product_adds",
                strategy=_FUSION,
                description="The projection adds the residual; else the norm behind it does.",
            ),
            Boolean(name="gate_fused", strategy=_FUSION, description="Gate and up in one kernel."),
        ]
        names = tuple(gene.name for gene in genes)
        texts = [
            f"(attention_m + 2 * attention_stages * attention_n) * {2 * size.head} "
            f"<= {device.shared_bytes}",
            "attention_m * attention_n <= 2048 * attention_warps",
            "attention_m * attention_n >= 32 * attention_warps",
        ]
        for name in _PRODUCTS:
            twice = " * (1 + gate_fused)" if name == "wide" else ""
            texts += [
                f"{name}_stages * {name}_k * ({name}_m + {name}_n{twice}) * 2 "
                f"<= {device.shared_bytes}",
                f"{name}_m * {name}_n{twice} <= 6144 * {name}_warps",
                f"{name}_m * {name}_n >= 128 * {name}_warps",
            ]
        return Space(ROUTE, tuple(genes), [ExpressionConstraint(text, names) for text in texts])

    def seeds(self, workload: Workload, device: DeviceLimits) -> tuple[Proposal, ...]:
        """Return middling tiles, fused as far as it goes and not at all."""
        start: dict[str, Any] = {
            "attention_m": 64, "attention_n": 64, "attention_warps": 4, "attention_stages": 2,
            "norm_warps": 8, "turn_block": 16,
        }  # fmt: skip
        for name in _PRODUCTS:
            sizes = {"m": 64, "n": 64, "k": 64, "warps": 4, "stages": 4, "group": 8}
            start |= {f"{name}_{gene}": allele for gene, allele in sizes.items()}
        fused = {"product_adds": True, "gate_fused": True}
        apart = {"product_adds": False, "gate_fused": False}
        return started(self.space(workload, device), [{**start, **fused}, {**start, **apart}])

    def calls(self, workload: Workload, genome: Genome, arch: str) -> list[TritonCall]:
        """Return the launches of all subtasks, in order."""
        names = dict(zip(BLOCK_ROLES, (spec.name for spec in self.operator.inputs), strict=True))
        graph = _Graph(
            self,
            self._sizes(workload),
            {**names, "out": self.operator.outputs[0].name},
            dict(genome.items()),
            arch,
        )
        return graph.launches()


def _product_genes(name: str, rows: int) -> tuple[Gene, ...]:
    low = 16 if rows < 128 else 64
    return (
        PowerOfTwo(name=f"{name}_m", low=low, high=256, strategy=_TENSOR),
        PowerOfTwo(name=f"{name}_n", low=32, high=256, strategy=_TENSOR),
        PowerOfTwo(name=f"{name}_k", low=32, high=128, strategy=_TENSOR),
        Choice(name=f"{name}_warps", options=(4, 8), strategy=_TENSOR),
        Choice(name=f"{name}_stages", options=(2, 3, 4, 5), strategy=_MEMORY),
        PowerOfTwo(name=f"{name}_group", low=1, high=16, strategy=_SCHEDULING),
    )


class _Graph:
    """One genome's subtasks: what each reads and writes, and how it is launched."""

    def __init__(
        self,
        route: TritonBlock,
        size: BlockSizes,
        names: dict[str, str],
        alleles: dict[str, Any],
        arch: str,
    ) -> None:
        self.route, self.size, self.alleles, self.arch = route, size, alleles, arch
        self.device = route.limits(arch)
        self.dtype = route.found["float"][0]
        self.places: dict[str, TensorArgument | ScratchArgument] = {
            role: TensorArgument(name) for role, name in names.items()
        }
        self.eps = InputArgument(names["eps"], "f32")
        tokens = size.tokens
        buffers = {
            "normed": size.hidden, "q": size.q, "k": size.kv, "v": size.kv, "mixed": size.q,
            "projected": size.hidden, "middle": size.hidden, "normed_2": size.hidden,
            "gated": size.wide, "gate_out": size.wide, "up_out": size.wide,
        }  # fmt: skip
        self.scratch = {n: Scratch(name=n, nbytes=2 * tokens * w) for n, w in buffers.items()}

    def launches(self) -> list[TritonCall]:
        """Return every launch; a buffer comes with the first launch that names it."""
        calls = [
            self._norm("x", "norm_1", "normed"),
            self._product("q", "normed", "wq", "q", (self.size.q, self.size.hidden)),
            self._product("kv", "normed", "wk", "k", (self.size.kv, self.size.hidden)),
            self._product("kv", "normed", "wv", "v", (self.size.kv, self.size.hidden)),
            self._turned("q", "norm_q", self.size.q),
            self._turned("k", "norm_k", self.size.kv),
            self._attention(),
        ]
        shape = (self.size.hidden, self.size.q)
        if self.alleles["product_adds"]:
            calls.append(self._product("o", "mixed", "wo", "middle", shape, added="x"))
            calls.append(self._norm("middle", "norm_2", "normed_2"))
        else:
            calls.append(self._product("o", "mixed", "wo", "projected", shape))
            calls.append(self._norm("x", "norm_2", "normed_2", added="projected"))
        calls += self._gated()
        shape = (self.size.hidden, self.size.wide)
        calls.append(self._product("down", "gated", "down", "out", shape, added="middle"))
        return calls

    def _place(self, role: str) -> TensorArgument | ScratchArgument:
        return self.places.get(role) or ScratchArgument(role)

    def _pointer(self, role: str) -> Pointer:
        return Pointer(self._place(role), self.dtype)

    def _held(self, *roles: str) -> tuple[Scratch, ...]:
        return tuple(self.scratch[role] for role in roles if role in self.scratch)

    def _norm(self, x: str, weight: str, out: str, added: str | None = None) -> TritonCall:
        summed = None if added is None else "middle"
        return TritonCall(
            function=self.route.kernel("normed"),
            arguments={
                "x": self._pointer(x),
                "added": None if added is None else self._pointer(added),
                "weight": self._pointer(weight),
                "out": self._pointer(out),
                "summed": None if summed is None else self._pointer(summed),
                "eps": self.eps,
                "H": self.size.hidden,
            },
            constants={
                "BLOCK": 1 << (self.size.hidden - 1).bit_length(),
                "HAS_ADDED": added is not None,
            },
            grid=(self.size.tokens, 1, 1),
            options={"num_warps": self.alleles["norm_warps"]},
            scratch=self._held(out, *([summed] if summed else [])),
        )

    def _turned(self, what: str, weight: str, features: int) -> TritonCall:
        heads = features // self.size.head
        rows, block = self.size.tokens * heads, self.alleles["turn_block"]
        return TritonCall(
            function=self.route.kernel("rotated"),
            arguments={
                "x": self._pointer(what),
                "weight": self._pointer(weight),
                "cos": self._pointer("cos"),
                "sin": self._pointer("sin"),
                "eps": self.eps,
                "ROWS": rows,
                "SEQ": self.size.seq,
                "heads": heads,
            },
            constants={"HEAD": self.size.head, "BLOCK": block},
            grid=(-(-rows // block), 1, 1),
            options={"num_warps": 4},
        )

    def _attention(self) -> TritonCall:
        size, alleles = self.size, self.alleles
        kv_heads = size.kv // size.head
        group = size.q // size.kv
        return TritonCall(
            function=self.route.kernel("attended"),
            arguments={
                **{role: self._pointer(role) for role in ("q", "k", "v")},
                "out": self._pointer("mixed"),
                "SEQ": size.seq,
                "factor": 1.4426950408889634 / math.sqrt(size.head),
            },
            constants={
                "HEADS": group,
                "KV_HEADS": kv_heads,
                "HEAD": size.head,
                "BLOCK_M": alleles["attention_m"],
                "BLOCK_N": alleles["attention_n"],
            },
            grid=(-(-size.seq * group // alleles["attention_m"]), size.batch * kv_heads, 1),
            options={
                "num_warps": alleles["attention_warps"],
                "num_stages": alleles["attention_stages"],
            },
            scratch=self._held("mixed"),
        )

    # Subtasks with routes of their own

    def _tiles(self, name: str) -> dict[str, Any]:
        genes = {"block_m": "m", "block_n": "n", "block_k": "k", "num_warps": "warps",
                 "num_stages": "stages", "group": "group"}  # fmt: skip
        return {gene: self.alleles[f"{name}_{short}"] for gene, short in genes.items()}

    def _product(
        self, name: str, x: str, weight: str, out: str, shape: tuple[int, int], *, added: str = ""
    ) -> TritonCall:
        """Return ``out = x . weight' (+ added)``; shape is the weight's."""
        form = MatmulForm(dtype=self.dtype, residual=bool(added))
        operator = matmul_operator(form, {"M": self.size.tokens, "N": shape[0], "K": shape[1]})
        genome = Genome(ROUTE, _PLAIN | self._tiles(name))
        workload = Workload(operator=operator.fingerprint)
        (call,) = TritonGemm(operator).on(self.device).calls(workload, genome, self.arch)
        return self._moved(call, {"a": x, "weight": weight, "out": out, "residual": added})

    def _gated(self) -> list[TritonCall]:
        shape = (self.size.wide, self.size.hidden)
        if not self.alleles["gate_fused"]:
            elements = self.size.tokens * self.size.wide
            return [
                self._product("wide", "normed_2", "gate", "gate_out", shape),
                self._product("wide", "normed_2", "up", "up_out", shape),
                TritonCall(
                    function=self.route.kernel("activated"),
                    arguments={
                        "gate": self._pointer("gate_out"),
                        "up": self._pointer("up_out"),
                        "out": self._pointer("gated"),
                        "N": elements,
                    },
                    constants={"BLOCK": _ACTIVATED_BLOCK},
                    grid=(-(-elements // _ACTIVATED_BLOCK), 1, 1),
                    options={"num_warps": 4},
                    scratch=self._held("gated"),
                ),
            ]
        genome = Genome(ROUTE, {**self._tiles("wide"), "evict": "", "programs": 0, "maxnreg": 0})
        operator = gated_operator(self.size, self.dtype)
        workload = Workload(
            operator=operator.fingerprint, axes={"batch": self.size.batch, "seq": self.size.seq}
        )
        (call,) = TritonGated(operator).on(self.device).calls(workload, genome, self.arch)
        roles = {"x": "normed_2", "gate_proj": "gate", "up_proj": "up", "out": "gated"}
        return [self._moved(call, roles)]

    def _moved(self, call: TritonCall, roles: dict[str, str]) -> TritonCall:
        """Return a subtask's launch with its tensors where the block has them."""
        arguments: dict[str, CallArgument] = {}
        for name, value in call.arguments.items():
            if isinstance(value, Pointer | Descriptor) and isinstance(value.target, TensorArgument):
                arguments[name] = replace(value, target=self._place(roles[value.target.name]))
            else:
                arguments[name] = value
        held = self._held(roles["out"])
        return replace(call, arguments=arguments, scratch=(*call.scratch, *held))
