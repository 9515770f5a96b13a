"""Operators recognised by what their references compute: in other words, never by other sums."""

from __future__ import annotations

import pytest

from kernelarc.genomes import (
    Axis,
    Operator,
    TensorSpec,
    packaged_problem,
    packaged_problems,
    recognised,
)
from kernelarc.genomes.kernels import kernel_routes
from kernelarc.genomes.routes._cuda_add_rmsnorm import norm_roles


def operator(
    reference: str, inputs: dict[str, tuple[str, ...] | None], out: tuple[str, ...]
) -> Operator:
    names = {part for shape in (*inputs.values(), out) for part in shape or ()}
    return Operator(
        name="somebody's",
        axes={name: Axis(name=name, kind="var") for name in sorted(names)},
        inputs=tuple(
            TensorSpec(name=n, shape=s, dtype="bfloat16" if s else "float32")
            for n, s in inputs.items()
        ),
        outputs=(TensorSpec(name="out", shape=out, dtype="bfloat16"),),
        reference=reference,
    )


def norm(body: str, *, scalar: bool = True) -> Operator:
    names: dict[str, tuple[str, ...] | None] = {"h": ("B", "S", "H"), "r": ("B", "S", "H")}
    names |= {"w": ("H",)} | ({"e": None} if scalar else {})
    source = f"import torch\n\n\n@torch.no_grad()\ndef run({', '.join(names)}):\n"
    return operator(
        source + "".join(f"    {line}\n" for line in body.split("\n")), names, ("B", "S", "H")
    )


NORMS = [
    "x = r + h\nf = x.to(torch.float32)\nv = f.pow(2).mean(-1, keepdim=True)\n"
    "n = f * torch.rsqrt(v + e)\nreturn w * n.to(torch.bfloat16)",
    "s = (h + r).float()\nm = torch.mean(s * s, dim=-1, keepdim=True)\n"
    "return (s / torch.sqrt(m + e)).to(h) * w",
    "s = torch.add(h, r)\nv = s.square().mean(dim=-1, keepdim=True)\n"
    "return s * w * (e + v) ** -0.5",
    '"""A docstring."""\nshape = h.shape\ns = h + r\n'
    "return w.float() * (s * torch.rsqrt((s ** 2).mean([-1], keepdim=True) + e))",
]
NO_NORMS = [
    "x = h\nreturn w * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + e) + r",  # added later
    "s = h + r\nreturn w * s * torch.rsqrt(s.square().mean(-1, keepdim=True)) + e",
    "s = h + r\nreturn w * s * torch.rsqrt(s.square().mean(1, keepdim=True) + e)",
    "s = h + r\nreturn w * s * torch.rsqrt(s.square().mean(-1) + e)",
    "s = h + r\nreturn s * torch.rsqrt(s.square().mean(-1, keepdim=True) + e)",
    "s = h + r\nreturn w * h * torch.rsqrt(s.square().mean(-1, keepdim=True) + e)",
    "s = h - r\nreturn w * s * torch.rsqrt(s.square().mean(-1, keepdim=True) + e)",
    "s = h + r\nreturn 2 * w * s * torch.rsqrt(s.square().mean(-1, keepdim=True) + e)",
    "s = h + r\nreturn (1 + w) * s * torch.rsqrt(s.square().mean(-1, keepdim=True) + e)",
    "s = h + r\ns += r\nreturn w * s * torch.rsqrt(s.square().mean(-1, keepdim=True) + e)",
    "s = h + r\nif e > 0:\n    s = h\n"
    "return w * s * torch.rsqrt(s.square().mean(-1, keepdim=True) + e)",
    "s = (h + r).to(torch.int32)\n"
    "return w * s * torch.rsqrt(s.square().mean(-1, keepdim=True) + e)",
    "s = (h + r).to(torch.float8_e5m2)\n"
    "return w * s * torch.rsqrt(s.square().mean(-1, keepdim=True) + e)",
    "s = unknown(h + r)\nreturn w * s * torch.rsqrt(s.square().mean(-1, keepdim=True) + e)",
    "s = h + r\nreturn w * s * torch.rsqrt(torch.mean(s.square(), -1, True, out=s) + e)",
]


@pytest.mark.parametrize("body", NORMS)
def test_a_residual_norm_is_recognised_however_it_is_written(body: str) -> None:
    plain = norm(body)
    found = recognised(plain)
    assert found.op_type == "rmsnorm" and found.fingerprint == plain.fingerprint
    assert {route.name for route in kernel_routes(found)} >= {"triton"}


@pytest.mark.parametrize("body", NO_NORMS)
def test_what_is_no_residual_norm_is_not_guessed_at(body: str) -> None:
    assert recognised(norm(body)).op_type == ""


TAIL = "return w * s * torch.rsqrt(s.square().mean(-1, keepdim=True) + %s)"


@pytest.mark.parametrize(
    ("body", "epsilon"),
    [
        ("eps = 1e-5\ns = h + r\n" + TAIL % "eps", 1e-5),
        ("s = h + r\n" + TAIL % "1e-12", 1e-12),
        ("E = 1e-6\nF = 3.0\ns = h + r\n" + TAIL % "E", 1e-6),
        (
            "_, _, width = h.shape\nassert width == 4096\nEPS = 1e-6\n"
            "s = h.to(torch.float32) + r.to(torch.float32)\n" + TAIL % "EPS",
            1e-6,
        ),
    ],
)
def test_an_epsilon_may_be_a_number_wherever_it_stands(body: str, epsilon: float) -> None:
    """What a harness's references say inside ``run`` is what the kernels are given."""
    found = recognised(norm(body, scalar=False))
    assert found.op_type == "rmsnorm"
    assert {route.name for route in kernel_routes(found)} == {"triton", "cuda"}
    roles = norm_roles(found)
    assert roles is not None and roles.epsilon == epsilon


