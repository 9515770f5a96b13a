"""The launches of the experts' backward pass: which kernel, on what, with which tiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelarc.genomes.kernels import Scratch, ScratchArgument, TensorArgument
from kernelarc.genomes.triton import Pointer, TritonCall

Kernels = Callable[[str], Any]
_SUM_BLOCK = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """One set of experts of one size, and the rows that go through it.

    Attributes:
        tokens: Tokens that come in.
        experts: How many experts; 1 with ``top_k`` 0 is one for all tokens.
        top_k: Experts of a token.
        stem: What its scratch buffers are called by.
    """

    tokens: int
    hidden: int
    inner: int
    dtype: str
    stem: str
    experts: int = 1
    top_k: int = 0

    @property
    def grouped(self) -> bool:
        """Whether tokens choose."""
        return self.top_k > 0

    @property
    def rows(self) -> int:
        """Tokens times experts of each."""
        return self.tokens * max(self.top_k, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A routed layer with a shared expert."""

    tokens: int
    hidden: int
    inner: int
    shared: int
    experts: int
    top_k: int
    dtype: str
    selected: str


def expert_calls(
    kernels: Kernels,
    size: Experts,
    inputs: Sequence[str],
    outputs: Sequence[str],
    alleles: Mapping[str, Any],
) -> list[TritonCall]:
    """Return the launches for one expert: inputs grad, x, gate, up, down."""
    phases = _Phases(kernels, size, alleles)
    grad, x, gate, up, down = (_tensor(name, size.dtype) for name in inputs)
    grad_x, grad_gate, grad_up, grad_down = (_tensor(name, size.dtype) for name in outputs)
    return [
        phases.inside(x, grad, gate, up, down),
        phases.tokens(gate, up, grad_x),
        *phases.weights(x, grad, grad_gate, grad_up, grad_down),
    ]


def layer_calls(
    kernels: Kernels,
    size: Layer,
    inputs: Sequence[str],
    outputs: Sequence[str],
    alleles: Mapping[str, Any],
) -> list[TritonCall]:
    """Return the launches for a routed layer: sorting, routed experts, then the shared one."""
    routed = Experts(
        tokens=size.tokens,
        hidden=size.hidden,
        inner=size.inner,
        dtype=size.dtype,
        stem="routed ",
        experts=size.experts,
        top_k=size.top_k,
    )
    shared = Experts(
        tokens=size.tokens, hidden=size.hidden, inner=size.shared, dtype=size.dtype, stem="shared "
    )
    kinds = ["float32", size.selected]
    grad, x, scales, selected, *rest = (
        _tensor(name, kind)
        for name, kind in zip(inputs, [size.dtype] * 2 + kinds + [size.dtype] * 6, strict=True)
    )
    grad_x, grad_scales, *grads = (
        _tensor(name, kind)
        for name, kind in zip(outputs, [size.dtype, "float32"] + [size.dtype] * 6, strict=True)
    )
    first, second = _Phases(kernels, routed, alleles), _Phases(kernels, shared, alleles)
    parts = Pointer(ScratchArgument("parts"), str(alleles["parts"]))
    return [
        *first.sorting(selected),
        first.inside(x, grad, *rest[:3], scales=scales),
        second.inside(x, grad, *rest[3:]),
        first.scales(grad_scales),
        first.tokens(rest[0], rest[1], parts),
        second.tokens(rest[3], rest[4], grad_x, parts=parts, top_k=size.top_k),
        *first.weights(x, grad, *grads[:3]),
        *second.weights(x, grad, *grads[3:]),
    ]


def _tensor(name: str, dtype: str) -> Pointer:
    return Pointer(TensorArgument(name), dtype)


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


