"""The routes ``cuda`` of matrix products and gated projections: copy engine and warpgroups."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from functools import partial

from kernelarc.genomes._axes import axis_values
from kernelarc.genomes._errors import InputError
from kernelarc.genomes._genome import Genome
from kernelarc.genomes._operators import Operator, TensorSpec, Workload
from kernelarc.genomes._records import Proposal
from kernelarc.genomes._space import Space
from kernelarc.genomes.kernels import (
    DeviceLimits,
    KernelRoute,
    Launch,
    LaunchAttributes,
    ScalarArgument,
    TensorArgument,
    TensorMap,
)
from kernelarc.genomes.routes._cuda_gemm_space import (
    BOX,
    ELEMENT_BYTES,
    STRIDE_BYTES,
    ProductJob,
    TileShape,
    product_space,
    starts,
)
from kernelarc.genomes.routes._cuda_route import CudaRoute, Prepared, started, whole_gene
from kernelarc.genomes.routes._cuda_source import cuda_source, genome_macros
from kernelarc.genomes.routes._matmul import matmul_job
from kernelarc.genomes.routes._matmul_roles import matmul_roles
from kernelarc.genomes.routes._product_cost import ranked_starts
from kernelarc.genomes.routes._products import products_source

FILE, SYMBOL = "gemm_hopper.cu", "gemm"
_DTYPES = ({"bfloat16"}, {"float16"})
_WITHOUT_RESTS = 5  # names of what was kept, and of one more output
_LAUNCH_ONLY = ("l2_promotion", "aliased")


def cuda_gemm_route(operator: Operator) -> KernelRoute | None:
    """Return the route for a matrix product of 16-bit floats, or None."""
    if operator.op_type.partition("_")[0] not in {"matmul", "gemm"} or not _narrow(operator):
        return None
    return CudaGemmRoute(operator)


def cuda_gated_route(operator: Operator) -> KernelRoute | None:
    """Return the route for a gated projection of 16-bit floats, or None."""
    if operator.op_type != "gated_projection" or not _narrow(operator):
        return None
    return None if gated_tensors(operator) is None else CudaGatedRoute(operator)


def _narrow(operator: Operator) -> bool:
    return {t.dtype for t in (*operator.inputs, *operator.outputs)} in _DTYPES


class _ProductRoute(CudaRoute):
    """What both kinds of product share."""

    files = (FILE,)

    @abstractmethod
    def job(self, workload: Workload) -> ProductJob:
        """Return what is multiplied.

        Raises:
            InputError: The kernel does not serve it; the message says why.
        """

    def unsuited(self, workload: Workload) -> str | None:
        """Say what of the workload the kernel does not serve, or None."""
        try:
            self.job(workload)
        except InputError as error:
            return str(error)
        return None

    def space(self, workload: Workload, device: DeviceLimits) -> Space:
        """Return the genomes whose tiles, sums and stages fit the device."""
        return product_space(self.name, self.job(workload), device)

    def seeds(self, workload: Workload, device: DeviceLimits) -> tuple[Proposal, ...]:
        """Return what is expected fastest here, then what keeps the products busy anywhere."""
        space, job = self.space(workload, device), self.job(workload)
        return started(space, [*ranked_starts((job,), device), *starts(job, device)])

    def prepared(self, workload: Workload, genome: Genome, arch: str) -> Prepared:
        """Return the kernel for one genome."""
        return product_prepared(self.job(workload), genome, self.limits(arch).multiprocessors)


def product_prepared(job: ProductJob, genome: Genome, multiprocessors: int) -> Prepared:
    """Return source and launch of one product with one genome of its space."""
    shape = TileShape.of(genome, gated=bool(job.bend))
    across = (job.left_across, job.right_across)
    generated = {"products.cuh": products_source(shape.tile_n, dtype=job.dtype, across=across)}
    macros: dict[str, object] = {
        f"DTYPE_{job.dtype}": 1,
        "HAS_RESIDUAL": int(job.residual is not None and job.gradients is None),
        "HAS_BIAS": int(job.bias is not None),
        f"ACTIVATION_{job.activation}": 1,
        "GATED": int(bool(job.bend)),
        "BACKWARD": int(job.gradients is not None),
        "PAIRED": int(job.second is not None),
        "RESTED": int(job.rests is not None),
        "KEPT": int(bool(job.kept)),
        "RESTS": int(len(job.kept) > _WITHOUT_RESTS),
        "LEFT_ACROSS": int(job.left_across),
        "RIGHT_ACROSS": int(job.right_across),
    }
    if job.bend:
        macros[f"BEND_{job.bend}"] = 1
    aliased = genome.get("aliased", False) is True and job.residual is not None
    launch = Launch(
        binary="",
        symbol=SYMBOL,
        grid=(shape.blocks(job.m, job.n, multiprocessors), 1, 1),
        block=(shape.threads, 1, 1),
        shared_bytes=shape.shared_bytes,
        arguments=_arguments(job, shape, genome),
        attributes=LaunchAttributes(overlap=bool(genome["pdl"])),
    )
    return Prepared(
        source=cuda_source(FILE, generated),
        macros=genome_macros(genome, macros, without=_LAUNCH_ONLY),
        steps=(launch,),
        aliases={job.out: str(job.residual)} if aliased else {},
    )


def _arguments(
    job: ProductJob, shape: TileShape, genome: Genome
) -> tuple[TensorMap | TensorArgument | ScalarArgument, ...]:
    promotion = whole_gene(genome, "l2_promotion")
    rows, columns = shape.tile_m // shape.cluster_n, shape.out_n // shape.cluster_m
    describe = partial(_rows_map, dtype=job.dtype)

    def factor(name: str, width: int, box: int, shared: int, across: bool) -> TensorMap:
        """Describe a factor; one that lies across comes in slices of its depth."""
        size = (job.k, width) if across else (width, job.k)
        height = shape.tile_k // shared if across else box
        return describe(name, shape=size, box=height, promotion=promotion)

    left = factor(job.left, job.m, rows, shape.cluster_n, job.left_across)
    right = factor(job.right, job.n, columns, shape.cluster_m, job.right_across)
    out = aside = left  # no kernel that writes directly looks at them
    if genome["epilogue"] == "engine":
        out = describe(job.out, shape=(job.m, job.n), box=BOX)
        aside = replace(out, source=TensorArgument(job.residual or job.out))
    if job.up is not None:
        aside = replace(right, source=TensorArgument(job.up))
    second = tuple(
        replace(of, source=TensorArgument(name))
        for of, name in zip((left, right), job.second or (), strict=False)
    ) + tuple(replace(left, source=TensorArgument(name)) for name in job.rests or ())
    m, n, k = (ScalarArgument(value, "i32") for value in (job.m, job.n, job.k))
    bias = () if job.bias is None else (job.bias,)
    names = (job.out, job.residual or job.out, *bias, *(job.gradients or ()), *job.kept)
    return (left, right, out, aside, *second, *map(TensorArgument, names), m, n, k)


def _rows_map(
    name: str, dtype: str, shape: tuple[int, int], *, box: int, promotion: int = 0
) -> TensorMap:
    """Describe a row-major tensor in boxes of ``box`` rows by 64 elements."""
    rows, columns = shape
    return TensorMap(
        source=TensorArgument(name),
        dtype=dtype,
        extents=(columns, rows),
        strides=(columns * ELEMENT_BYTES,),
        box=(BOX, box),
        swizzle=128,
        l2_promotion=promotion,
    )


def _aligned(extent: int, axis: str = "K") -> None:
    if extent * ELEMENT_BYTES % STRIDE_BYTES:
        elements = STRIDE_BYTES // ELEMENT_BYTES
        raise InputError(f"{axis}={extent} is no multiple of {elements}, as the copy engine needs")


# Matrix products


class CudaGemmRoute(_ProductRoute):
    """Products of 16-bit factors, each contiguous along either of its axes."""

    def job(self, workload: Workload) -> ProductJob:
        """Return the product of a workload."""
        axes = axis_values(self.operator, workload)
        job = matmul_job(self.operator, workload, axes)
        roles = matmul_roles(self.operator, workload)
        if job is None or roles is None:
            raise InputError(f"operator {self.operator.name!r} is no matrix product")
        if job.batch > 1:
            raise InputError(
                f"route {self.name!r} does not serve {self.operator.name!r}: it has a batch"
            )
        if not (job.transpose_a and not job.transpose_b):
            _aligned(job.k)
        if job.transpose_a:
            _aligned(job.m, "M")
        if not job.transpose_b:
            _aligned(job.n, "N")
        return ProductJob(
            m=job.m,
            n=job.n,
            k=job.k,
            dtype=job.dtype,
            left=roles.a,
            right=roles.b,
            out=self.operator.outputs[0].name,
            residual=roles.residual,
            in_place=job.in_place,
            bias=roles.bias,
            activation=job.activation,
            left_across=job.transpose_a,
            right_across=not job.transpose_b,
        )


# Gated projections


def gated_tensors(operator: Operator) -> tuple[str, str, str, str] | None:
    """Return the names of x, gate weight, up weight, and how the gate is bent; None for others.

    x is (..., hidden), the weights are (intermediate, hidden), the output is (..., intermediate);
    the first weight is the gate. The reference names the tanh form of GELU, or a sigmoid.
    """
    if len(operator.inputs) != 3 or len(operator.outputs) != 1:
        return None
    x, gate, up = operator.inputs
    out = operator.outputs[0]
    bend = _bend(operator.reference or "")
    fits = _rank(x) >= 2 and _rank(gate) == 2 and gate.shape == up.shape and bend
    if not fits or x.shape is None or gate.shape is None or out.shape is None:
        return None
    joined = x.shape[-1] == gate.shape[1] and out.shape == (*x.shape[:-1], gate.shape[0])
    return (x.name, gate.name, up.name, bend) if joined else None


def _rank(tensor: TensorSpec) -> int:
    return len(tensor.shape or ())


def _bend(reference: str) -> str:
    if "tanh" in reference:
        return "gelu"
    return "silu" if "sigmoid" in reference or "silu" in reference else ""


class CudaGatedRoute(_ProductRoute):
    """Gate and up-projection as one product over both weights, bent and multiplied at its end."""

    def job(self, workload: Workload) -> ProductJob:
        """Return the products of a workload."""
        tensors = gated_tensors(self.operator)
        if tensors is None:
            raise InputError(f"operator {self.operator.name!r} is no gated projection")
        x, gate, up, bend = tensors
        axes = axis_values(self.operator, workload)
        shape = self.operator.inputs[0].shape or ()
        *rows, k = (int(name) if name.isdigit() else axes[name] for name in shape)
        width = (self.operator.outputs[0].shape or ("",))[-1]
        _aligned(k)
        return ProductJob(
            m=math.prod(rows),
            n=int(width) if width.isdigit() else axes[width],
            k=k,
            dtype=self.operator.outputs[0].dtype,
            left=x,
            right=gate,
            up=up,
            out=self.operator.outputs[0].name,
            bend=bend,
        )
