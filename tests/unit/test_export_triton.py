"""Exports of Triton genomes, each loaded back by the program it is for, or by its schema."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from kernelarc.genomes import (
    Allele,
    Axis,
    Candidate,
    Contest,
    Environment,
    Estimate,
    Evaluation,
    Genome,
    InputError,
    Judged,
    MatmulForm,
    Measurement,
    Operator,
    Problem,
    Status,
    TensorSpec,
    Verdict,
    Workload,
    matmul_operator,
    matmul_problem,
)
from kernelarc.storage import CampaignSpec, ContestRecord, Entry, Round, export, open_writer

FORMATS = ("triton", "vllm-moe", "vllm-fp8", "helion", "inductor")
GENES: dict[str, Allele] = {
    "BLOCK_SIZE_M": 64,
    "BLOCK_SIZE_N": 128,
    "BLOCK_SIZE_K": 64,
    "GROUP_SIZE_M": 8,
    "num_warps": 4,
    "num_stages": 3,
    "num_ctas": 1,
    "maxnreg": 0,
}


def genome(changes: Mapping[str, Allele] | None = None) -> Genome:
    return Genome("triton", {**GENES, **(changes or {})})


def operator(*axes: str, dtype: str = "bfloat16") -> Operator:
    return Operator(
        name="layer",
        axes={name: Axis(name=name, kind="var") for name in axes},
        inputs=(TensorSpec(name="x", shape=axes[:1], dtype=dtype),),
        outputs=(TensorSpec(name="y", shape=axes[:1], dtype="bfloat16"),),
    )


def layer(job: Operator, *axes: Mapping[str, int], **options: str) -> Problem:
    workloads = [Workload(operator=job.fingerprint, axes=a, options=options) for a in axes]
    return Problem(operator=job, workloads=tuple(workloads))


def exported(
    path: Path,
    problem: Problem,
    genomes: Sequence[Genome],
    format: str,
    *,
    audited: bool = True,
    device: str = "NVIDIA H200",
) -> tuple[Path, ...]:
    """Export a campaign in which every workload has the genome given as its best."""
    entries: list[Entry] = []
    pairs = zip(problem.workloads, genomes, strict=True)
    for number, (workload, best) in enumerate(pairs):
        candidate = Candidate(
            number=number, round=0, workload=workload.fingerprint, island="memory",
            mutation="step", genome=best,
        )  # fmt: skip
        timed = Measurement(samples=(187.0,), objective=187.0)
        evaluation = Evaluation(candidate=candidate, status=Status.OK, measurement=timed)
        entries += [candidate, Judged(evaluation=evaluation, verdict=Verdict.KEEP)]
        if audited:
            names = (best.fingerprint, "baseline:cublaslt")
            entries.append(
                ContestRecord(
                    purpose="audit", workload=workload.fingerprint, subject=names[0],
                    against=names[1], contest=Contest(names=names, samples=((187.0, 190.0),)),
                    speedup=Estimate(value=1.016, low=1.01, high=1.02, n=40), upheld=True,
                )
            )  # fmt: skip
    spec = CampaignSpec(target="t", device="cuda:0", seed=0, problem=problem, settings={})
    with open_writer(path.parent / "store.db", create=True) as writer:
        number = writer.begin(spec, Environment(identity={"device": device}))
        writer.append(number, [Round(number=0, counts={}), *entries])
        return export(writer, number, format, path)


GEMM = operator("M", "N", "K")
SIZES = ({"M": 64, "N": 4096, "K": 4096}, {"M": 4096, "N": 4096, "K": 4096})
LOAD = """
import json, sys
sys.path.insert(0, sys.argv[1])
import best, triton, triton.language as tl

@triton.autotune(configs=list(best.CONFIGS.values()), key=list(best.KEY),
                 prune_configs_by={"early_config_prune": best.chosen})
@triton.jit
def kernel(a, M, N, K, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr,
           BLOCK_SIZE_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr):
    pass

def asked(m):
    kernel.nargs = dict(zip(kernel.arg_names, (None, m, 4096, 4096)))
    return [c.all_kwargs() for c in kernel.prune_configs({})]

