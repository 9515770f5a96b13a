"""The route ``triton`` of one expert's backward pass whose activations were kept.

Four phases, each a product with genes of its own: the gradients of gate and up, those of the
tokens (two products) and of the weights (two, and one of what is given). The first leaves its
results in the forms that the next two multiply: a gene of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelarc.genomes._axes import axis_values
from kernelarc.genomes._constraints import ExpressionConstraint
from kernelarc.genomes._gene import Gene
from kernelarc.genomes._genes import Boolean, Choice
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Operator, Workload
from kernelarc.genomes._records import Proposal
from kernelarc.genomes._space import Space
from kernelarc.genomes._strategies import Strategy
from kernelarc.genomes.kernels import (
    DeviceLimits,
    KernelRoute,
    Scratch,
    ScratchArgument,
    TensorArgument,
)
from kernelarc.genomes.routes._cuda_route import placed_start, started
from kernelarc.genomes.routes._signature import Binding, extent, matched
from kernelarc.genomes.routes._triton_moe import (
    EXPERT_IN,
    EXPERT_OUT,
    MOST_ELEMENTS,
    expert_starts,
    phase_genes,
)
from kernelarc.genomes.triton import ROUTE, Pointer, TritonCall
from kernelarc.genomes.triton._packaged import PackagedTritonRoute

SAVED_IN = (*EXPERT_IN, *("float *T I",) * 5)
"""One expert's tensors, then gate, its sigmoid, silu, up and hidden rows of the forward pass."""
SAVED_OUT = EXPERT_OUT

FORMS = ("pair", "tf32", "one")
"""What a gradient is multiplied as: the sum of two of the tensors' type, tf32, or rounded once."""

_PHASES = ("inner", "token", "weight", "down")
_TILE = {"BLOCK_M": "m", "BLOCK_N": "n", "BLOCK_K": "k", "GROUP": "group"}


def triton_saved_route(operator: Operator) -> KernelRoute | None:
    """Return the route of an operator whose tensors are one expert's and what it kept, or None."""
    found = matched(operator, SAVED_IN, SAVED_OUT)
    return None if found is None else TritonSaved(operator, found)


class TritonSaved(PackagedTritonRoute):
    """Gradients of one expert from kept activations, by Triton.

    Args:
        operator: What it implements.
        found: Which axes are tokens (T), features of a token (H) and of a hidden row (I).
    """

    module = "triton_saved"
    others = ("triton_moe",)

    def __init__(self, operator: Operator, found: Binding) -> None:
        super().__init__(operator)
        self.found = found

    def _sizes(self, workload: Workload) -> tuple[int, int, int]:
        """Return tokens, features of a token, features of a hidden row."""
        axes = axis_values(self.operator, workload)
        tokens, hidden, inner = (extent(self.found, letter, axes) for letter in "THI")
        return tokens, hidden, inner

    def unsuited(self, workload: Workload) -> str | None:
        """Say that there are too many elements, or None."""
        tokens, hidden, inner = self._sizes(workload)
        if max(tokens, inner) * max(hidden, inner) > MOST_ELEMENTS:
            return "route triton counts elements in 32 bits"
        return None

    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return tiles, pipeline, raster and warps of each phase, forms, and what is fused."""
        tokens, _, _ = self._sizes(workload)
        rows = {"inner": tokens, "token": tokens, "weight": 0, "down": 0}
        genes = [gene for name in _PHASES for gene in phase_genes(name, rows[name])]
        genes += [
            Boolean(
                name="token_paired",
                strategy=Strategy.FUSION,
                description="Both products in a loop.",
            ),
            Boolean(
                name="weight_dual", strategy=Strategy.FUSION, description="Gate and up together."
            ),
        ]
        for name in ("token", "weight"):
            genes.append(_form(name))
        for name in ("weight", "down"):
            genes += _walk(name)
        names = tuple(gene.name for gene in genes)
        return Space(ROUTE, genes, [ExpressionConstraint(text, names) for text in _texts(device)])

    def seeds(self, workload: Workload, device: DeviceLimits) -> tuple[Proposal, ...]:
        """Return tiles for as many tokens as there are, then others; two of them by tf32 as well.

        None multiplies what was rounded once: that fails where results near zero must be right.
        """
        tokens, _, _ = self._sizes(workload)
        tiles = [_start(start) for start in expert_starts(tokens)]
        made = [{**start, "token_form": "pair", "weight_form": "pair"} for start in tiles]
        made += [{**start, "token_form": "tf32", "weight_form": "tf32"} for start in tiles[:2]]
        space = self.space(workload, device)
        return started(space, [_shallow(space, start) for start in made])

    def calls(self, workload: Workload, genome: Genome, arch: str) -> list[TritonCall]:
        """Return the launches of a genome, in order."""
        phases = _Phases(self, self._sizes(workload), dict(genome.items()))
        grad, x, gate, up, down, *kept, hidden = phases.tensors(self.operator.inputs)
        grad_x, grad_gate, grad_up, grad_down = phases.tensors(self.operator.outputs)
        return [
            phases.inner(grad, down, kept),
            phases.token(gate, up, grad_x),
            *phases.weights(x, grad_gate, grad_up),
            phases.down(grad, hidden, grad_down),
        ]


def _form(name: str) -> Gene:
    return Choice(
        name=f"{name}_form",
        options=FORMS,
        strategy=Strategy.PRECISION,
        description="What gradients of gate and up are multiplied as: two roundings, tf32, one.",
    )


def _walk(name: str) -> list[Gene]:
    """Return the genes of how one program writes the tiles of a weight's gradient."""
    return [
        Choice(
            name=f"{name}_columns",
            options=(1, 2, 4, 8),
            strategy=Strategy.SCHEDULING,
            description="Tiles side by side that one program writes.",
        ),
        Boolean(
            name=f"{name}_stream",
            strategy=Strategy.MEMORY,
            description="What is written need not stay in the L2 cache.",
        ),
    ]


