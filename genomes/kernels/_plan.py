"""LaunchPlan: the ordered kernel launches that do an operator's job once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeAlias

from kernelarc.genomes._alleles import canonical_json, fingerprint_of
from kernelarc.genomes._errors import InputError

Triple: TypeAlias = tuple[int, int, int]

SCALAR_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "i8": "<b", "i16": "<h", "i32": "<i", "i64": "<q",
        "u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q",
        "f16": "<e", "f32": "<f", "f64": "<d",
    }
)  # fmt: skip
"""Types of scalar arguments, with the letter by which ``struct`` packs them."""

_SWIZZLES, _INTERLEAVES, _PROMOTIONS = (0, 32, 64, 128), (0, 16, 32), (0, 64, 128, 256)


class Zeroing(StrEnum):
    """When scratch memory is set to zero.

    ``CALL``: before every call, by a memset that is part of the timed work. ``ONCE``: after
    allocation only; the kernels leave it zero themselves (counters that reset). ``NEVER``: it
    holds anything at the start of a call; checked runs find it poisoned.
    """

    NEVER = "never"
    ONCE = "once"
    CALL = "call"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """Device memory that a plan needs beside the operator's tensors, 1024-byte aligned.

    The worker puts guard bands around it. Plans of one device share the memory, not its content.
    """

    name: str
    nbytes: int
    zeroing: Zeroing = Zeroing.NEVER


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """The address of an operator's input or output; 0 for an optional input that is absent."""

    name: str
    offset_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ScratchArgument:
    """The address of a scratch buffer of the plan."""

    name: str
    offset_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    """A number known when the plan is built. ``kind`` is one of ``SCALAR_TYPES``."""

    value: int | float
    kind: str


@dataclass(frozen=True, slots=True)
class InputArgument:
    """The value of an operator's Python-scalar input, known only when inputs are made."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMap:
    """A TMA descriptor (``CUtensorMap``, tiled) over a tensor or scratch buffer.

    The worker encodes it for the addresses of each call. Dimensions go from the innermost out.

    Attributes:
        source: What it describes; the address must be 16-byte aligned.
        dtype: Schema dtype of the elements, or ``"uint8"``, ``"uint16"``, ``"uint32"``.
        extents: Elements along each dimension, 1 to 5 of them.
        strides: Bytes between neighbours along every dimension but the innermost, multiples of 16.
        box: Elements of a tile along each dimension, at most 256 each.
        element_strides: Steps between elements; all 1 if empty.
        swizzle: 0, 32, 64 or 128 bytes.
        interleave: 0, 16 or 32 bytes.
        l2_promotion: 0, 64, 128 or 256 bytes.
        nan_fill: What is out of bounds reads as NaN instead of zero.
        in_memory: Pass the address of the descriptor in global memory instead of the 128 bytes as
            a ``__grid_constant__`` parameter.
    """

    source: TensorArgument | ScratchArgument
    dtype: str
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    swizzle: int = 0
    interleave: int = 0
    l2_promotion: int = 0
    nan_fill: bool = False
    in_memory: bool = False

    def __post_init__(self) -> None:
        rank = len(self.extents)
        if not 1 <= rank <= 5 or len(self.box) != rank or len(self.strides) != rank - 1:
            raise InputError(
                f"tensor map over {self.source.name!r}: {rank} extents, {len(self.box)} box "
                f"extents and {len(self.strides)} strides do not go together"
            )
        fits = self.swizzle in _SWIZZLES and self.interleave in _INTERLEAVES
        if not fits or self.l2_promotion not in _PROMOTIONS:
            raise InputError(
                f"tensor map over {self.source.name!r}: swizzle is one of {_SWIZZLES}, interleave "
                f"of {_INTERLEAVES}, l2_promotion of {_PROMOTIONS}"
            )


Argument: TypeAlias = TensorArgument | ScratchArgument | ScalarArgument | InputArgument | TensorMap


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAttributes:
    """How a kernel is launched.

    Attributes:
        overlap: Programmatic dependent launch: it may begin before the launch ahead of it ends.
        carveout: Percentage of the L1 cache preferred as shared memory; None leaves it.
        wide_cluster: Allow clusters of more than eight blocks.
        cooperative: All blocks are resident at once.
    """

    overlap: bool = False
    carveout: int | None = None
    wide_cluster: bool = False
    cooperative: bool = False


PLAIN = LaunchAttributes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One kernel launch.

    Attributes:
        binary: ``code_hash`` of the cubin, a key of ``Build.binaries``.
        symbol: Name of the kernel in it.
        grid: Blocks along x, y, z.
        block: Threads along x, y, z.
        cluster: Blocks of a cluster along x, y, z. (1, 1, 1) sets no attribute, which is also
            right for a kernel whose cluster is fixed when it is compiled.
        shared_bytes: Dynamic shared memory.
        arguments: In the order of the kernel's parameters.
    """

    binary: str
    symbol: str
    grid: Triple
    block: Triple
    cluster: Triple = (1, 1, 1)
    shared_bytes: int = 0
    arguments: tuple[Argument, ...] = ()
    attributes: LaunchAttributes = PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Clear:
    """Sets an output or part of scratch memory to zero bytes, as part of the timed work."""

    target: TensorArgument | ScratchArgument
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryProduct:
    """A product by cuBLASLt: ``out = left . right^T (+ added)``, summed in float32.

    All matrices are row-major and packed, of one type. The worker asks the library, when it loads
    the plan, for the algorithms that it would run: another version may mean another one.

    Attributes:
        rows: Of left and output.
        columns: Of the output.
        depth: What is summed over.
        dtype: Schema dtype of every matrix.
        left: The (rows, depth) factor.
        right: The (columns, depth) factor.
        out: The (rows, columns) result.
        added: What is added, (rows, columns); may be ``out`` itself. None where nothing is.
        left_across: Whether left is (depth, rows) instead.
        right_across: Whether right is (depth, columns) instead.
        heuristic: Which of the library's own choices runs, its first one being 0.
        workspace: Scratch memory that it may use, None for none.
        workspace_bytes: How much.
    """

    rows: int
    columns: int
    depth: int
    dtype: str
    left: TensorArgument | ScratchArgument
    right: TensorArgument | ScratchArgument
    out: TensorArgument | ScratchArgument
    added: TensorArgument | ScratchArgument | None = None
    left_across: bool = False
    right_across: bool = False
    heuristic: int = 0
    workspace: ScratchArgument | None = None
    workspace_bytes: int = 0


Step: TypeAlias = Launch | Clear | LibraryProduct


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """What does the job once: steps in order on one stream.

    The same plan is launched on many sets of buffers. It must not depend on addresses or on
    earlier calls.

    Attributes:
        steps: At least one kernel launch among them.
        scratch: Buffers beside the tensors.
        aliases: Output by name to the input in whose buffer it is written. Only where the
            workload's options allow it: the worker hands both the same address, filled with the
            input before every checked call.
    """

    steps: tuple[Step, ...]
    scratch: tuple[Scratch, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The kernel launches among the steps."""
        return tuple(step for step in self.steps if isinstance(step, Launch))

    @property
    def products(self) -> tuple[LibraryProduct, ...]:
        """The library's products among the steps."""
        return tuple(step for step in self.steps if isinstance(step, LibraryProduct))

    @property
    def fingerprint(self) -> str:
        """Content fingerprint: equal plans over equal machine code do the same."""
        return fingerprint_of(canonical_json(_plain(asdict(self))))


def _plain(value: Any) -> Any:
    """Return JSON values; what is a tuple becomes a list, what is a mapping a dict."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, StrEnum) else value
