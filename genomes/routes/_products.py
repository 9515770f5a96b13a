"""Text of the warpgroup products (``wgmma``) that a kernel includes as ``products.cuh``.

One instruction names every accumulator register, so its text depends on the tile's width: it is
generated for the width that a genome has, and the kernels stay free of 32 copies of it.
"""

from __future__ import annotations

from kernelarc.genomes._errors import InputError

_ELEMENTS = {"bfloat16": "bf16", "float16": "f16"}


def products_source(*widths: int, dtype: str, across: tuple[bool, bool] = (False, False)) -> str:
    """Return CUDA source of products of a warpgroup for some widths.

    ``multiply(sums, left, right)`` adds a 64 x 16 by 16 x width product to float32 sums, both
    factors described in shared memory, contiguous along the 16; ``multiply_new`` forgets what the
    sums were; ``multiply_held`` takes the left factor from four registers and the right one
    contiguous along its width. ``hold`` keeps the compiler from moving the sums across it.

    Args:
        widths: Multiples of 8 from 8 to 256.
        dtype: ``"bfloat16"`` or ``"float16"``, of the factors.
        across: Whether ``multiply`` takes its left and its right factor contiguous along their
            other axis.

    Raises:
        InputError: There is no such product.
    """
    if dtype not in _ELEMENTS:
        raise InputError(f"warpgroups multiply bfloat16 or float16 here, not {dtype!r}")
    for width in widths:
        if width % 8 or not 8 <= width <= 256:
            raise InputError(f"a warpgroup's product is 8 to 256 wide in steps of 8, not {width}")
    distinct = sorted(set(widths))
    return "\n".join(_functions(width, _ELEMENTS[dtype], across) for width in distinct)


def _functions(width: int, element: str, across: tuple[bool, bool]) -> str:
    count = width // 2
    sums = ", ".join(f"%{i}" for i in range(count))
    bound = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    made = bound.replace("+f", "=f")
    name = f"wgmma.mma_async.sync.aligned.m64n{width}k16.f32.{element}.{element}"
    held = ", ".join(f"%{count + i}" for i in range(4))
    turned = ", ".join(str(int(each)) for each in across)
    return (
        f"DEVICE void hold(float (&d)[{count}]) {{\n"
        f'    asm volatile("" : {bound} :: "memory");\n}}\n\n'
        f"DEVICE void multiply(float (&d)[{count}], u64 left, u64 right) {{\n"
        f'    asm volatile("{name} {{{sums}}}, %{count}, %{count + 1}, 1, 1, 1, {turned};"\n'
        f'                 : {bound} : "l"(left), "l"(right));\n}}\n\n'
        f"DEVICE void multiply_new(float (&d)[{count}], u64 left, u64 right) {{\n"
        f'    asm volatile("{name} {{{sums}}}, %{count}, %{count + 1}, 0, 1, 1, 0, 0;"\n'
        f'                 : {made} : "l"(left), "l"(right));\n}}\n\n'
        f"DEVICE void multiply_held(float (&d)[{count}], const u32 (&a)[4], u64 right) {{\n"
        f'    asm volatile("{name} {{{sums}}}, {{{held}}}, %{count + 4}, 1, 1, 1, 1;"\n'
        f"                 : {bound}\n"
        '                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right));\n}\n'
    )