print(json.dumps([asked(64), asked(4096), asked(77), best.DEVICE]))
"""


@pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="Triton is not installed")
def test_triton_takes_the_configuration_of_each_key(tmp_path: Path) -> None:
    small, large = genome(), genome({"BLOCK_SIZE_M": 128, "num_warps": 8, "maxnreg": 168})
    (path,) = exported(tmp_path / "best.py", layer(GEMM, *SIZES), [small, large], "triton")
    script = tmp_path / "load.py"
    script.write_text(LOAD)
    done = subprocess.run(
        [sys.executable, str(script), str(path.parent)], capture_output=True, text=True, check=True
    )
    first, second, unknown, device = json.loads(done.stdout)
    assert [c.get("maxnreg") for c in first] == [None]
    assert {n: first[0][n] for n in ("BLOCK_SIZE_M", "num_warps", "num_stages")} == {
        "BLOCK_SIZE_M": 64,
        "num_warps": 4,
        "num_stages": 3,
    }
    assert [(c["BLOCK_SIZE_M"], c["maxnreg"]) for c in second] == [(128, 168)]
    assert len(unknown) == 2
    assert device == "NVIDIA H200"


def test_a_triton_module_is_python_and_says_how_sure_it_is(tmp_path: Path) -> None:
    (path,) = exported(tmp_path / "best.py", layer(GEMM, SIZES[0]), [genome()], "triton")
    text = path.read_text()
    assert "1.016 [1.010, 1.020] x cublaslt" in text
    assert "num_ctas" not in text
    tree = ast.parse(text)
    (key,) = [n.value for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "KEY"]  # type: ignore[attr-defined]
    assert ast.literal_eval(key) == ("M", "N", "K")


def test_an_odd_device_name_breaks_no_module(tmp_path: Path) -> None:
    odd = 'A "B" \\ """ C'
    (path,) = exported(
        tmp_path / "best.py", layer(GEMM, SIZES[0]), [genome()], "triton", device=odd
    )
    names = {n.targets[0].id for n in ast.parse(path.read_text()).body if isinstance(n, ast.Assign)}  # type: ignore[attr-defined]
    assert {"KEY", "CONFIGS"} <= names


@pytest.mark.parametrize(
    ("options", "dtype", "name"),
    [
        ({}, "bfloat16", "E=8,N=3584,device_name=NVIDIA_H200.json"),
        ({}, "float8_e4m3fn", "E=8,N=3584,device_name=NVIDIA_H200,dtype=fp8_w8a8.json"),
        (
            {"dtype": "fp8_w8a8", "block_shape": "128, 128"},
            "bfloat16",
            "E=8,N=3584,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json",
        ),
    ],
)
def test_a_moe_file_has_the_name_and_the_body_that_are_looked_for(
    tmp_path: Path, options: dict[str, str], dtype: str, name: str
) -> None:
    job = operator("M", "E", "N", "K", dtype=dtype)
    rows = [{"M": m, "E": 8, "N": 3584, "K": 4096} for m in (4096, 1)]
    small = genome({"BLOCK_SIZE_M": 16, "GROUP_SIZE_M": 1})
    (path,) = exported(tmp_path, layer(job, *rows, **options), [genome(), small], "vllm-moe")
    assert path == tmp_path / name
    text = path.read_text()
    table = json.loads(text)
    assert list(table) == ["1", "4096"]
    for row in table.values():
        assert list(row) == [
            "BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps",
            "num_stages",
        ]  # fmt: skip
        assert all(type(value) is int for value in row.values())
    assert table["1"]["BLOCK_SIZE_M"] == 16
    assert '\n    "1": {\n        "BLOCK_SIZE_M"' in text


def test_a_member_of_a_family_has_the_name_that_its_program_looks_for(tmp_path: Path) -> None:
    job = operator("M", "E", "N", "K", dtype="float8_e4m3fn")
    problem = layer(job, {"M": 1, "E": 8, "N": 64, "K": 64})
    for format, name in (
        ("vllm-moe", "E=8,N=64,device_name=NVIDIA_H200,dtype=fp8_w8a8.json"),
        (
            "vllm-fp8",
            "N=64,K=64,device_name=NVIDIA_H200_NVL,dtype=fp8_w8a8,block_shape=[128,128].json",
        ),
    ):
        (tmp_path / format).mkdir()
        (path,) = exported(tmp_path / format, problem, [genome()], format, device="NVIDIA H200 NVL")
        assert path.name == name


def test_fp8_files_are_one_a_layer(tmp_path: Path) -> None:
    rows = [{"M": m, "N": n, "K": 7168} for n in (4096, 24576) for m in (1, 64)]
    problem = layer(operator("M", "N", "K", dtype="float8_e4m3fn"), *rows)
    folder = tmp_path / "configs"
    folder.mkdir()
    found = exported(folder, problem, [genome()] * 4, "vllm-fp8")
    assert sorted(path.name for path in found) == [
        f"N={n},K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
        for n in (24576, 4096)
    ]
    assert list(json.loads(found[0].read_text())) == ["1", "64"]
    with pytest.raises(InputError, match="holds 2 layers; name a folder"):
        exported(tmp_path / "one.json", problem, [genome()] * 4, "vllm-fp8")


