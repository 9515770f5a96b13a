"""How much shared memory a Triton product takes, from its genes: what surely does not fit.

Read off what Triton 3.6 reports for some hundred genomes of Hopper and some dozen of Blackwell.
Nothing that fits is refused.
"""

from __future__ import annotations

from kernelarc.genomes.kernels import DeviceLimits

# Tiles below 64 rows are multiplied by warps alone, which keep the newest stage in registers.
_BUFFERS = "((loop_stages == 0) * num_stages + loop_stages - (block_m < 64))"
# A cluster of two shares out the longer side of a tile.
_LONGER = "((block_m >= block_n) * block_m + (block_m < block_n) * block_n)"
_STAGE = f"(block_m + block_n - (num_ctas - 1) * {_LONGER} // 2) * block_k * 2"
_BARRIER_BYTES = 8  # a stage that TMA fills has one
_STORED = "block_m * block_n * 2 // epilogue_parts"
# Halves of a tile whose columns are divided among warps change hands before they are stored.
_EXCHANGED = "(epilogue_parts - 1) * (block_m == 64) * (num_warps > 4) * block_m * block_n"
_EXCHANGED_BYTES = {9: "* 2", 10: "// 2"}  # by the first figure of the compute capability


def shared_memory(device: DeviceLimits) -> tuple[str, ...]:
    """Return the constraints that a device's shared memory sets, as text.

    Stages of both factors; where programs take several tiles (a genome has ``flatten`` there), what
    the last one stores by TMA lies beside the stages of the next.
    """
    found = [f"{_BUFFERS} * ({_STAGE} + {_BARRIER_BYTES} * (load == 'descriptor'))"]
    exchanged = _EXCHANGED_BYTES.get(device.compute_capability[0])
    if exchanged is not None:
        loaded = f"{_BUFFERS} * (block_m + block_n) * block_k * 2"
        halves = f"flatten * {_EXCHANGED} {exchanged}"
        stored = f"{_BUFFERS} * {_BARRIER_BYTES} + store_descriptor * {_STORED}"
        found += [f"{loaded} + {halves}", f"{loaded} + {halves} + {stored}"]
    return tuple(f"{text} <= {device.shared_bytes}" for text in found)
