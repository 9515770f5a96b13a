"""The route ``triton`` of a matrix product of 16-bit floats: pointers or tensor descriptors,
persistent or one tile a program, k in one piece or split.
"""  # noqa: D205

from __future__ import annotations

from typing import Any

from kernelarc.genomes._axes import axis_values
from kernelarc.genomes._constraints import Constraint, ExpressionConstraint
from kernelarc.genomes._errors import InputError
from kernelarc.genomes._gene import Gene, When
from kernelarc.genomes._genes import Boolean, Choice, PowerOfTwo
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Operator, Workload
from kernelarc.genomes._records import Proposal
from kernelarc.genomes._space import Space
from kernelarc.genomes._strategies import Strategy
from kernelarc.genomes.kernels import (
    DeviceLimits,
    KernelRoute,
    Scratch,
    ScratchArgument,
    TensorArgument,
)
from kernelarc.genomes.routes._cuda_route import started
from kernelarc.genomes.routes._grid_hint import GridHint
from kernelarc.genomes.routes._matmul import MatmulJob, matmul_job
from kernelarc.genomes.routes._matmul_roles import matmul_roles
from kernelarc.genomes.routes._tile_hint import TileHint
from kernelarc.genomes.routes._triton_gemm_shared import shared_memory
from kernelarc.genomes.routes._triton_gemm_starts import starts
from kernelarc.genomes.triton import Descriptor, Pointer, TritonCall
from kernelarc.genomes.triton._packaged import PackagedTritonRoute

ROUTE = "triton"
_DTYPES = {"bfloat16": "bfloat16", "float16": "float16"}
_MOST_ELEMENTS = 2**31 - 1
_PARTIAL_LIMIT = 1 << 30
_GATHER_BLOCK = 1024
_DESCRIPTORS = When("load", ("descriptor",))
_POINTERS = When("load", ("pointer",))
_PERSISTENT = When("persistent", (True,))
_EVICTIONS = ("", "evict_last")
_TENSOR, _MEMORY, _FUSION = Strategy.TENSOR_CORE, Strategy.MEMORY, Strategy.FUSION
_SCHEDULING, _REDUCTION = Strategy.SCHEDULING, Strategy.REDUCTION


def triton_gemm_route(operator: Operator) -> KernelRoute | None:
    """Return the route for an operator that is a matrix product of 16-bit floats, or None."""
    if operator.op_type.partition("_")[0] not in {"matmul", "gemm"}:
        return None
    if any(tensor.dtype not in _DTYPES for tensor in (*operator.inputs, *operator.outputs)):
        return None
    return TritonGemm(operator)


class TritonGemm(PackagedTritonRoute):
    """Matrix products by Triton."""

    module = "triton_gemm"

    def unsuited(self, workload: Workload) -> str | None:
        """Say why a product is not served: batches, and tensors beyond 32-bit indices."""
        try:
            job = self._job(workload)
        except InputError as error:
            return str(error)
        if job.batch > 1:
            return "route triton multiplies one matrix by one matrix, not batches"
        if max(job.m * job.k, job.n * job.k, job.m * job.n) > _MOST_ELEMENTS:
            return "route triton counts elements in 32 bits"
        return None

    def _job(self, workload: Workload) -> MatmulJob:
        job = matmul_job(self.operator, workload, axis_values(self.operator, workload))
        if job is None:
            raise InputError(f"operator {self.operator.name!r} is no matrix product")
        return job

    # The space

    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return tiles, pipeline, loads, raster, persistence, splits and launch options."""
        job = self._job(workload)
        genes = (*_tiles(job), *_loads(job, workload), *_schedule(), *_splits(job), *_rest(job))
        hint = TileHint(GridHint.of(job, device.multiprocessors))
        names = tuple(gene.name for gene in genes)
        return Space(ROUTE, genes, _constraints(job, device, names), hint=hint)

    def seeds(self, workload: Workload, device: DeviceLimits) -> tuple[Proposal, ...]:
        """Return what an expert would try: tiles that fill the device, with deep pipelines."""
        space = self.space(workload, device)
        return started(space, starts(self._job(workload), device, space))

    # Building

    def calls(self, workload: Workload, genome: Genome, arch: str) -> list[TritonCall]:
        """Return the product, and what adds its parts where k is split."""
        shape = _Shape(self.operator, workload, self._job(workload), genome)
        if int(genome["split_k"]) > 1:  # type: ignore[arg-type]
            return [
                shape.partial(self.kernel("partial_product")),
                shape.gathered(self.kernel("gathered")),
            ]
        return [shape.whole(self.kernel("product"), self.limits(arch))]

    def aliases(self, workload: Workload, genome: Genome) -> dict[str, str]:
        """Return the output that lies in the residual's buffer, where it does."""
        shape = _Shape(self.operator, workload, self._job(workload), genome)
        if genome.get("aliased", False) is True and shape.residual is not None:
            return {shape.out: shape.residual}
        return {}