def plain_norm(body: str, hidden: str = "H") -> Operator:
    """Rows alone: nothing is added before."""
    source = "import torch\n\n@torch.no_grad()\ndef run(h, w):\n"
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    return operator(source + lines, {"h": ("B", hidden), "w": (hidden,)}, ("B", hidden))


@pytest.mark.parametrize("hidden", ["128", "512", "1536", "2048", "4096", "7168"])
@pytest.mark.parametrize(
    ("body", "epsilon"),
    [
        (
            "rows, width = h.shape\nassert width > 0\nTINY = 1e-6\nf = h.to(torch.float32)\n"
            "n = f * torch.rsqrt(f.pow(2).mean(dim=-1, keepdim=True) + TINY)\n"
            "return (n * w.to(torch.float32)).to(h.dtype)",
            1e-6,
        ),
        ("return w * (h / torch.sqrt(1e-5 + (h * h).mean(-1, keepdim=True)))", 1e-5),
        (
            "s = torch.mean(h.float() ** 2, -1, keepdim=True)\nreturn h * (s + 1e-6) ** -0.5 * w",
            1e-6,
        ),
    ],
)
def test_rows_alone_are_normalised_by_the_same_routes(
    body: str, epsilon: float, hidden: str
) -> None:
    plain = plain_norm(body, hidden)
    found = recognised(plain)
    assert (found.op_type, found.fingerprint) == ("rmsnorm", plain.fingerprint)
    assert {route.name for route in kernel_routes(found)} == {"triton", "cuda"}
    roles = norm_roles(found)
    assert roles is not None
    assert (roles.x, roles.residual, roles.weight, roles.summed) == ("h", None, "w", None)
    assert roles.epsilon == epsilon


@pytest.mark.parametrize(
    "body",
    [
        "return h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6)",  # no weight
        "return w * h * torch.rsqrt(h.square().mean(-1, keepdim=True))",  # no epsilon
        "return (1 + w) * h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6)",
        "c = h - h.mean(-1, keepdim=True)\n"
        "return w * c * torch.rsqrt(c.square().mean(-1, keepdim=True) + 1e-6)",
        "return w * h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6) + h",
        "return w * h * torch.rsqrt(h.square().mean(0, keepdim=True) + 1e-6)",
        "return w * h * torch.rsqrt(h.square().sum(-1, keepdim=True) + 1e-6)",
    ],
)
def test_rows_otherwise_scaled_are_not_guessed_at(body: str) -> None:
    assert recognised(plain_norm(body)).op_type == ""


def test_an_extent_is_no_number_that_is_known() -> None:
    body = "_, _, n = h.shape\ns = h + r\nreturn w * s * torch.rsqrt((s * s).mean(-1, True) + n)"
    assert recognised(norm(body, scalar=False)).op_type == ""


def gated(body: str) -> Operator:
    shapes: dict[str, tuple[str, ...] | None] = {
        "x": ("B", "S", "H"),
        "g": ("I", "H"),
        "u": ("I", "H"),
    }
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    return operator(f"import math\n\ndef run(x, g, u):\n{lines}", shapes, ("B", "S", "I"))


@pytest.mark.parametrize(
    "body",
    [
        "a = torch.matmul(x, g.t())\nreturn torch.nn.functional.silu(a) * torch.matmul(x, u.t())",
        "a = x @ g.T\nreturn a.float() * torch.sigmoid(a) * (x @ u.T)",
        "a = F.linear(x, g)\nb = F.linear(x, u)\nreturn b * (a / (1 + torch.exp(-a)))",
        "return F.gelu(x @ g.T, approximate='tanh') * (x @ u.T)",
        "c = math.sqrt(2.0 / math.pi)\na = x @ g.T\nf = a.to(torch.float32)\n"
        "i = c * (f + 0.044715 * f.pow(3))\nb = 0.5 * f * (1.0 + torch.tanh(i))\n"
        "return b.to(a.dtype) * (x @ u.T)",
    ],
)
def test_a_gated_projection_is_recognised_however_it_is_written(body: str) -> None:
    assert recognised(gated(body)).op_type == "gated_projection"


@pytest.mark.parametrize(
    "body",
    [
        "return F.gelu(x @ g.T) * (x @ u.T)",  # the exact form, not the tanh form
        "return F.silu(x @ u.T) * (x @ g.T)",  # the second weight gates: another order
        "return F.silu(x @ g.T) * (x @ g.T)",
        "return torch.relu(x @ g.T) * (x @ u.T)",
        "a = x @ g.T\nreturn a * torch.sigmoid(1.702 * a) * (x @ u.T)",
        "a = x @ g.T\nreturn 0.5 * a * (1 + torch.tanh(0.8 * (a + 0.044715 * a ** 3))) * (x @ u.T)",
        "return F.silu(x @ g) * (x @ u)",
    ],
)
def test_what_is_no_gated_projection_is_not_guessed_at(body: str) -> None:
    assert recognised(gated(body)).op_type == ""


def test_packaged_problems_are_what_they_say() -> None:
    for name in packaged_problems():
        plain = packaged_problem(name).operator
        assert recognised(plain).op_type == plain.op_type
    for name in ("gemm_residual", "add_rmsnorm_bf16", "rmsnorm", "swiglu", "geglu"):
        bare = packaged_problem(name).operator
        unnamed = Operator(
            name="x",
            axes=bare.axes,
            inputs=bare.inputs,
            outputs=bare.outputs,
            reference=bare.reference,
        )
        assert recognised(unnamed).op_type == bare.op_type
