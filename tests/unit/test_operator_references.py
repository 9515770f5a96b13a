"""Every packaged reference against a float64 computation written down independently in NumPy.

Shapes are small. The reference runs in float64 (where it must agree to rounding) and in its own
types (where it must agree within a workload's tolerance).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernelarc.bench._reference import reference_of
from kernelarc.genomes import Operator, Problem, packaged_problem, packaged_problems

torch = pytest.importorskip("torch", reason="the references are written with torch")

Array = NDArray[np.float64]
Oracle = Callable[..., "tuple[Array, ...]"]

SMALL: Mapping[str, Mapping[str, int]] = {
    "gemm_residual": {"batch": 2, "seq": 5, "in_features": 24, "out_features": 16},
    "moe_swiglu_backward": {"tokens": 7, "hidden": 12, "intermediate": 9},
    "moe_swiglu_saved_backward": {"tokens": 7, "hidden": 12, "intermediate": 9},
    "moe_layer_backward": {
        "tokens": 11,
        "hidden": 12,
        "intermediate": 6,
        "shared_intermediate": 10,
        "experts": 5,
        "top_k": 2,
    },
    "moe_layer_backward_wide": {
        "tokens": 6,
        "hidden": 10,
        "intermediate": 7,
        "shared_intermediate": 5,
        "experts": 4,
        "top_k": 3,
    },
    "add_rmsnorm_bf16": {"rows": 6, "hidden": 40},
    "rmsnorm": {"rows": 6, "hidden": 40},
    "swiglu": {"batch": 2, "seq": 3, "hidden": 16, "intermediate": 20},
    "geglu": {"batch": 2, "seq": 3, "hidden": 16, "intermediate": 20},
    "decoder_block": {
        "batch": 2,
        "seq": 6,
        "hidden": 24,
        "query_heads": 4,
        "kv_heads": 2,
        "head": 8,
        "intermediate": 20,
        "query_features": 32,
        "kv_features": 16,
    },
    "nvfp4_gqa": {
        "batch_size": 2,
        "seq_len": 6,
        "query_heads": 4,
        "kv_heads": 2,
        "head_dim": 32,
        "packed": 16,
        "blocks": 2,
    },
    "gqa_paged_prefill": {
        "total_q": 13,
        "num_pages": 40,
        "len_indptr": 4,
        "num_kv_indices": 17,
        "num_qo_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
        "page_size": 3,
    },
    "gqa_paged_decode": {
        "batch_size": 4,
        "num_pages": 30,
        "len_indptr": 5,
        "num_kv_indices": 11,
        "num_qo_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
        "page_size": 3,
    },
    "gqa_ragged_prefill": {
        "total_q": 13,
        "total_kv": 20,
        "len_indptr": 4,
        "num_qo_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
    },
}


def silu(x: Array) -> Array:
    return x * (1 / (1 + np.exp(-x)))


def soft(scores: Array) -> Array:
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    shares: Array = raised / raised.sum(-1, keepdims=True)
    return shares


def normed(x: Array, weight: Array, eps: float) -> Array:
    size = np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    scaled: Array = x / size * weight
    return scaled


def gemm_residual(x: Array, weight: Array, residual: Array) -> tuple[Array, ...]:
    return (np.einsum("bsk,nk->bsn", x, weight) + residual,)


def expert(x: Array, gate: Array, up: Array, down: Array) -> Array:
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T


def slopes(of: Callable[[], float], arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    """Return the gradient of a number by central differences: slow, and knows no formula."""
    found = []
    for array in arrays:
        grad = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            kept, step = array[place], 1e-5
            array[place] = kept + step
            above = of()
            array[place] = kept - step
            grad[place] = (above - of()) / (2 * step)
            array[place] = kept
        found.append(grad)
    return tuple(found)


def moe_swiglu_backward(
    grad_output: Array, x: Array, gate: Array, up: Array, down: Array
) -> tuple[Array, ...]:
    return slopes(
        lambda: float((expert(x, gate, up, down) * grad_output).sum()), (x, gate, up, down)
    )


def moe_swiglu_saved_backward(
    grad_output: Array, x: Array, gate_proj: Array, up_proj: Array, down_proj: Array,
    gate: Array, sigmoid: Array, silu: Array, up: Array, inner: Array,
) -> tuple[Array, ...]:  # fmt: skip
    """Element by element, from what was kept alone."""
    (tokens, hidden), width = x.shape, len(gate_proj)
    grads = [np.zeros_like(a) for a in (x, gate_proj, up_proj, down_proj)]
    for t in range(tokens):
        for i in range(width):
            back = sum(grad_output[t, h] * down_proj[h, i] for h in range(hidden))
            s = sigmoid[t, i]
            by_gate = back * up[t, i] * (s + gate[t, i] * s - gate[t, i] * s**2)
            by_up = back * silu[t, i]
            for h in range(hidden):
                grads[0][t, h] += by_gate * gate_proj[i, h] + by_up * up_proj[i, h]
                grads[1][i, h] += by_gate * x[t, h]
                grads[2][i, h] += by_up * x[t, h]
                grads[3][h, i] += grad_output[t, h] * inner[t, i]
    return tuple(grads)


def moe_layer_backward(
    grad_output: Array,
    x: Array,
    routing: Array,
    selected: NDArray[np.int64],
    gate: Array,
    up: Array,
    down: Array,
    *shared: Array,
) -> tuple[Array, ...]:
    def loss() -> float:
        total = float((expert(x, *shared) * grad_output).sum())
        for token, choices in enumerate(selected):
            for slot, e in enumerate(choices):
                part = expert(x[token : token + 1], gate[e], up[e], down[e])[0]
                total += float(routing[token, slot] * (part @ grad_output[token]))
        return total

    return slopes(loss, (x, routing, gate, up, down, *shared))


def moe_layer_backward_wide(*given: Any) -> tuple[Array, ...]:
    return moe_layer_backward(*given)


def add_rmsnorm_bf16(x: Array, residual: Array, weight: Array, eps: float) -> tuple[Array, ...]:
    return (normed(x + residual, weight, eps),)


def rmsnorm(x: Array, weight: Array) -> tuple[Array, ...]:
    return (normed(x, weight, 1e-6),)


def swiglu(x: Array, gate: Array, up: Array) -> tuple[Array, ...]:
    return (silu(np.einsum("bsh,ih->bsi", x, gate)) * np.einsum("bsh,ih->bsi", x, up),)


def geglu(x: Array, gate: Array, up: Array) -> tuple[Array, ...]:
    z = np.einsum("bsh,ih->bsi", x, gate)
    gelu = z / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
    return (gelu * np.einsum("bsh,ih->bsi", x, up),)


def decoder_block(
    x: Array, cos: Array, sin: Array, w1: Array, wq: Array, wk: Array, wv: Array, nq: Array,
    nk: Array, wo: Array, w2: Array, gate: Array, up: Array, down: Array, eps: float,
) -> tuple[Array, ...]:  # fmt: skip
    batch, seq, _ = x.shape
    head = len(nq)
    h = normed(x, w1, eps)
    mixed = np.zeros((batch, seq, len(wq)))
    for b in range(batch):
        keys, values = h[b] @ wk.T, h[b] @ wv.T
        for n in range(len(wq) // head):
            g = n // (len(wq) // len(wk))
            q = rotated(normed((h[b] @ wq.T)[:, n * head :][:, :head], nq, eps), cos, sin)
            k = rotated(normed(keys[:, g * head :][:, :head], nk, eps), cos, sin)
            for i in range(seq):
                weights = soft((k[: i + 1] @ q[i]) / math.sqrt(head))
                mixed[b, i, n * head :][:head] = weights @ values[: i + 1, g * head :][:, :head]
    middle = x + mixed @ wo.T
    return (middle + expert(normed(middle, w2, eps), gate, up, down),)


def rotated(x: Array, cos: Array, sin: Array) -> Array:
    half = x.shape[-1] // 2
    out = x * cos
    out[:, :half] -= x[:, half:] * sin[:, :half]
    out[:, half:] += x[:, :half] * sin[:, half:]
    return out


def nvfp4_gqa(*given: Any) -> tuple[Array, ...]:
    q, k, v = (decoded(*given[place : place + 3]) for place in (0, 3, 6))
    batch, heads, seq, head = q.shape
    output, weights = np.zeros_like(q), np.zeros((batch, heads, seq, seq))
    for b in range(batch):
        for n in range(heads):
            g = n // (heads // k.shape[1])
            weights[b, n] = soft(q[b, n] @ k[b, g].T / math.sqrt(head))
            output[b, n] = weights[b, n] @ v[b, g]
    return output, weights


def decoded(codes: NDArray[np.uint8], scales: Array, whole: Array) -> Array:
    """Take e2m1 apart: sign, two bits of exponent, one of mantissa; the low half comes first."""
    out = np.zeros((*codes.shape[:-1], codes.shape[-1] * 2))
    for place in np.ndindex(codes.shape):
        for half in (0, 1):
            bits = int(codes[place]) >> (4 * half) & 15
            exponent, mantissa = bits >> 1 & 3, bits & 1
            size = mantissa / 2 if exponent == 0 else 2.0 ** (exponent - 1) * (1 + mantissa / 2)
            at = (*place[:-1], 2 * place[-1] + half)
            scale = scales[(*place[:-1], at[-1] // 16)]
            out[at] = (-size if bits & 8 else size) * scale * float(whole)
    return out


def gqa_paged_prefill(
    q: Array, k_cache: Array, v_cache: Array, qo: Any, kv: Any, pages: Any, scale: float
) -> tuple[Array, ...]:
    output, lse = np.zeros_like(q), np.full(q.shape[:2], -np.inf)
    for n in range(len(qo) - 1):
        held = pages[kv[n] : kv[n + 1]]
        keys, values = (c[held].reshape(-1, *c.shape[2:]) for c in (k_cache, v_cache))
        for i in range(qo[n + 1] - qo[n]):
            seen = i + 1 + len(keys) - (qo[n + 1] - qo[n])
            for h in range(q.shape[1] if seen > 0 else 0):
                g = h // (q.shape[1] // k_cache.shape[2])
                scores = keys[:seen, g] @ q[qo[n] + i, h] * scale
                output[qo[n] + i, h] = soft(scores) @ values[:seen, g]
                lse[qo[n] + i, h] = math.log2(np.exp(scores).sum())
    return output, lse


def gqa_paged_decode(
    q: Array, k_cache: Array, v_cache: Array, kv: Any, pages: Any, scale: float
) -> tuple[Array, ...]:
    """Return decoding as the prefill of one query a sequence."""
    return gqa_paged_prefill(q, k_cache, v_cache, range(len(q) + 1), kv, pages, scale)


def gqa_ragged_prefill(
    q: Array, k: Array, v: Array, qo: Any, kv: Any, scale: float
) -> tuple[Array, ...]:
    """Return ragged keys as pages of one key, in order."""
    pages = np.arange(len(k))
    return gqa_paged_prefill(q, k[:, None], v[:, None], qo, kv, pages, scale)


ORACLES: Mapping[str, Oracle] = {
    oracle.__name__: oracle
    for oracle in (
        gemm_residual,
        moe_swiglu_backward,
        moe_swiglu_saved_backward,
        moe_layer_backward,
        moe_layer_backward_wide,
        add_rmsnorm_bf16,
        rmsnorm,
        swiglu,
        geglu,
        decoder_block,
        nvfp4_gqa,
        gqa_paged_prefill,
        gqa_paged_decode,
        gqa_ragged_prefill,
    )
}


def space_of(operator: Operator) -> dict[str, Any]:
    space: dict[str, Any] = {}
    exec(operator.reference or "", space)
    return space


def inputs_of(problem: Problem, small: Mapping[str, int]) -> dict[str, Any]:
    """Return small inputs in the operator's own types."""
    operator = problem.operator
    if operator.custom_inputs:
        made: dict[str, Any] = space_of(operator)[operator.custom_inputs](dict(small), "cpu")
        return made
    found: dict[str, Any] = {}
    for spec in operator.inputs:
        if spec.shape is None:
            found[spec.name] = problem.workloads[0].inputs[spec.name]["value"]
        else:
            shape = [small[axis] for axis in spec.shape]
            matrix = len(shape) > 1 and spec.name.endswith(("proj", "weight"))
            drawn = torch.randn(shape) / (math.sqrt(shape[-1]) if matrix else 1.0)
            found[spec.name] = drawn.to(getattr(torch, spec.dtype))
    return found


