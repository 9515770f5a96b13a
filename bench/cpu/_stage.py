"""Everything that one workload needs in the worker: rotating buffers, values, exact answers."""

from __future__ import annotations

import numpy as np

from kernelarc.bench._buffers import GuardedBuffer, last_level_cache_bytes, rotation_count
from kernelarc.bench._inputs import present_inputs, shape_of
from kernelarc.bench._numerics import Comparison
from kernelarc.bench._reference import depth_of
from kernelarc.bench.cpu._references import Reference, ValueSource
from kernelarc.bench.cpu._screen import compare_by_rows
from kernelarc.bench.cpu._seal import Seal
from kernelarc.genomes import Operator, TensorSpec, Workload, axis_values

MOST_BYTES = 2 << 30
MOST_SLOTS = 128
"""Filling more would cost more than timing; where these do not exceed the caches, it is said."""


class BufferSet:
    """One set of guarded tensors: what a single call reads and writes.

    Attributes:
        inputs: The arrays of the inputs that take part, by name; a Python scalar is 0-D.
        outputs: The arrays of the outputs, by name.
    """

    def __init__(self, operator: Operator, workload: Workload) -> None:
        self._axes = axis_values(operator, workload)
        self._inputs = {s.name: self._buffer(s) for s in present_inputs(operator, workload)}
        self._outputs = {spec.name: self._buffer(spec) for spec in operator.outputs}
        self.inputs = {name: buffer.array for name, buffer in self._inputs.items()}
        self.outputs = {name: buffer.array for name, buffer in self._outputs.items()}

    def _buffer(self, spec: TensorSpec) -> GuardedBuffer:
        dtype = "float64" if spec.shape is None else spec.dtype
        return GuardedBuffer(shape_of(spec, self._axes), dtype)

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensors, without their guards."""
        return sum(array.nbytes for array in (*self.inputs.values(), *self.outputs.values()))

    def arguments(self, names: tuple[str, ...]) -> tuple[int | None, ...]:
        """Return addresses and axes in the order of a function's parameters."""
        return tuple(self._argument(name) for name in names)

    def _argument(self, name: str) -> int | None:
        if name in self._axes:
            return self._axes[name]
        buffer = self._inputs.get(name) or self._outputs.get(name)
        return None if buffer is None else buffer.address

    def poison(self) -> None:
        """Poison every output."""
        for buffer in self._outputs.values():
            buffer.poison()

    def unwritten(self) -> str | None:
        """Say which output still holds poison and how much, or None."""
        for name, buffer in self._outputs.items():
            if count := buffer.unwritten():
                return f"{name}: {count} of {buffer.array.size} elements were never written"
        return None

    def damage(self) -> str | None:
        """Say whose guard bands were written to, or None. Restores them."""
        found = [
            f"{name}: {damage}"
            for name, buffer in (*self._inputs.items(), *self._outputs.items())
            if (damage := buffer.damage()) is not None
        ]
        return "; ".join(found) or None


class Slot:
    """A buffer set with the values in it and what they must give."""

    def __init__(self, operator: Operator, workload: Workload, source: ValueSource) -> None:
        self._operator = operator
        self._workload = workload
        self._source = source
        self._depth = depth_of(operator, workload)
        self._reference: Reference | None = None
        self._seal: Seal | None = None
        self.buffers = BufferSet(operator, workload)

    def fill(self, rng: np.random.Generator) -> None:
        """Write fresh values; poison the outputs; seal the inputs."""
        self._reference = self._source.fill(self.buffers.inputs, rng)
        self._renew(rng)

    def stir(self, rng: np.random.Generator) -> None:
        """Change values so that the outputs change; poison and seal again."""
        if self._reference is None:
            self.fill(rng)
            return
        self._reference = self._source.stir(self.buffers.inputs, self._reference, rng)
        self._renew(rng)

    def _renew(self, rng: np.random.Generator) -> None:
        self.buffers.poison()
        self._seal = Seal(self.buffers.inputs, rng)

    def changed_inputs(self) -> tuple[str, ...]:
        """Return the names of inputs that differ from when they were sealed."""
        assert self._seal is not None
        return self._seal.broken()

    def spoil(self) -> None:
        """Forget values that can no longer be trusted: the next stir fills anew."""
        self._reference = None

    def compare(self, rows_of: np.random.Generator | None = None) -> dict[str, Comparison]:
        """Compare every output with what these values must give.

        Args:
            rows_of: Where given, large outputs are compared in rows that it chooses.
        """
        assert self._reference is not None
        return {
            spec.name: compare_by_rows(
                self.buffers.outputs[spec.name],
                self._reference,
                self._workload.tolerance,
                dtype=spec.dtype,
                depth=self._depth,
                name=spec.name,
                rows_of=rows_of,
            )
            for spec in self._operator.outputs
        }


class Stage:
    """The slots of one workload, taken in turn so that each is cold when its turn comes.

    Attributes:
        cache: ``"cold"`` when the slots together exceed twice the last-level cache, so that a
            slot's data has left it when its turn comes again; else ``"warm"``.
    """

    def __init__(self, operator: Operator, workload: Workload, source: ValueSource) -> None:
        first = Slot(operator, workload, source)
        size, cache_bytes = first.buffers.size_bytes, last_level_cache_bytes()
        count = min(rotation_count(size, cache_bytes, most_bytes=MOST_BYTES), MOST_SLOTS)
        self.slots = [first, *(Slot(operator, workload, source) for _ in range(count - 1))]
        self.cache = "cold" if count * size > 2 * cache_bytes else "warm"
        self._turn = 0

    def next(self) -> Slot:
        """Return the slot whose turn it is."""
        self._turn = (self._turn + 1) % len(self.slots)
        return self.slots[self._turn]

    def stir(self, rng: np.random.Generator) -> None:
        """Change the values of every slot."""
        for slot in self.slots:
            slot.stir(rng)
