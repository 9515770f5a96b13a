"""When torch's baselines may be captured, and what is done before; torch's GPU side is scripted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kernelarc.bench.kernels._messages import TORCH_COMPILED, TORCH_EAGER
from kernelarc.bench.kernels._program import LaunchRefusedError
from kernelarc.bench.kernels._torch_launchable import TorchLaunchable


class Script:
    """Stands for torch on a GPU, and for the oracle; keeps what happened in order.

    Args:
        waits: By call, whether it waits for the device: the last of them for all that follow.
        fails: Whether it fails whatever is allowed.
    """

    class Tensor:
        """Nobody hands any over."""

    def __init__(self, waits: tuple[bool, ...], *, fails: bool = False) -> None:
        self._waits, self._fails = waits, fails
        self.mode, self.calls = "default", 0
        self.done: list[str] = []
        self.cuda = SimpleNamespace(
            ExternalStream=lambda pointer: pointer,
            stream=lambda stream: contextlib.nullcontext(),
            get_sync_debug_mode=lambda: self.mode,
            set_sync_debug_mode=self._set,
            MemPool=lambda: self.done.append("pool"),
            use_mem_pool=self._pooled,
        )
        self.float4_e2m1fn_x2, self.no_grad = "float4_e2m1fn_x2", contextlib.nullcontext

    def _set(self, mode: str) -> None:
        self.mode = mode

    @contextlib.contextmanager
    def _pooled(self, pool: Any) -> Iterator[None]:
        self.done.append("in")
        yield
        self.done.append("out")

    def run(self) -> None:
        """Do what the baseline does."""
        waits = self._waits[min(self.calls, len(self._waits) - 1)]
        self.calls += 1
        if self._fails or (waits and self.mode == "error"):
            raise RuntimeError("called a synchronizing CUDA operation")

    def give_back(self, below: float) -> None:
        """Take note."""
        assert 0.0 < below <= 1.0
        self.done.append("given back")


def launchable(script: Script, name: str) -> TorchLaunchable:
    oracle: Any = SimpleNamespace(
        torch=script,
        calls=lambda: {name: script.run},
        natives=lambda buffers: [],
        give_back=script.give_back,
    )
    return TorchLaunchable(oracle, SimpleNamespace(ptr=0), name)


@pytest.mark.parametrize(
    ("name", "waits", "wanted"),
    [
        (TORCH_COMPILED, (True, False), True),  # its compiler waits, it does not
        (TORCH_COMPILED, (True,), False),
        (TORCH_EAGER, (False,), True),
        (TORCH_EAGER, (True, False), False),  # nothing is compiled: its first call is as any other
    ],
)
def test_a_compiler_that_waits_does_not_keep_a_baseline_from_capture(
    name: str, waits: tuple[bool, ...], *, wanted: bool
) -> None:
    script = Script(waits)
    one, buffers = launchable(script, name), SimpleNamespace()
    assert one.captures(buffers) is wanted  # type: ignore[arg-type]
    assert script.mode == "default"
    calls = script.calls
    assert one.captures(buffers) is wanted  # type: ignore[arg-type]
    assert script.calls == calls, "found out once"


def test_what_does_not_run_at_all_is_not_captured_and_says_why_when_called() -> None:
    script = Script((False,), fails=True)
    one, buffers = launchable(script, TORCH_COMPILED), SimpleNamespace()
    assert one.captures(buffers) is False  # type: ignore[arg-type]
    assert script.calls == 1
    with pytest.raises(LaunchRefusedError, match="RuntimeError: called a synchronizing"):
        one.call(buffers)()  # type: ignore[arg-type]


def test_what_torch_keeps_is_given_back_before_a_capture_begins() -> None:
    script = Script((False,))
    with launchable(script, TORCH_EAGER).capturing():
        script.done.append("captured")
    assert script.done == ["given back", "pool", "in", "captured", "out"]
