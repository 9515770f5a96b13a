"""Launch plans, builds and limits: what routes promise and what is checked before any launch."""

from __future__ import annotations

import pickle
import struct
from dataclasses import replace

import pytest
from tests.unit.compiling_routes import plain_build

from kernelarc.genomes import InputError
from kernelarc.genomes.kernels import (
    Build,
    BuildError,
    DeviceLimits,
    KernelReport,
    Launch,
    LaunchAttributes,
    LaunchPlan,
    ScalarArgument,
    TensorArgument,
    TensorMap,
    code_hash,
    report_of,
    resource_fault,
)

HOPPER = DeviceLimits.of_arch("sm_90a")


def _elf(sections: dict[str, tuple[int, bytes, int]]) -> bytes:
    """Return an ELF file with these sections: type, content, and the figure in ``sh_info``."""
    names, body, rows = b"\0", b"", [bytes(64)]
    start = 64
    for name, (kind, content, info) in sections.items():
        rows.append(
            struct.pack(
                "<IIQQQQIIQQ",
                len(names),
                kind,
                0,
                0,
                start + len(body),
                len(content),
                0,
                info,
                1,
                0,
            )
        )
        names += name.encode() + b"\0"
        body += b"" if kind == 8 else content
    rows.append(
        struct.pack(
            "<IIQQQQIIQQ", len(names), 3, 0, 0, start + len(body), len(names) + 10, 0, 0, 1, 0
        )
    )
    names += b".shstrtab\0"
    body += names
    head = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01" + bytes(9),
        2, 190, 1, 0, 0, start + len(body), 0, 64, 0, 0, 64, len(rows), len(rows) - 1,
    )  # fmt: skip
    return head + body + b"".join(rows)


def _cubin(*, code: bytes = b"code", lines: bytes = b"a.py", registers: int = 90) -> bytes:
    figures = struct.pack("<BBHII", 4, 0x2F, 8, 7, registers)
    figures += struct.pack("<BBHII", 4, 0x11, 8, 7, 48)
    return _elf(
        {
            ".text.kernel": (1, code, 7),
            ".nv.info": (0x70000000, figures, 0),
            ".nv.shared.kernel": (8, bytes(5024), 0),
            ".debug_line": (1, lines, 0),
        }
    )


def test_a_report_is_read_from_the_binary() -> None:
    report = report_of(_cubin(), "kernel", threads=256, shared_bytes=1000)
    assert (report.registers, report.spill_bytes, report.static_shared_bytes) == (90, 48, 4000)
    with pytest.raises(ValueError, match="no kernel 'other'"):
        report_of(_cubin(), "other", threads=256)


def test_line_tables_do_not_change_what_a_binary_is() -> None:
    assert code_hash(_cubin()) == code_hash(_cubin(lines=b"elsewhere/b.py"))
    assert code_hash(_cubin()) != code_hash(_cubin(code=b"other"))
    assert code_hash(_cubin()) != code_hash(_cubin(registers=91))
    assert code_hash(b"no binary") != code_hash(b"no binary at all")


def test_equal_plans_over_equal_code_are_one_build() -> None:
    one, two = plain_build("sm_90a"), plain_build("sm_90a")
    assert one.content == two.content
    (launch,) = one.plan.launches
    wider = replace(one, plan=LaunchPlan(steps=(replace(launch, grid=(2, 1, 1)),)))
    assert wider.content != one.content
    assert pickle.loads(pickle.dumps(one)) == one


def test_a_plan_must_launch_what_was_built() -> None:
    build = plain_build("sm_90a")
    with pytest.raises(ValueError, match="not built"):
        replace(build, binaries={})
    with pytest.raises(ValueError, match="not built"):
        replace(build, plan=LaunchPlan(steps=()), kernels=())


def _with(report: KernelReport, launch: Launch) -> Build:
    build = plain_build("sm_90a")
    name = next(iter(build.binaries))
    plan = LaunchPlan(steps=(replace(launch, binary=name),))
    return replace(build, plan=plan, kernels=(report,))


@pytest.mark.parametrize(
    ("report", "launch", "failure"),
    [
        ({"registers": 64}, {}, None),
        ({"registers": 64}, {"shared_bytes": 227 << 10}, None),
        ({"registers": 64}, {"shared_bytes": (227 << 10) + 1}, "out of shared memory"),
        ({"registers": 64, "static_shared_bytes": 1}, {"shared_bytes": 227 << 10},
         "out of shared memory"),
        ({"registers": 64}, {"block": (1025, 1, 1)}, "too many threads"),
        ({"registers": 128}, {"block": (512, 1, 1)}, None),
        ({"registers": 136}, {"block": (512, 1, 1)}, "too many registers"),
        ({"registers": 64}, {"cluster": (16, 1, 1)}, "cluster too large"),
        ({"registers": 64},
         {"cluster": (16, 1, 1), "attributes": LaunchAttributes(wide_cluster=True)}, None),
    ],
)  # fmt: skip
def test_resources_are_judged_before_any_launch(
    report: dict[str, int], launch: dict[str, object], failure: str | None
) -> None:
    base = Launch(binary="", symbol="kernel", grid=(1, 1, 1), block=(128, 1, 1))
    build = _with(KernelReport(symbol="kernel", **report), replace(base, **launch))  # type: ignore[arg-type]
    found = resource_fault(build, HOPPER)
    assert (found[0] if found else None) == failure


def test_tensor_maps_that_make_no_sense_are_refused() -> None:
    source = TensorArgument("a")
    with pytest.raises(InputError, match="do not go together"):
        TensorMap(source=source, dtype="bfloat16", extents=(64, 64), strides=(), box=(64, 64))
    with pytest.raises(InputError, match="swizzle is one of"):
        TensorMap(source=source, dtype="bfloat16", extents=(64,), strides=(), box=(64,), swizzle=96)


def test_architectures_have_figures() -> None:
    assert DeviceLimits.of_arch("sm_100a").arch == "sm_100a"
    with pytest.raises(InputError, match="did you mean 'sm_90a'"):
        DeviceLimits.of_arch("sm_90")
    assert HOPPER.resident_blocks(threads=256, registers=128, shared_bytes=100 << 10) == 2
    assert HOPPER.resident_blocks(threads=1024, registers=128, shared_bytes=0) == 0


def test_a_build_error_is_one_line_and_travels() -> None:
    error = pickle.loads(pickle.dumps(BuildError("first\nsecond", failure="out of shared memory")))
    assert (error.message, error.failure) == ("first", "out of shared memory")


def test_scalars_count_in_a_plan() -> None:
    launch = Launch(binary="b", symbol="k", grid=(1, 1, 1), block=(1, 1, 1))
    one = LaunchPlan(steps=(replace(launch, arguments=(ScalarArgument(1, "i32"),)),))
    two = LaunchPlan(steps=(replace(launch, arguments=(ScalarArgument(1, "i64"),)),))
    assert one.fingerprint != two.fingerprint