# Genes


def _tiles(job: MatmulJob) -> tuple[Gene, ...]:
    low = 16 if job.m < 64 else 32 if job.m < 256 else 64
    return (
        PowerOfTwo(name="block_m", low=low, high=256, strategy=_TENSOR, description="Rows."),
        PowerOfTwo(name="block_n", low=32, high=256, strategy=_TENSOR, description="Columns."),
        PowerOfTwo(name="block_k", low=32, high=128, strategy=_TENSOR, description="Depth."),
        Choice(name="num_warps", options=(4, 8), strategy=_TENSOR, description="Warps."),
        Choice(
            name="num_stages",
            options=(2, 3, 4, 5, 6),
            strategy=_MEMORY,
            description="Tiles of the factors that are on their way at once.",
        ),
    )


def _loads(job: MatmulJob, workload: Workload) -> tuple[Gene, ...]:
    ways = ("pointer", "descriptor") if _aligned(job) else ("pointer",)
    asked = bool(workload.options.get("warp_specialize", False))
    return (
        Choice(name="load", options=ways, strategy=_MEMORY, description="Addresses, or TMA."),
        Boolean(name="store_descriptor", when=_DESCRIPTORS, strategy=_MEMORY)
        if len(ways) > 1
        else Choice(name="store_descriptor", options=(False,), strategy=_MEMORY),
        Choice(name="evict_a", options=_EVICTIONS, when=_POINTERS, strategy=_MEMORY),
        Choice(name="evict_b", options=_EVICTIONS, when=_POINTERS, strategy=_MEMORY),
        Choice(name="cache", options=("", ".cg"), when=_POINTERS, strategy=_MEMORY),
        Choice(
            name="warp_specialize",
            options=(False, True) if asked and len(ways) > 1 else (False,),
            strategy=_SCHEDULING,
            description="Warps that load apart from warps that multiply; only where asked for.",
        ),
    )


def _schedule() -> tuple[Gene, ...]:
    return (
        PowerOfTwo(name="group", low=1, high=32, strategy=_SCHEDULING, description="Raster."),
        Boolean(
            name="persistent", strategy=_SCHEDULING, description="Programs take tiles in turn."
        ),
        Choice(
            name="sm_multiple",
            options=(1, 2),
            when=_PERSISTENT,
            strategy=_SCHEDULING,
            description="Programs for each multiprocessor.",
        ),
        Boolean(
            name="flatten",
            when=_PERSISTENT,
            strategy=_SCHEDULING,
            description="One loop over tiles and depth.",
        ),
        Choice(
            name="loop_stages",
            options=(0, 2, 3, 4),
            strategy=_SCHEDULING,
            description="Stages of the inner loop alone; 0 leaves them to num_stages.",
        ),
        Choice(
            name="maxnreg",
            options=(0, 128, 160, 192, 224, 240),
            strategy=_SCHEDULING,
            description="Register cap; 0 is none.",
        ),
        Choice(name="num_ctas", options=(1, 2), strategy=_SCHEDULING, description="Cluster."),
    )


def _splits(job: MatmulJob) -> tuple[Gene, ...]:
    fits = [n for n in (1, 2, 4, 8, 16) if n == 1 or (
        n * job.m * job.n * 4 <= _PARTIAL_LIMIT and job.k >= 128 * n
    )]  # fmt: skip
    return (
        Choice(
            name="split_k",
            options=tuple(fits),
            strategy=_REDUCTION,
            description="Pieces of k, added in float32 by a second kernel.",
        ),
    )