def helion_class() -> Any:
    """Return Helion's own class of a configuration; its module needs nothing but Python."""
    found = importlib.util.find_spec("helion")
    if found is None or found.submodule_search_locations is None:
        pytest.skip("Helion is not installed")
    file = Path(found.submodule_search_locations[0]) / "runtime" / "config.py"
    spec = importlib.util.spec_from_file_location("helion_configuration", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Config


def test_helion_loads_its_file(tmp_path: Path) -> None:
    loaded = helion_class()
    changes: dict[str, Allele] = {"persistent": True, "tma": True, "maxnreg": 128, "split_k": 1}
    (path,) = exported(tmp_path / "best.json", layer(GEMM, SIZES[0]), [genome(changes)], "helion")
    found = dict(loaded.load(path))
    assert found == {
        "block_sizes": [64, 128, 64],
        "indexing": "tensor_descriptor",
        "l2_groupings": [8],
        "maxnreg": 128,
        "num_stages": 3,
        "num_warps": 4,
        "pid_type": "persistent_interleaved",
    }


PACKAGED: Mapping[str, Allele] = MappingProxyType({
    "block_m": 128, "block_n": 256, "block_k": 64, "num_warps": 8, "num_stages": 3,
    "load": "descriptor", "store_descriptor": False, "warp_specialize": False, "group": 8,
    "persistent": True, "sm_multiple": 1, "flatten": False, "loop_stages": 0, "maxnreg": 0,
    "num_ctas": 1, "split_k": 1, "epilogue_parts": 2, "aliased": True,
})  # fmt: skip


def test_helion_has_a_word_for_everything_of_the_packaged_product(tmp_path: Path) -> None:
    loaded = helion_class()
    one = Genome("triton", PACKAGED)
    (path,) = exported(tmp_path / "best.json", layer(GEMM, SIZES[0]), [one], "helion")
    found = dict(loaded.load(path))
    assert found == json.loads(path.read_text())
    words = inspect.signature(loaded).parameters
    assert {name for name in found if words[name].kind is inspect.Parameter.KEYWORD_ONLY} == {
        "block_sizes", "epilogue_subtile", "indexing", "l2_groupings", "num_sm_multiplier",
        "num_stages", "num_warps", "pid_type",
    }  # fmt: skip


def test_a_genome_of_the_packaged_product_has_helion_s_words(tmp_path: Path) -> None:
    alleles = dict(PACKAGED)
    one = Genome("triton", alleles)
    (path,) = exported(tmp_path / "best.json", layer(GEMM, SIZES[0]), [one], "helion")
    found = json.loads(path.read_text())
    assert found == {
        "block_sizes": [128, 256, 64],
        "epilogue_subtile": 2,
        "indexing": ["tensor_descriptor", "tensor_descriptor", "pointer"],
        "l2_groupings": [8],
        "num_sm_multiplier": 1,
        "num_stages": 3,
        "num_warps": 8,
        "pid_type": "persistent_interleaved",
    }
    plain: dict[str, Allele] = {**alleles, "load": "pointer", "persistent": False}
    for gene in ("store_descriptor", "sm_multiple", "flatten"):
        del plain[gene]
    hinted = Genome("triton", {**plain, "evict_a": "", "evict_b": "evict_last", "cache": ""})
    (path,) = exported(tmp_path / "again.json", layer(GEMM, SIZES[0]), [hinted], "helion")
    found = json.loads(path.read_text())
    assert (found["indexing"], found["load_eviction_policies"]) == ("pointer", ["", "last"])
    for changes in ({"maxnreg": 128}, {"maxnreg": 128, "persistent": False}):
        capped = {
            n: v for n, v in {**plain, **changes}.items() if n in changes or n != "persistent"
        }
        with pytest.raises(InputError, match="caps registers at 128, and Helion does that for"):
            exported(
                tmp_path / "capped.json",
                layer(GEMM, SIZES[0]),
                [Genome("triton", capped)],
                "helion",
            )
    assert not (tmp_path / "capped.json").exists()
    other = Genome("triton", {**plain, "loop_stages": 3})
    with pytest.raises(InputError, match="gene 'loop_stages'"):
        exported(tmp_path / "third.json", layer(GEMM, SIZES[0]), [other], "helion")


def test_the_packaged_product_s_plain_genomes_serve_the_fixed_formats(tmp_path: Path) -> None:
    alleles: dict[str, Allele] = {
        "block_m": 128, "block_n": 256, "block_k": 64, "num_warps": 8, "num_stages": 3,
        "load": "pointer", "evict_a": "", "evict_b": "", "cache": "", "warp_specialize": False,
        "group": 8, "persistent": False, "loop_stages": 0, "maxnreg": 0, "num_ctas": 1,
        "split_k": 1, "epilogue_parts": 1,
    }  # fmt: skip
    problem = matmul_problem(matmul_operator(MatmulForm()), [{"M": 64, "N": 128, "K": 32}])
    one = Genome("triton", alleles)
    (path,) = exported(tmp_path / "table.json", problem, [one], "inductor")
    ((entry,),) = json.loads(path.read_text()).values()
    assert (entry["BLOCK_N"], entry["GROUP_M"], entry["num_warps"]) == (256, 8, 8)
    (path,) = exported(tmp_path / "fp8.json", problem, [one], "vllm-fp8")
    assert json.loads(path.read_text())["64"]["GROUP_SIZE_M"] == 8


def test_a_helion_file_is_flat(tmp_path: Path) -> None:
    one = Genome("triton", {"BLOCK": 1024, "num_warps": 8, "num_stages": 1, "num_ctas": 1})
    (path,) = exported(tmp_path / "best.json", layer(operator("M"), {"M": 64}), [one], "helion")
    assert json.loads(path.read_text()) == {"block_sizes": [1024], "num_stages": 1, "num_warps": 8}


@pytest.mark.parametrize(
    ("layout", "residual", "batch", "key"),
    [
        ("TN", False, 1, "((B, [64, 32], [32, 1]), (B, [32, 128], [1, 32]))+mm"),
        ("NN", False, 1, "((B, [64, 32], [32, 1]), (B, [32, 128], [128, 1]))+mm"),
        ("NT", False, 1, "((B, [64, 32], [1, 64]), (B, [32, 128], [128, 1]))+mm"),
        (
            "TN", True, 1, "((B, [64, 128], [128, 1]), (B, [64, 32], [32, 1]), "
            "(B, [32, 128], [1, 32]))+alpha=1&beta=1+addmm",
        ),
        ("TN", False, 3, "((B, [3, 64, 32], [2048, 32, 1]), (B, [3, 32, 128], [4096, 1, 32]))+bmm"),
    ],
)  # fmt: skip
def test_an_inductor_table_has_the_key_of_the_product(
    tmp_path: Path, layout: str, residual: bool, batch: int, key: str
) -> None:
    form = MatmulForm(layout=layout, residual=residual, batched=batch > 1)
    axes = {"M": 64, "N": 128, "K": 32} | ({"B": batch} if batch > 1 else {})
    problem = matmul_problem(matmul_operator(form), [axes])
    key = key.replace("(B,", "(torch.bfloat16,")
    (path,) = exported(tmp_path / "table.json", problem, [genome()], "inductor")
    table = json.loads(path.read_text())
    assert list(table) == [f"NVIDIA H200+{key}"]
    (entry,) = next(iter(table.values()))
    assert entry["template_id"] == ("triton::bmm" if batch > 1 else "triton::mm")
    assert entry["EVEN_K"] is False
    assert {n: entry[n] for n in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")} == {
        "BLOCK_M": 64,
        "BLOCK_N": 128,
        "BLOCK_K": 64,
        "GROUP_M": 8,
    }


@pytest.mark.parametrize(
    ("format", "changes"),
    [("vllm-moe", {"split_k": 4}), ("helion", {"split_k": 4}), ("vllm-fp8", {"tma": True})],
)
def test_a_gene_without_a_counterpart_is_named(
    tmp_path: Path, format: str, changes: dict[str, Allele]
) -> None:
    job = operator("M", "E", "N", "K")
    problem = layer(job, {"M": 1, "E": 8, "N": 64, "K": 64})
    (gene,) = changes
    with pytest.raises(InputError, match=f"{format}: gene '{gene}'"):
        exported(tmp_path / "out", problem, [genome(changes)], format)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("format", FORMATS)
def test_what_was_not_audited_or_is_not_tritons_is_refused(tmp_path: Path, format: str) -> None:
    problem = layer(GEMM, SIZES[0])
    with pytest.raises(InputError, match="no best was audited yet"):
        exported(tmp_path / "out", problem, [genome()], format, audited=False)
    other = Genome("cublaslt", {"algo": 66})
    with pytest.raises(InputError, match="holds Triton kernels, and its bests are of"):
        exported(tmp_path / "out", problem, [other], format)
    assert not (tmp_path / "out").exists()


def test_axes_that_a_format_names_its_files_by_must_be_there(tmp_path: Path) -> None:
    problem = layer(GEMM, SIZES[0])
    with pytest.raises(InputError, match="has no axis 'E'"):
        exported(tmp_path / "out", problem, [genome()], "vllm-moe")
    with pytest.raises(InputError, match="is no plain matrix product"):
        exported(tmp_path / "out", problem, [genome()], "inductor")