def widened(value: Any) -> Any:
    """Return floating-point tensors in float64; packed codes stay as they are."""
    if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
        return value
    return value if value.element_size() == 1 and "float4" in str(value.dtype) else value.double()


def for_numpy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    packed = "float4" in str(value.dtype)
    return (value.view(torch.uint8) if packed else widened(value)).clone().numpy()


@pytest.mark.parametrize("name", packaged_problems())
def test_a_reference_agrees_with_its_oracle(name: str) -> None:
    torch.manual_seed(7)
    problem, small = packaged_problem(name), SMALL[name]
    operator, run = problem.operator, space_of(problem.operator)["run"]
    assert set(small) == set(operator.axes)
    inputs = inputs_of(problem, small)
    assert list(inputs) == [spec.name for spec in operator.inputs]
    expected = ORACLES[name](*map(for_numpy, inputs.values()))
    tolerance = problem.workloads[0].tolerance
    by_formula = name.startswith("moe")
    for wide in (True, False):
        answers = run(*(widened(v) if wide else v for v in inputs.values()))
        answers = answers if isinstance(answers, tuple) else (answers,)
        assert len(answers) == len(expected) == len(operator.outputs)
        for spec, answer, right in zip(operator.outputs, answers, expected, strict=True):
            assert list(answer.shape) == [small[axis] for axis in spec.shape or ()]
            found = answer.double().numpy()
            if wide:
                slack = 1e-7 if by_formula else 1e-12
                np.testing.assert_allclose(found, right, rtol=slack, atol=slack)
            else:
                assert str(answer.dtype) == f"torch.{spec.dtype}"
                finite = np.isfinite(right)
                assert np.array_equal(np.isfinite(found), finite)
                error = np.abs(found - right, where=finite, out=np.zeros_like(right))
                size = np.abs(right, where=finite, out=np.zeros_like(right))
                bound = tolerance.max_atol + tolerance.max_rtol * size
                assert float(np.mean(error <= bound)) >= tolerance.required_matched_ratio


