"""What torch has of its own for the packaged problems: each form does what the reference says."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from kernelarc.bench._numerics import CAP_FACTOR
from kernelarc.bench._reference import function_of
from kernelarc.genomes import (
    Operator,
    TensorSpec,
    TorchForm,
    packaged_problem,
    packaged_problems,
    torch_forms,
)

NAMES = {
    "gemm_residual": ["addmm"],
    "moe_swiglu_backward": ["products"],
    "moe_swiglu_saved_backward": ["products", "pairs"],
    "moe_layer_backward": ["grouped"],
    "moe_layer_backward_wide": ["grouped"],
    "add_rmsnorm_bf16": ["rms_norm"],
    "rmsnorm": ["rms_norm"],
    "swiglu": ["silu"],
    "geglu": ["gelu"],
    "decoder_block": ["sdpa"],
    "nvfp4_gqa": ["bf16"],
    "gqa_paged_prefill": ["flash", "flash_bound", "flash_each"],
    "gqa_paged_decode": ["flash_bound", "flash_each", "padded"],
    "gqa_ragged_prefill": ["flash", "flash_bound", "flash_each"],
}

# Grouped products want rows of whole 16 bytes; few keys hide what rounded scores do.
WIDER = {
    "moe_swiglu_saved_backward": {"tokens": 48, "hidden": 128, "intermediate": 96},
    "nvfp4_gqa": {"seq_len": 160, "head_dim": 128, "packed": 64, "blocks": 8},
    "moe_layer_backward": {
        "hidden": 32,
        "intermediate": 24,
        "shared_intermediate": 16,
        "experts": 9,
    },
    "moe_layer_backward_wide": {"hidden": 16, "intermediate": 8, "shared_intermediate": 16},
}


# A form that rounds between its products, where the tolerance has no room for it: a result near
# zero is a difference of much larger ones. It is no baseline there; this share of it is right.
ROUNDED = {("moe_swiglu_saved_backward", "products"): 0.95}


def forms_of(name: str) -> tuple[TorchForm, ...]:
    return torch_forms(packaged_problem(name).operator)


@pytest.mark.parametrize("name", packaged_problems())
def test_every_packaged_problem_has_what_torch_has(name: str) -> None:
    forms = forms_of(name)
    assert [form.name for form in forms] == NAMES[name]
    for form in forms:
        space: dict[str, Any] = {}
        compile(form.source, form.name, "exec")
        assert f"def {form.function}(" in form.source
        assert "kernelarc" not in form.source, "a solution needs nothing of ours"
        assert not space


def test_names_of_tensors_play_no_part_and_other_jobs_have_none() -> None:
    operator = packaged_problem("gqa_paged_prefill").operator
    tensors = (*operator.inputs, *operator.outputs)
    others = [
        TensorSpec(name=f"t{i}", shape=spec.shape, dtype=spec.dtype)
        for i, spec in enumerate(tensors)
    ]
    renamed = Operator(
        name="another",
        axes=operator.axes,
        inputs=tuple(others[: len(operator.inputs)]),
        outputs=tuple(others[len(operator.inputs) :]),
    )
    assert [form.name for form in torch_forms(renamed)] == NAMES["gqa_paged_prefill"]
    fewer = Operator(
        name="another", axes=operator.axes, inputs=renamed.inputs[1:], outputs=renamed.outputs
    )
    assert torch_forms(fewer) == ()


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch", reason="the forms are written with torch")


@pytest.fixture(scope="module")
def _flash(torch: Any) -> Iterator[None]:
    """Give what torch has for GPUs alone slow twins on the CPU.

    These are its flash attention, and products of 16-bit types whose results are float32.

    What is tested is all around it: a gather, bounds, sums. On a GPU a form is checked again
    before it counts.
    """

    def attended(q: Any, k: Any, v: Any, scale: float, causal: bool) -> tuple[Any, Any]:
        group = q.shape[1] // k.shape[1]
        k, v = (t.float().repeat_interleave(group, dim=1) for t in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q.float(), k) * scale
        if causal:
            ahead = k.shape[0] - q.shape[0]
            seen = torch.ones(scores.shape[1:], dtype=torch.bool).tril(ahead)
            scores = scores.masked_fill(~seen, -math.inf)
        sums = torch.logsumexp(scores, dim=-1)
        weights = torch.exp(scores - sums.where(sums > -math.inf, 0.0)[..., None])
        sums = torch.where(sums == -math.inf, math.inf, sums)  # as torch's own says it
        return torch.einsum("hqk,khd->qhd", weights, v).to(q.dtype), sums

    def forward(
        q: Any, k: Any, v: Any, q_at: Any, k_at: Any, most_q: int, most_k: int, p: float,
        causal: bool, debug: bool, *, scale: float, **more: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        none = torch.empty(0)
        if q_at is None:
            assert (q.shape[:2], k.shape[1]) == ((1, most_q), most_k)
            out, sums = attended(q[0], k[0], v[0], scale, causal)
            return out[None], sums[None], none, none, none
        out, sums = torch.zeros_like(q), torch.full((q.shape[1], q.shape[0]), math.inf)
        assert q_at.dtype == k_at.dtype == torch.int32
        assert most_q > 1 or q.shape[0] == q_at.shape[0] - 1, "torch reshapes by sequences"
        pairs = list(zip(q_at.tolist(), k_at.tolist(), strict=True))
        for (begin, first), (end, last) in pairwise(pairs):
            assert end - begin <= most_q
            assert last - first <= most_k
            if end > begin:
                part = attended(q[begin:end], k[first:last], v[first:last], scale, causal)
                out[begin:end], sums[:, begin:end] = part
        return out, sums, none, none, none

    def multiplied(left: Any, right: Any, out_dtype: Any) -> Any:
        return torch.mm(left.to(out_dtype), right.to(out_dtype))

    library = torch.library.Library("aten", "IMPL")
    library.impl("_flash_attention_forward", forward, "CPU")
    library.impl("mm.dtype", multiplied, "CPU")
    yield
    library._destroy()


@pytest.mark.usefixtures("_flash")
@pytest.mark.parametrize("kind", ["flash", "flash_bound", "flash_each"])
def test_one_query_among_sequences_without_any_is_right(torch: Any, kind: str) -> None:
    problem = packaged_problem("gqa_paged_prefill")
    (form,) = (form for form in forms_of("gqa_paged_prefill") if form.name == kind)
    torch.manual_seed(3)
    q = torch.randn(1, 4, 16, dtype=torch.bfloat16)
    k, v = (torch.randn(9, 1, 2, 16, dtype=torch.bfloat16) for _ in "kv")
    q_at, k_at = (torch.tensor(at, dtype=torch.int32) for at in ([0, 0, 1], [0, 3, 8]))
    pages = torch.randperm(9)[:8].to(torch.int32)
    from tests.unit.test_operator_references import space_of, widened

    given = q, k, v, q_at, k_at, pages, 0.25
    wanted = space_of(problem.operator)["run"](*map(widened, given))
    for own, right in zip(_called(form)(*given), wanted, strict=True):
        torch.testing.assert_close(own.double(), right.double(), atol=0.02, rtol=0.02)


def _called(form: TorchForm) -> Any:
    return function_of(form.source, form.function)


def _cases(*, compiling: bool = False) -> list[Any]:
    return [
        pytest.param(name, form.name, id=f"{name}-{form.name}")
        for name in NAMES
        for form in forms_of(name)
        if form.compiles or not compiling
    ]


@pytest.mark.usefixtures("_flash")
@pytest.mark.parametrize(("name", "kind"), _cases())
@pytest.mark.parametrize("sequences", [1, 3])
def test_a_form_does_what_the_reference_says(
    torch: Any, name: str, kind: str, sequences: int
) -> None:
    from tests.unit.test_operator_references import SMALL, inputs_of, space_of, widened

    problem, small = packaged_problem(name), dict(SMALL[name])
    if name.startswith("gqa"):
        small |= {"len_indptr": sequences + 1, "head_dim": 16}
        small |= {"batch_size": sequences} if "batch_size" in small else {}
    elif sequences > 1:
        pytest.skip("only attention over many sequences has many sequences")
    small |= WIDER.get(name, {})
    torch.manual_seed(11)
    inputs = inputs_of(problem, small)
    if name == "moe_layer_backward":  # one expert is nobody's choice
        inputs["selected_experts"][inputs["selected_experts"] == 4] = 3
    wanted = space_of(problem.operator)["run"](*(widened(value) for value in inputs.values()))
    (form,) = (form for form in forms_of(name) if form.name == kind)
    kept = [value.clone() if hasattr(value, "clone") else value for value in inputs.values()]
    with torch.no_grad():
        found = _called(form)(*inputs.values())
    for value, before in zip(inputs.values(), kept, strict=True):
        if hasattr(value, "clone"):
            kinds = (one.reshape(-1).view(torch.uint8) for one in (value, before))
            assert torch.equal(*kinds), "an input was written to"
    wanted, found = (one if isinstance(one, tuple) else (one,) for one in (wanted, found))
    tolerance = problem.workloads[0].tolerance
    for spec, own, right in zip(problem.operator.outputs, found, wanted, strict=True):
        assert str(own.dtype) == f"torch.{spec.dtype}", spec.name
        assert own.shape == right.shape, spec.name
        x, y = (t.double().numpy() for t in (own, right))
        gone = np.isneginf(y)
        assert np.array_equal(np.isneginf(x), gone), spec.name
        x, y = x[~gone], y[~gone]
        rms = math.sqrt(float((y**2).mean()))
        bound = tolerance.max_atol * min(1.0, rms) + tolerance.max_rtol * np.abs(y)
        floor = tolerance.max_atol * min(1.0, rms) + tolerance.max_rtol * rms
        error = np.abs(x - y)
        ratio = ROUNDED.get((name, kind), tolerance.required_matched_ratio)
        assert (error <= bound).mean() >= ratio, spec.name
        assert (error <= CAP_FACTOR * np.maximum(bound, floor)).all(), spec.name


@pytest.mark.usefixtures("_flash")
@pytest.mark.parametrize(("name", "kind"), _cases(compiling=True))
def test_what_never_asks_the_device_is_one_graph(torch: Any, name: str, kind: str) -> None:
    """Traced by torch.compile's front end; code for a GPU needs a GPU."""
    from tests.unit.test_operator_references import SMALL, inputs_of

    (form,) = (form for form in forms_of(name) if form.name == kind)
    small = dict(SMALL[name])
    small |= WIDER.get(name, {})
    inputs = inputs_of(packaged_problem(name), small)
    given = [
        value.view(torch.uint8) if "float4" in str(getattr(value, "dtype", "")) else value
        for value in inputs.values()
    ]
    torch._dynamo.reset()  # what it keeps is counted over all that were compiled
    whole = torch.compile(_called(form), fullgraph=True, dynamic=False, backend="eager")
    with torch.no_grad():
        found, wanted = whole(*given), _called(form)(*inputs.values())
    for own, right in zip(
        *(one if isinstance(one, tuple) else (one,) for one in (found, wanted)), strict=True
    ):
        torch.testing.assert_close(own, right, atol=0.02, rtol=0.02)