def _rest(job: MatmulJob) -> tuple[Gene, ...]:
    parts = Choice(
        name="epilogue_parts",
        options=(1, 2),
        strategy=_FUSION,
        description="Strips in which a tile is finished and stored.",
    )
    if not job.in_place:
        return (parts,)
    return (
        parts,
        Boolean(name="aliased", strategy=_FUSION, description="Write into the residual's buffer."),
    )


def _constraints(
    job: MatmulJob, device: DeviceLimits, names: tuple[str, ...]
) -> tuple[Constraint, ...]:
    most_regs = device.registers_multiprocessor
    texts = [
        *shared_memory(device),
        "block_m * block_n <= 6144 * num_warps",
        f"maxnreg * num_warps * 32 <= {most_regs}",
        "maxnreg == 0 or block_m * block_n // (num_warps * 32) + 24 <= maxnreg",
        "block_m * block_n >= 128 * num_warps",
        "cache == '' or evict_a == '' and evict_b == ''",  # ptxas refuses both together
        "split_k == 1 or not persistent",
        "split_k == 1 or epilogue_parts == 1",
        "num_ctas == 1 or not persistent",
        "num_ctas == 1 or load == 'pointer'",
        "num_ctas == 1 or epilogue_parts == 1",  # aborts in Triton 3.6
        "split_k == 1 or not store_descriptor",
        f"block_m <= {max(64, 2 * job.m)}",
        f"block_n <= {max(64, 2 * job.n)}",
        f"block_k * split_k <= {max(64, job.k)}",
    ]
    if job.in_place:
        texts.append("not aliased or not store_descriptor")
    return tuple(ExpressionConstraint(text, names) for text in texts)


def _aligned(job: MatmulJob) -> bool:
    """Tell whether rows of all matrices begin at multiples of 16 bytes, as TMA needs them to."""
    a = job.m if job.transpose_a else job.k
    b = job.k if job.transpose_b else job.n
    return not any(extent * 2 % 16 for extent in (a, b, job.n))


# Calls