def test_rows_that_see_nothing_give_zero_and_minus_infinity() -> None:
    problem = packaged_problem("gqa_paged_prefill")
    small = {**SMALL["gqa_paged_prefill"], "num_kv_indices": 3, "page_size": 1}
    torch.manual_seed(3)
    inputs = inputs_of(problem, small)
    output, lse = space_of(problem.operator)["run"](*inputs.values())
    blind = torch.isneginf(lse)
    assert bool(blind.any()) and not bool(blind.all())
    assert bool((output[blind] == 0).all())
    assert problem.workloads[0].tolerance.allow_negative_inf


def test_packaged_inputs_fit_their_shapes() -> None:
    for name in packaged_problems():
        problem = packaged_problem(name)
        if not problem.operator.custom_inputs:
            continue
        small = dict(SMALL[name])
        for spec in problem.operator.inputs:
            value = inputs_of(problem, small)[spec.name]
            if spec.shape is None:
                assert isinstance(value, float)
            else:
                assert list(value.shape) == [small[axis] for axis in spec.shape]
                assert str(value.dtype) == f"torch.{spec.dtype}"


def test_a_long_sum_s_own_rounding_stays_within_its_tolerance() -> None:
    """The reference in its own types, against itself in float64, at each workload's tokens."""
    torch.manual_seed(11)
    problem = packaged_problem("moe_swiglu_backward")
    run = space_of(problem.operator)["run"]
    for workload in problem.workloads:
        sizes = {"tokens": workload.axes["tokens"], "hidden": 128, "intermediate": 48}
        inputs = inputs_of(problem, sizes)
        rounded, exact = run(*inputs.values()), run(*map(widened, inputs.values()))
        tolerance = workload.tolerance
        for found, right in zip(rounded, exact, strict=True):
            bound = tolerance.max_atol + tolerance.max_rtol * right.abs()
            matched = ((found.double() - right).abs() <= bound).double().mean()
            assert float(matched) >= tolerance.required_matched_ratio, (workload.axes, matched)


@pytest.mark.parametrize("name", ["add_rmsnorm_bf16", "rmsnorm", "moe_swiglu_backward"])
def test_a_reference_can_be_handed_to_torch_compile(name: str) -> None:
    """As the device's bench does; it imports the module of what it compiles by its name."""
    problem, small = packaged_problem(name), SMALL[name]
    run = reference_of(problem.operator)
    compiled = torch.compile(
        getattr(run, "__wrapped__", run), dynamic=False, fullgraph=True, backend="eager"
    )
    axes = {axis: int(extent) for axis, extent in small.items()}
    given = [
        torch.randn([axes[n] for n in spec.shape]).bfloat16() if spec.shape else 1e-5
        for spec in problem.operator.inputs
    ]
    with torch.no_grad():
        found, wanted = compiled(*given), run(*given)
    for one, other in zip(
        found if isinstance(found, tuple) else (found,),
        wanted if isinstance(wanted, tuple) else (wanted,),
        strict=True,
    ):
        assert torch.equal(one, other)