def _start(start: Mapping[str, Any]) -> dict[str, Any]:
    """Return a start of the expert's kernels for these: one product inside, not three."""
    found = dict(start)
    for gene in ("m", "n", "k", "warps", "stages", "group"):
        found[f"inner_{gene}"] = found.pop(f"hidden_{gene}")
    for gene in ("m", "n", "k", "warps", "stages", "group", "columns", "stream"):
        found[f"down_{gene}"] = found[f"weight_{gene}"]
    return found


def _shallow(space: Space, start: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a start with as many stages of two tiles as fit; those of its tables were of one."""
    for stages in range(start["weight_stages"], 1, -1):
        found = {**start, "weight_stages": stages}
        if space.violation(placed_start(space, found)) is None:
            return found
    return start


def _texts(device: DeviceLimits) -> list[str]:
    """Return what a multiprocessor's shared memory and a thread's registers can hold."""
    shared = device.shared_bytes
    texts = [
        f"inner_stages * inner_k * (inner_m + inner_n) * 2 <= {shared}",
        f"down_stages * down_k * (down_m + down_n) * 2 <= {shared}",
        "inner_m * inner_n <= 4096 * inner_warps",
        "token_m * token_n <= 6144 * token_warps",
        "weight_m * weight_n * (1 + weight_dual) <= 6144 * weight_warps",
        "down_m * down_n <= 6144 * down_warps",
        "inner_m * inner_n >= 128 * inner_warps",
        "token_m * token_n >= 128 * token_warps",
    ]
    texts += [f"{name}_m * {name}_n >= 256 * {name}_warps" for name in ("weight", "down")]
    for name, left, right in (
        ("token", "(1 + token_paired)", "(1 + token_paired)"),
        ("weight", "(1 + weight_dual)", "1"),
    ):
        # A pair is two tiles of two bytes, tf32 one of four; its other factor is widened once.
        each = f"(2 + 2 * ({name}_form != 'one'))"
        held = f"{name}_m * {each} * {left} + 2 * {name}_n * {right}"
        widened = f"4 * {name}_k * {name}_n * {right} * ({name}_form == 'tf32')"
        texts.append(f"{name}_stages * {name}_k * ({held}) + {widened} <= {shared}")
    return texts


@dataclass(frozen=True, slots=True)
class _Phases:
    """The launches of one genome."""

    route: TritonSaved
    sizes: tuple[int, int, int]
    alleles: Mapping[str, Any]

    def tensors(self, specs: tuple[Any, ...]) -> list[Pointer]:
        """Return pointers to the operator's tensors."""
        return [Pointer(TensorArgument(spec.name), spec.dtype) for spec in specs]

    def _is(self, *forms: str) -> bool:
        """Whether some product takes one of these forms."""
        return any(self.alleles[f"{name}_form"] in forms for name in ("token", "weight"))

    def _held(self, name: str) -> dict[str, tuple[Pointer, Scratch]]:
        """Return where a gradient lies in every form that is asked for."""
        tokens, _, inner = self.sizes
        short = self.route.found["float"][0]
        kinds = {
            "rounded": (short, self._is("one", "pair")),
            "rest": (short, self._is("pair")),
            "wide": ("float32", self._is("tf32")),
        }
        held = {}
        for form, (dtype, asked) in kinds.items():
            label = f"{name} {form}"
            nbytes = (4 if dtype == "float32" else 2) * tokens * inner
            if asked:
                pointer = Pointer(ScratchArgument(label), dtype)
                held[form] = pointer, Scratch(name=label, nbytes=max(nbytes, 16))
        return held

    def _factor(self, name: str, phase: str) -> tuple[Pointer, Pointer | None]:
        """Return what a phase multiplies a gradient as: its values, and what they lost or None."""
        held, form = self._held(name), self.alleles[f"{phase}_form"]
        if form == "tf32":
            return held["wide"][0], None
        return held["rounded"][0], held["rest"][0] if form == "pair" else None

    def _call(
        self,
        phase: str,
        kernel: str,
        arguments: Mapping[str, Any],
        constants: Mapping[str, Any],
        *,
        grid: int,
        scratch: tuple[Scratch, ...] = (),
    ) -> TritonCall:
        tiles = {name: int(self.alleles[f"{phase}_{gene}"]) for name, gene in _TILE.items()}
        return TritonCall(
            function=self.route.kernel(kernel),
            arguments=arguments,
            constants={**tiles, **constants},
            grid=(grid, 1, 1),
            options={
                "num_warps": int(self.alleles[f"{phase}_warps"]),
                "num_stages": int(self.alleles[f"{phase}_stages"]),
            },
            scratch=scratch,
        )

    def _cover(self, phase: str, rows: int, columns: int) -> tuple[int, int]:
        """Return how many tiles of a phase lie below and beside one another."""
        m, n = (int(self.alleles[f"{phase}_{gene}"]) for gene in "mn")
        return -(-rows // m), -(-columns // n)

    def _even(self, phase: str, **extents: int) -> dict[str, bool]:
        """Say of which directions (M, N, K) whole tiles are made."""
        return {
            f"EVEN_{letter}": extent % int(self.alleles[f"{phase}_{letter.lower()}"]) == 0
            for letter, extent in extents.items()
        }

    def inner(self, grad: Pointer, down: Pointer, kept: list[Pointer]) -> TritonCall:
        """Return the launch of the gradients of gate and up."""
        tokens, hidden, inner = self.sizes
        below, beside = self._cover("inner", tokens, inner)
        held = {name: self._held(name) for name in ("gate", "up")}
        forms = {
            f"{name}_{form}": held[name][form][0] if form in held[name] else None
            for name in held
            for form in ("rounded", "rest", "wide")
        }
        return self._call(
            "inner",
            "kept_gradients",
            {
                "grad": grad,
                "down": down,
                **dict(zip(("gate", "sigmoid", "silu", "up"), kept, strict=True)),
                **forms,
                "N": tokens,
                "H": hidden,
                "WIDE": inner,
                "tiles_m": below,
            },
            self._even("inner", N=inner, K=hidden),
            grid=below * beside,
            scratch=tuple(scratch for each in held.values() for _, scratch in each.values()),
        )

    def token(self, gate: Pointer, up: Pointer, out: Pointer) -> TritonCall:
        """Return the launch of the tokens' gradients."""
        tokens, hidden, inner = self.sizes
        below, beside = self._cover("token", tokens, hidden)
        (left, rest), (left_2, rest_2) = (self._factor(name, "token") for name in ("gate", "up"))
        return self._call(
            "token",
            "kept_token_gradients",
            {
                "grad_gate": left,
                "gate_rest": rest,
                "grad_up": left_2,
                "up_rest": rest_2,
                "gate": gate,
                "up": up,
                "out": out,
                "N": tokens,
                "H": hidden,
                "WIDE": inner,
                "tiles_m": below,
            },
            {
                **self._even("token", N=hidden, K=inner),
                "PAIRED": bool(self.alleles["token_paired"]),
            },
            grid=below * beside,
        )

    def weights(self, x: Pointer, gate: Pointer, up: Pointer) -> list[TritonCall]:
        """Return the launches of the gradients of gate's and up's weights."""
        first, second = (self._factor(name, "weight") for name in ("gate", "up"))
        if self.alleles["weight_dual"]:
            return [self._weight(first, x, gate, second, up)]
        return [self._weight(first, x, gate), self._weight(second, x, up)]

    def _weight(
        self,
        left: tuple[Pointer, Pointer | None],
        right: Pointer,
        out: Pointer,
        left_2: tuple[Pointer | None, Pointer | None] = (None, None),
        out_2: Pointer | None = None,
    ) -> TritonCall:
        tokens, hidden, inner = self.sizes
        below, beside = self._cover("weight", inner, hidden)
        return self._call(
            "weight",
            "kept_weight_gradients",
            {
                "left": left[0],
                "rest": left[1],
                "left_2": left_2[0],
                "rest_2": left_2[1],
                "right": right,
                "out": out,
                "out_2": out_2,
                "N": tokens,
                "P": inner,
                "Q": hidden,
            },
            {**self._even("weight", M=inner, N=hidden), **self._walked("weight")},
            grid=below * -(-beside // int(self.alleles["weight_columns"])),
        )

    def _walked(self, phase: str) -> dict[str, Any]:
        return {
            "COLUMNS": int(self.alleles[f"{phase}_columns"]),
            "STREAM": bool(self.alleles[f"{phase}_stream"]),
        }

    def down(self, grad: Pointer, rows: Pointer, out: Pointer) -> TritonCall:
        """Return the launch of the gradient of the down-projection's weight."""
        tokens, hidden, inner = self.sizes
        below, beside = self._cover("down", hidden, inner)
        given = {"left": grad, "right": rows, "out": out, "N": tokens, "P": hidden, "Q": inner}
        return self._call(
            "down",
            "triton_moe.weight_gradients",
            given | dict.fromkeys(("left_2", "out_2", "rows", "counts")),
            {
                **self._even("down", M=hidden, N=inner),
                **self._walked("down"),
                "GROUPED": False,
                "TOP_K": 0,
                "EXPERTS": 1,
                "WIDTH": 2,
                "LEFT_BY_TOKEN": True,
                "DUAL": False,
            },
            grid=below * -(-beside // int(self.alleles["down_columns"])),
        )