class _Shape:
    """One genome on one job: what its kernels are called with."""

    def __init__(
        self, operator: Operator, workload: Workload, job: MatmulJob, genome: Genome
    ) -> None:
        self.job, self.alleles = job, dict(genome.items())
        roles = matmul_roles(operator, workload)
        assert roles is not None
        self.a, self.b, self.out = roles.a, roles.b, operator.outputs[0].name
        self.residual, self.bias = roles.residual, roles.bias

    def _number(self, gene: str) -> int:
        return int(self.alleles[gene])  # type: ignore[arg-type]

    def _options(self) -> dict[str, Any]:
        return {
            "num_warps": self._number("num_warps"),
            "num_stages": self._number("num_stages"),
            "num_ctas": self._number("num_ctas"),
            "maxnreg": self._number("maxnreg") or None,
        }

    def _pointer(self, name: str | None) -> Pointer | None:
        return None if name is None else Pointer(TensorArgument(name), self.job.dtype)

    def _descriptor(self, name: str, rows: int, columns: int, block: tuple[int, int]) -> Descriptor:
        return Descriptor(
            target=TensorArgument(name),
            dtype=self.job.dtype,
            shape=(rows, columns),
            strides=(columns, 1),
            block=block,
        )

    @property
    def _described(self) -> bool:
        return self.alleles["load"] == "descriptor"

    def _factors(self) -> dict[str, Any]:
        """Return the factors and their strides."""
        job = self.job
        m, n, k = (self._number(f"block_{axis}") for axis in "mnk")
        a_m, a_k = (1, job.m) if job.transpose_a else (job.k, 1)
        b_n, b_k = (job.k, 1) if job.transpose_b else (1, job.n)
        found: dict[str, Any] = {"a_m": a_m, "a_k": a_k, "b_n": b_n, "b_k": b_k}
        if not self._described:
            return {**found, "a": self._pointer(self.a), "b": self._pointer(self.b)}
        left = (job.k, job.m, (k, m)) if job.transpose_a else (job.m, job.k, (m, k))
        right = (job.n, job.k, (n, k)) if job.transpose_b else (job.k, job.n, (k, n))
        return {
            **found,
            "a": self._descriptor(self.a, *left),
            "b": self._descriptor(self.b, *right),
        }

    def _constants(self) -> dict[str, Any]:
        """Return the constants that both products take."""
        job, k = self.job, self._number("block_k")
        return {
            "BLOCK_M": self._number("block_m"),
            "BLOCK_N": self._number("block_n"),
            "BLOCK_K": k,
            "GROUP": self._number("group"),
            "DESCRIPTORS": self._described,
            "A_TURNED": job.transpose_a,
            "B_TURNED": job.transpose_b,
            "EVEN_M": job.m % self._number("block_m") == 0,
            "EVEN_N": job.n % self._number("block_n") == 0,
            "EVEN_K": job.k % k == 0,
            "EVICT_A": self.alleles.get("evict_a", ""),
            "EVICT_B": self.alleles.get("evict_b", ""),
            "CACHE": self.alleles.get("cache", ""),
            "LOOP_STAGES": self._number("loop_stages") or None,
            "WARP_SPECIALIZE": bool(self.alleles["warp_specialize"]),
        }

    def _ending(self) -> dict[str, Any]:
        """Return the constants of whatever stores the result."""
        from triton import language as tl  # noqa: PLC0415

        job = self.job
        return {
            "HAS_RESIDUAL": self.residual is not None,
            "HAS_BIAS": self.bias is not None,
            "ACTIVATION": job.activation,
            "OUT": tl.bfloat16 if job.out_dtype == "bfloat16" else tl.float16,
        }

    def _tile_count(self) -> int:
        rows = -(-self.job.m // self._number("block_m"))
        return rows * -(-self.job.n // self._number("block_n"))

    def whole(self, kernel: Any, device: DeviceLimits) -> TritonCall:
        """Return the product with k in one piece."""
        job, tiles = self.job, self._tile_count()
        programs, parts = 0, self._number("epilogue_parts")
        if self.alleles["persistent"]:
            programs = min(tiles, device.multiprocessors * self._number("sm_multiple"))
        c: Any = self._pointer(self.out)
        stored = bool(self.alleles.get("store_descriptor", False))
        if stored:
            block = (self._number("block_m"), self._number("block_n") // parts)
            c = self._descriptor(self.out, job.m, job.n, block)
        return TritonCall(
            function=kernel,
            arguments={
                **self._factors(),
                "c": c,
                "residual": self._pointer(self.residual),
                "bias": self._pointer(self.bias),
                "M": job.m,
                "N": job.n,
                "K": job.k,
            },
            constants={
                **self._constants(),
                **self._ending(),
                "STORE_DESCRIPTOR": stored,
                "PARTS": parts,
                "PROGRAMS": programs,
                "FLATTEN": bool(self.alleles.get("flatten", False)),
            },
            grid=(programs or tiles, 1, 1),
            options=self._options(),
        )

    def partial(self, kernel: Any) -> TritonCall:
        """Return the product of pieces of k."""
        job, pieces, k = self.job, self._number("split_k"), self._number("block_k")
        blocks = -(-job.k // k)
        chunk = -(-blocks // pieces) * k
        nbytes = 4 * pieces * job.m * job.n
        return TritonCall(
            function=kernel,
            arguments={
                **self._factors(),
                "partial": Pointer(ScratchArgument("partial"), "float32"),
                "M": job.m,
                "N": job.n,
                "K": job.k,
                "chunk": chunk,
            },
            constants=self._constants(),
            grid=(self._tile_count(), pieces, 1),
            options=self._options(),
            scratch=(Scratch(name="partial", nbytes=nbytes),),
        )

    def gathered(self, kernel: Any) -> TritonCall:
        """Return what adds the pieces and finishes the result."""
        job = self.job
        return TritonCall(
            function=kernel,
            arguments={
                "partial": Pointer(ScratchArgument("partial"), "float32"),
                "c": self._pointer(self.out),
                "residual": self._pointer(self.residual),
                "bias": self._pointer(self.bias),
                "M": job.m,
                "N": job.n,
            },
            constants={
                **self._ending(),
                "CHUNKS": self._number("split_k"),
                "BLOCK": _GATHER_BLOCK,
            },
            grid=(-(-job.m * job.n // _GATHER_BLOCK), 1, 1),
            options={"num_warps": 4},
        )