class _Phases:
    """The phases of one set of experts with one genome."""

    def __init__(self, kernels: Kernels, size: Experts, alleles: Mapping[str, Any]) -> None:
        self.kernels, self.size, self.alleles = kernels, size, alleles

    def _scratch(self, name: str, dtype: str, count: int) -> tuple[Pointer, Scratch]:
        label, width = f"{self.size.stem}{name}", 4 if dtype in {"float32", "int32"} else 2
        return (
            Pointer(ScratchArgument(label), dtype),
            Scratch(name=label, nbytes=max(width * count, 16)),
        )

    def _rows(self, name: str) -> tuple[Pointer, Scratch]:
        return self._scratch(name, self.size.dtype, self.size.rows * self.size.inner)

    def _lists(self) -> tuple[Pointer | None, Pointer | None]:
        """Return the sorted assignments and the counts, None where there is one expert for all."""
        if not self.size.grouped:
            return None, None
        return (
            self._scratch("rows", "int32", self.size.rows)[0],
            self._scratch("counts", "int32", self.size.experts)[0],
        )

    def _experts(self) -> dict[str, Any]:
        size = self.size
        return {
            "GROUPED": size.grouped,
            "TOP_K": size.top_k,
            "EXPERTS": size.experts,
            "WIDTH": 1 << max(size.experts - 1, 1).bit_length(),
        }

    def _tiles(self, phase: str) -> dict[str, Any]:
        names = {"BLOCK_M": "m", "BLOCK_N": "n", "BLOCK_K": "k", "GROUP": "group"}
        return {constant: int(self.alleles[f"{phase}_{gene}"]) for constant, gene in names.items()}

    def _options(self, phase: str) -> dict[str, Any]:
        return {
            "num_warps": int(self.alleles[f"{phase}_warps"]),
            "num_stages": int(self.alleles[f"{phase}_stages"]),
        }

    def _row_tiles(self, block: int) -> int:
        """Return how many tiles of rows there are at most, whatever the tokens choose."""
        size = self.size
        if not size.grouped:
            return _cdiv(size.rows, block)
        return min(_cdiv(size.rows, block) + size.experts, size.rows)

    def sorting(self, selected: Pointer) -> list[TritonCall]:
        """Return the launches that count the assignments and sort them."""
        size, scan = self.size, int(self.alleles["scan"])
        counts, counts_held = self._scratch("counts", "int32", size.experts)
        rows, rows_held = self._scratch("rows", "int32", size.rows)
        width = self._experts()["WIDTH"]
        count = TritonCall(
            function=self.kernels("counted"),
            arguments={"selected": selected, "counts": counts, "N": size.rows},
            constants={"BLOCK": scan},
            grid=(size.experts, 1, 1),
            options={"num_warps": 4},
            scratch=(counts_held,),
        )
        place = TritonCall(
            function=self.kernels("placed"),
            arguments={"selected": selected, "counts": counts, "rows": rows, "N": size.rows},
            constants={"EXPERTS": size.experts, "WIDTH": width, "BLOCK": scan},
            grid=(size.experts, 1, 1),
            options={"num_warps": 4},
            scratch=(rows_held,),
        )
        return [count, place]

    def inside(
        self,
        x: Pointer,
        grad: Pointer,
        gate: Pointer,
        up: Pointer,
        down: Pointer,
        *,
        scales: Pointer | None = None,
    ) -> TritonCall:
        """Return the launch of the gradients inside the experts."""
        size, tiles = self.size, self._tiles("hidden")
        rows, counts = self._lists()
        columns = _cdiv(size.inner, tiles["BLOCK_N"])
        row_tiles = self._row_tiles(tiles["BLOCK_M"])
        held = {name: self._rows(name) for name in ("grad_gate", "grad_up", "hidden")}
        products = self._scratch("products", "float32", columns * size.rows)
        own = [scratch for _, scratch in held.values()]
        return TritonCall(
            function=self.kernels("hidden_gradients"),
            arguments={
                "x": x,
                "grad": grad,
                "scales": scales,
                "rows": rows,
                "counts": counts,
                "gate": gate,
                "up": up,
                "down": down,
                **{name: pointer for name, (pointer, _) in held.items()},
                "products": products[0] if size.grouped else None,
                "N": size.rows,
                "H": size.hidden,
                "WIDE": size.inner,
                "tiles_m": row_tiles,
            },
            constants={
                **self._experts(),
                **tiles,
                "EVEN_N": size.inner % tiles["BLOCK_N"] == 0,
                "EVEN_K": size.hidden % tiles["BLOCK_K"] == 0,
            },
            grid=(row_tiles * columns, 1, 1),
            options=self._options("hidden"),
            scratch=(*own, *([products[1]] if size.grouped else [])),
        )

    def scales(self, out: Pointer) -> TritonCall:
        """Return the launch that adds the parts of the scales' gradients."""
        columns = _cdiv(self.size.inner, self._tiles("hidden")["BLOCK_N"])
        return TritonCall(
            function=self.kernels("summed"),
            arguments={
                "products": self._scratch("products", "float32", 1)[0],
                "out": out,
                "N": self.size.rows,
            },
            constants={"TILES": columns, "BLOCK": _SUM_BLOCK},
            grid=(_cdiv(self.size.rows, _SUM_BLOCK), 1, 1),
            options={"num_warps": 4},
        )

    def tokens(
        self,
        gate: Pointer,
        up: Pointer,
        out: Pointer,
        *,
        parts: Pointer | None = None,
        top_k: int = 0,
    ) -> TritonCall:
        """Return the launch of the tokens' gradients."""
        size, tiles = self.size, self._tiles("token")
        rows, counts = self._lists()
        row_tiles = self._row_tiles(tiles["BLOCK_M"])
        scratch: tuple[Scratch, ...] = ()
        if size.grouped:
            width = 4 if out.dtype == "float32" else 2
            scratch = (Scratch(name="parts", nbytes=width * size.rows * size.hidden),)
        return TritonCall(
            function=self.kernels("token_gradients"),
            arguments={
                "grad_gate": self._rows("grad_gate")[0],
                "grad_up": self._rows("grad_up")[0],
                "gate": gate,
                "up": up,
                "rows": rows,
                "counts": counts,
                "parts": parts,
                "out": out,
                "N": size.rows,
                "H": size.hidden,
                "WIDE": size.inner,
                "tiles_m": row_tiles,
            },
            constants={
                **self._experts(),
                **({"TOP_K": top_k} if top_k else {}),
                **tiles,
                "EVEN_N": size.hidden % tiles["BLOCK_N"] == 0,
                "EVEN_K": size.inner % tiles["BLOCK_K"] == 0,
                "PAIRED": bool(self.alleles["token_paired"]),
            },
            grid=(row_tiles * _cdiv(size.hidden, tiles["BLOCK_N"]), 1, 1),
            options=self._options("token"),
            scratch=scratch,
        )

    def weights(
        self, x: Pointer, grad: Pointer, gate: Pointer, up: Pointer, down: Pointer
    ) -> list[TritonCall]:
        """Return the launches of the weights' gradients."""
        held = {name: self._rows(name)[0] for name in ("grad_gate", "grad_up", "hidden")}
        first, second = held["grad_gate"], held["grad_up"]
        if self.alleles["weight_dual"]:
            made = [self._weight(first, x, gate, left_2=second, out_2=up)]
        else:
            made = [self._weight(first, x, gate), self._weight(second, x, up)]
        return [*made, self._weight(grad, held["hidden"], down, left_by_token=True)]

    def _weight(
        self,
        left: Pointer,
        right: Pointer,
        out: Pointer,
        *,
        left_2: Pointer | None = None,
        out_2: Pointer | None = None,
        left_by_token: bool = False,
    ) -> TritonCall:
        size, tiles = self.size, self._tiles("weight")
        rows, counts = self._lists()
        p, q = (size.hidden, size.inner) if left_by_token else (size.inner, size.hidden)
        walked = int(self.alleles["weight_columns"])
        walks = _cdiv(_cdiv(q, tiles["BLOCK_N"]), walked)
        return TritonCall(
            function=self.kernels("weight_gradients"),
            arguments={
                "left": left,
                "left_2": left_2,
                "right": right,
                "out": out,
                "out_2": out_2,
                "rows": rows,
                "counts": counts,
                "N": size.rows,
                "P": p,
                "Q": q,
            },
            constants={
                **self._experts(),
                **tiles,
                "EVEN_M": p % tiles["BLOCK_M"] == 0,
                "EVEN_N": q % tiles["BLOCK_N"] == 0,
                "LEFT_BY_TOKEN": left_by_token,
                "DUAL": left_2 is not None,
                "COLUMNS": walked,
                "STREAM": bool(self.alleles["weight_stream"]),
            },
            grid=(_cdiv(p, tiles["BLOCK_M"]) * walks, size.experts, 1),
            options=self._options("weight"),
        )
