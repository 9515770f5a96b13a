"""The route ``triton`` of RMS normalisation, a residual added or not: rows held, or read twice."""

from __future__ import annotations

from kernelarc.genomes._alleles import Allele
from kernelarc.genomes._axes import axis_values
from kernelarc.genomes._constraints import ExpressionConstraint
from kernelarc.genomes._gene import Gene, When
from kernelarc.genomes._genes import Boolean, Choice, PowerOfTwo
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Operator, Workload
from kernelarc.genomes._records import Proposal
from kernelarc.genomes._space import Space
from kernelarc.genomes._strategies import Strategy
from kernelarc.genomes.kernels import (
    DeviceLimits,
    InputArgument,
    KernelRoute,
    TensorArgument,
)
from kernelarc.genomes.routes._cuda_add_rmsnorm import norm_roles
from kernelarc.genomes.routes._cuda_route import started
from kernelarc.genomes.triton import Pointer, TritonCall
from kernelarc.genomes.triton._packaged import PackagedTritonRoute

ROUTE = "triton"
_MOST_HELD = 96  # elements of a row that a thread holds
_WIDEST = 1 << 16
_SHORT = 1024  # features of short rows that a program takes at once


def triton_add_rmsnorm_route(operator: Operator) -> KernelRoute | None:
    """Return the route for RMS normalisation, with or without a residual, or None."""
    return None if norm_roles(operator) is None else TritonAddRmsnorm(operator)


