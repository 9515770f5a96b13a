"""Tune a kernel where a program calls it: ``kernelarc.autotune`` stands for ``triton.autotune``.

The first call of each key searches in another process; every later call, and every later run of
this program, reads what was found. It needs ``kernelarc[cuda,triton]``, PyTorch and an NVIDIA GPU:
``python examples/triton_decorator.py``.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
# ruff: noqa: PLR0917

import logging
import time

import torch
import triton
import triton.language as tl

import kernelarc


@kernelarc.autotune(
    configs=[triton.Config({"BLOCK": 1024}, num_warps=4)],  # what you run today comes first
    key=["n"],
    budget=40,  # evaluations of one key's search; "20s" would be seconds
    store="autotune.db",  # the user's own where it is left out
)
@triton.jit
def scaled_add(x, y, out, n, alpha, BLOCK: tl.constexpr):
    """Compute out = x + alpha * y."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    result = tl.load(x + at, mask=inside) + alpha * tl.load(y + at, mask=inside)
    tl.store(out + at, result, mask=inside)


def add(x, y, alpha):
    """Call the kernel as any Triton kernel is called."""
    out = torch.empty_like(x)
    grid = lambda call: (triton.cdiv(x.numel(), call["BLOCK"]),)  # noqa: E731
    scaled_add[grid](x, y, out, x.numel(), alpha)
    return out


def main() -> None:
    """Call it twice and say how long each call took."""
    logging.basicConfig()
    x, y = (torch.randn(1 << 26, device="cuda") for _ in range(2))
    for turn in ("first", "second"):
        begun = time.perf_counter()
        out = add(x, y, 0.5)
        torch.cuda.synchronize()
        taken = time.perf_counter() - begun
        print(f"{turn} call: {taken:.3f} s with {scaled_add.best_config}")
    assert torch.allclose(out, x + 0.5 * y)


if __name__ == "__main__":
    main()
