"""The exported C header: compiles as C and C++, chooses by device and shape, fits our source."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from kernelarc.genomes import (
    Allele,
    Candidate,
    Contest,
    Environment,
    Evaluation,
    Genome,
    Judged,
    Measurement,
    Operator,
    Problem,
    Status,
    Verdict,
    Workload,
    builtin_operators,
)
from kernelarc.genomes.routes import HostShape, cpu_routes
from kernelarc.storage import CampaignSpec, ContestRecord, Entry, Round, export, open_writer

COMPILERS = [("cc", ["-std=c11"], "c"), ("c++", ["-std=c++17"], "c++")]
GEMM = builtin_operators()["gemm"]


def header(tmp_path: Path, operator: Operator, pairs: list[tuple[Workload, Genome]]) -> Path:
    """Export a header in which every workload has the genome given, audited."""
    entries: list[Entry] = []
    for number, (workload, genome) in enumerate(pairs):
        candidate = Candidate(
            number=number,
            round=0,
            workload=workload.fingerprint,
            island="memory",
            mutation="sample",
            genome=genome,
        )
        timed = Measurement(samples=(5.0,), objective=5.0)
        evaluation = Evaluation(candidate=candidate, status=Status.OK, measurement=timed)
        contest = Contest(names=(genome.fingerprint,), samples=((5.0,),))
        entries += [
            candidate,
            Judged(evaluation=evaluation, verdict=Verdict.KEEP),
            ContestRecord(
                purpose="audit",
                workload=workload.fingerprint,
                subject=genome.fingerprint,
                against="",
                contest=contest,
                speedup=None,
                upheld=True,
            ),
        ]
    problem = Problem(operator=operator, workloads=tuple(workload for workload, _ in pairs))
    spec = CampaignSpec(target="t", device="cpu", seed=0, problem=problem, settings={})
    identity = {"device": "cpu", "cpu": "Some CPU @ 2.5GHz */ (family 6)"}
    with open_writer(tmp_path / "s.db", create=True) as writer:
        campaign = writer.begin(spec, Environment(identity=identity))
        writer.append(campaign, [Round(number=0, counts={}), *entries])
        (path,) = export(writer, campaign, "c-header", tmp_path / "best.h")
    return path


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("compiler", "flags", "language"), COMPILERS)
def test_the_header_compiles_and_chooses_by_shape(
    tmp_path: Path, compiler: str, flags: list[str], language: str
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} on this machine")
    alleles: list[dict[str, Allele]] = [
        {"block-size": n, "1st": 0.5, "fast": True, "split": "rows", "order": ("m", "n")}
        for n in (16, 32)
    ]
    sizes = [
        Workload(operator=GEMM.fingerprint, axes={"M": n, "N": n, "K": n}, options={"residual": r})
        for n, r in ((64, False), (128, True))
    ]
    tuned = [(w, Genome("demo", a)) for w, a in zip(sizes, alleles, strict=True)]
    path = header(tmp_path, GEMM, tuned)
    program = tmp_path / "main.c"
    program.write_text(
        '#include <stdio.h>\n#include "best.h"\n#include "best.h"\n'
        "int main(void) {\n#ifdef KERNELARC_TUNED\n"
        '  printf("%d %.1f %d %d", BLOCK_SIZE, _1ST, FAST, SPLIT_rows);\n'
        '#else\n  printf("none");\n#endif\n  return 0;\n}\n'
    )
    strict = [*flags, "-x", language, "-Wall", "-Wextra", "-Wundef", "-Werror", "-pedantic"]

    def told(*defines: str) -> str:
        binary = str(tmp_path / "main")
        run([compiler, *strict, *defines, f"-I{path.parent}", str(program), "-o", binary])
        return run([binary])

    def shape(n: int, residual: int) -> list[str]:
        axes = [f"-DKERNELARC_AXIS_{axis}={n}" for axis in "MNK"]
        return [*axes, f"-DKERNELARC_OPTION_residual={residual}"]

    first, second = "16 0.5 1 1", "32 0.5 1 1"
    mine = "-DKERNELARC_DEVICE_SOME_CPU_2_5GHZ"
    assert told() == first
    assert told(*shape(64, 0)) == first
    assert told(*shape(128, 1)) == second
    assert told(*shape(128, 0)) == "none"
    assert told(*shape(256, 1)) == "none"
    assert told("-DKERNELARC_DEVICE", *shape(128, 1)) == "none"
    assert told("-DKERNELARC_DEVICE", mine, *shape(128, 1)) == second


def test_the_header_makes_our_source_a_right_kernel(tmp_path: Path) -> None:
    workload = Workload(operator=GEMM.fingerprint, axes={"M": 40, "N": 24, "K": 33})
    (route,) = cpu_routes(GEMM).values()
    space = route.space_for(workload, HostShape(threads=2))
    genome = space.sample(np.random.default_rng(5))
    path = header(tmp_path, GEMM, [(workload, genome)])
    source, program = tmp_path / "gemm.c", tmp_path / "main.c"
    source.write_text(route.source)
    program.write_text(
        "#include <stdio.h>\n#include <math.h>\n"
        "int gemm(const float *, const float *, const float *, float *, long, long, long);\n"
        "static float a[40 * 33], b[33 * 24], c[40 * 24];\n"
        "int main(void) {\n"
        "  for (int i = 0; i < 40 * 33; i++) a[i] = (float)(i % 3 - 1);\n"
        "  for (int i = 0; i < 33 * 24; i++) b[i] = (float)(i % 5 - 2);\n"
        "  if (gemm(a, b, NULL, c, 40, 24, 33)) return 1;\n"
        "  for (int i = 0; i < 40; i++) for (int j = 0; j < 24; j++) {\n"
        "    float sum = 0;\n"
        "    for (int p = 0; p < 33; p++) sum += a[i * 33 + p] * b[p * 24 + j];\n"
        "    if (sum != c[i * 24 + j]) return 2;\n"
        "  }\n"
        '  puts("right");\n  return 0;\n}\n'
    )
    text = path.read_text()
    assert "every number below was audited." in text
    (line,) = [t for t in text.splitlines() if t.startswith("#define KERNELARC_FLAGS")]
    flags = [f for f in line.split('"')[1].split() if f not in {"-shared", "-fPIC"}]
    kernel = str(tmp_path / "gemm.o")
    run(["cc", *flags, "-include", str(path), "-c", str(source), "-o", kernel])
    binary = str(tmp_path / "main")
    run(["cc", str(program), kernel, "-pthread", "-lm", "-o", binary])
    assert run([binary]).strip() == "right"