class TritonAddRmsnorm(PackagedTritonRoute):
    """RMS normalisation by Triton, a residual added or not."""

    module = "triton_add_rmsnorm"

    def unsuited(self, workload: Workload) -> str | None:
        """Say that rows are too long to be a block, or None."""
        if self._extents(workload)[1] > _WIDEST:
            return f"route triton takes rows of at most {_WIDEST} features"
        return None

    def _extents(self, workload: Workload) -> tuple[int, int]:
        """Return rows and features of a row."""
        axes = axis_values(self.operator, workload)
        shape = self.operator.outputs[0].shape or ()
        extents = [int(part) if part.isdigit() else axes[part] for part in shape]
        rows = 1
        for extent in extents[:-1]:
            rows *= extent
        return rows, extents[-1]

    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return block, rows, warps, persistence and what is told to the caches."""
        rows, hidden = self._extents(workload)
        whole = _power_above(hidden)
        genes = (*_blocks(rows, whole), *_launches())
        names = tuple(gene.name for gene in genes)
        most = device.registers_multiprocessor
        texts = (
            f"not held or rows * {whole} <= {_MOST_HELD * 32} * num_warps",
            f"not held or rows * {whole} >= 32 * num_warps",
            f"rows * block <= {_MOST_HELD * 32} * num_warps",
            "rows * block >= 32 * num_warps",
            f"maxnreg * num_warps * 32 <= {most}",
            "num_stages == 1 or programs_per_sm > 0 or not held",
        )
        return Space(ROUTE, genes, [ExpressionConstraint(text, names) for text in texts])

    def seeds(self, workload: Workload, device: DeviceLimits) -> tuple[Proposal, ...]:
        """Return rows read twice in long blocks, as compilers do, and rows held in registers.

        The second reading finds a row in the cache, and few registers leave room for many rows. Of
        short rows, a program first takes several.
        """
        rows, hidden = self._extents(workload)
        whole = _power_above(hidden)
        several = _short_rows(rows, whole, device.multiprocessors)
        starts: list[dict[str, Allele]] = [
            {
                "held": False,
                "block": block,
                "num_warps": _warps(block, each),
                "evict": "evict_first",
            }
            for block, each in ((min(whole, 2048), 4), (min(whole, 4096), 8), (whole, 8))
        ]
        starts += [
            {"held": True, "num_warps": _warps(whole, each), **rest}
            for each, rest in (
                (16, {"evict": "evict_first"}),
                (8, {}),
                (32, {"evict": "evict_first"}),
                (16, {"evict": "evict_first", "store": ".cs"}),
            )
        ]
        short: list[dict[str, Allele]] = [
            {"held": True, "rows": several, "num_warps": _warps(several * whole, each), **rest}
            for each in (8, 16)
            for rest in ({"evict": "evict_first"}, {})
            if several > 1
        ]
        return started(self.space(workload, device), [*short, *starts])

    def calls(self, workload: Workload, genome: Genome, arch: str) -> list[TritonCall]:
        """Return the one launch."""
        from triton import language as tl  # noqa: PLC0415

        roles = norm_roles(self.operator)
        assert roles is not None
        rows, hidden = self._extents(workload)
        held = genome["held"] is True
        numbers = {gene: int(genome[gene]) for gene in _COUNTS}  # type: ignore[arg-type]
        groups = -(-rows // numbers["rows"])
        wanted = numbers["programs_per_sm"] * self.limits(arch).multiprocessors
        programs = wanted if 0 < wanted < groups else 0
        named = {
            "x": roles.x,
            "residual": roles.residual or roles.x,
            "weight": roles.weight,
            "y": roles.y,
            "summed": roles.summed or roles.y,
        }
        epsilon = roles.epsilon
        call = TritonCall(
            function=self.kernel("normalised"),
            arguments={
                **{k: Pointer(TensorArgument(name), roles.dtype) for k, name in named.items()},
                "eps": InputArgument(epsilon, "f32") if isinstance(epsilon, str) else epsilon,
                "rows": rows,
            },
            constants={
                "HIDDEN": hidden,
                "BLOCK": _power_above(hidden) if held else int(genome["block"]),  # type: ignore[arg-type]
                "ROWS": numbers["rows"],
                "PROGRAMS": programs,
                "HELD": held,
                "HAS_RESIDUAL": roles.residual is not None,
                "HAS_SUM": roles.summed is not None,
                "EVICT": genome["evict"],
                "STORE": genome["store"],
                "OUT": getattr(tl, roles.dtype),
            },
            grid=(programs or groups, 1, 1),
            options={
                "num_warps": numbers["num_warps"],
                "num_stages": numbers["num_stages"],
                "maxnreg": numbers["maxnreg"] or None,
            },
        )
        return [call]


_COUNTS = ("rows", "num_warps", "programs_per_sm", "num_stages", "maxnreg")


def _short_rows(rows: int, whole: int, multiprocessors: int) -> int:
    """Return how many rows of a power of two of features a program takes: one if they are long.

    Together they are at most a block's worth of columns, and every multiprocessor gets a program.
    """
    several = 1
    while 2 * several * whole <= _SHORT and 2 * several * multiprocessors <= rows:
        several *= 2
    return several


def _warps(elements: int, each: int) -> int:
    """Return the warps whose threads hold so many elements each, one to 32."""
    return max(1, min(elements // (32 * each), 32))


def _power_above(extent: int) -> int:
    """Return the least power of two that is not below."""
    return 1 << max(extent - 1, 0).bit_length()


def _blocks(rows: int, whole: int) -> tuple[Gene, ...]:
    """Return how a row is cut; ``whole`` is the block that holds one."""
    owner = Strategy.TENSOR_CORE
    return (
        Boolean(
            name="held",
            strategy=Strategy.FUSION,
            description="Keep rows in registers between their two uses, or read them twice.",
        ),
        PowerOfTwo(
            name="block",
            low=min(256, whole),
            high=min(whole, 16384),
            when=When("held", (False,)),
            strategy=owner,
            description="Columns at a time.",
        ),
        PowerOfTwo(
            name="rows",
            low=1,
            high=min(16, _power_above(rows)),
            strategy=owner,
            description="Rows of a program at a time.",
        ),
        PowerOfTwo(name="num_warps", low=1, high=32, strategy=owner, description="Warps."),
    )


def _launches() -> tuple[Gene, ...]:
    memory, scheduling = Strategy.MEMORY, Strategy.SCHEDULING
    return (
        Choice(
            name="programs_per_sm",
            options=(0, 1, 2, 4, 8, 16),
            strategy=scheduling,
            description="Programs that take rows in turn; 0 is a program for each group.",
        ),
        Choice(
            name="num_stages", options=(1, 2, 3, 4), strategy=scheduling, description="Pipeline."
        ),
        Choice(
            name="evict",
            options=("", "evict_first", "evict_last"),
            strategy=memory,
            description="What is told of activations when they are read last.",
        ),
        Choice(
            name="store",
            options=("", ".cs", ".cg", ".wt"),
            strategy=memory,
            description="How results are written through the caches.",
        ),
        Choice(
            name="maxnreg",
            options=(0, 32, 64, 96, 128),
            strategy=scheduling,
            description="Register cap; 0 is none.",
        ),
    )
