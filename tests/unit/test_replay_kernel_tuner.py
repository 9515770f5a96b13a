"""Kernel Tuner cache files: closed, unclosed, torn, with and without restrictions, odd rows."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from kernelarc.bench import Recording, load_recording
from kernelarc.genomes import Boolean, Choice, Genome, PowerOfTwo, Status

PARAMS: dict[str, list[Any]] = {"block": [16, 32, 64], "tile": [1, 2, 3], "fixed": [15]}
RESTRICTIONS = ["block * tile <= 128"]


def row(point: tuple[Any, ...], **more: Any) -> dict[str, Any]:
    return {**dict(zip(PARAMS, point, strict=True)), "time": float(sum(point)), **more}


def legal_rows() -> dict[str, dict[str, Any]]:
    points = (p for p in itertools.product(*PARAMS.values()) if p[0] * p[1] <= 128)
    return {",".join(map(str, p)): row(p) for p in points}


def header(**more: Any) -> dict[str, Any]:
    return {
        "device_name": "Some GPU",
        "kernel_name": "stencil",
        "problem_size": [4096, 512],
        "tune_params_keys": list(PARAMS),
        "tune_params": PARAMS,
        "objective": "time",
        **more,
    }


def text_as_written(rows: dict[str, dict[str, Any]], **more: Any) -> str:
    """The file as the tuner has it during a run: one row a line, each with its comma."""
    head = json.dumps({**header(**more), "cache": {}}, indent=0)[:-3]
    return head + "".join("\n" + json.dumps({k: r})[1:-1] + "," for k, r in rows.items())


def written(path: Path, text: str) -> Recording:
    path.write_text(text)
    return load_recording(path)


def genome(**alleles: Any) -> Genome:
    return Genome("recorded", {"fixed": 15, **alleles})


def test_a_closed_file_gives_job_space_and_rows(tmp_path: Path) -> None:
    document = {**header(restrictions=RESTRICTIONS), "cache": legal_rows()}
    found = written(tmp_path / "a.json", json.dumps(document))
    assert found.kind == "kernel_tuner"
    assert found.operator.name == "stencil"
    assert found.workload.axes == {"x": 4096, "y": 512}
    assert found.environment.identity["device"] == "Some GPU"
    assert (found.objective, found.unit, found.unclosed) == ("time", "ms", False)
    assert found.counts.rows == found.counts.ok == 8
    space = found.spaces["recorded"]
    assert space.size().legal == 8
    assert [c.text for c in space.constraints] == RESTRICTIONS
    assert all(gene.strategy is not None for gene in space.genes)
    answer = found.answer(genome(block=16, tile=2))
    assert answer is not None
    assert (answer.status, answer.objective) == (Status.OK, 33.0)


def test_gene_kinds_follow_from_the_domains(tmp_path: Path) -> None:
    params = {
        "ladder": [64, 16, 32],
        "gap": [1, 2, 8],
        "flag": [0, 1],
        "truth": [True, False],
        "word": ["b", "a"],
        "one": [15],
    }
    document = {"tune_params": params, "cache": {}, "kernel_name": "k"}
    space = written(tmp_path / "a.json", json.dumps(document)).spaces["recorded"]
    assert isinstance(space.gene("ladder"), PowerOfTwo)
    assert space.gene("ladder").values() == (16, 32, 64)
    gap = space.gene("gap")
    assert isinstance(gap, Choice)
    assert gap.ordered
    assert space.gene("flag").values() == (0, 1)
    assert isinstance(space.gene("truth"), Boolean)
    assert not space.gene("word").ordered
    assert space.gene("one").cardinality == 1


@pytest.mark.parametrize("ending", ["", "\n", "}\n}", "}", "}}\n", "\n\n}\n}\n", "\0\0\0"])
def test_an_unclosed_file_is_read_whole(tmp_path: Path, ending: str) -> None:
    found = written(tmp_path / "a.json", text_as_written(legal_rows()) + ending)
    assert found.counts.rows == 8
    assert not found.counts.torn
    assert found.unclosed == ("}\n}" not in ending and "}}" not in ending)
    assert found.spaces["recorded"].size().legal == 8


def test_a_file_cut_at_any_byte_keeps_every_whole_row(tmp_path: Path) -> None:
    text = text_as_written(legal_rows())
    start = text.index('"cache": {') + len('"cache": {')
    ends = [
        start + i + 1 for i, c in enumerate(text[start:]) if c == "}"
    ]  # rows hold no nested braces
    for cut in [start, *range(len(text) - 250, len(text) + 1)]:
        found = written(tmp_path / "cut.json", text[:cut])
        whole = sum(end <= cut for end in ends)
        assert found.counts.rows == whole
        assert found.unclosed
        assert found.counts.torn == bool(
            text[max([start, *[e for e in ends if e <= cut]]) : cut].strip(" ,\n")
        )


def test_what_the_killed_run_never_reached_is_illegal_though_restrictions_allow_it(
    tmp_path: Path,
) -> None:
    some = dict(list(legal_rows().items())[:3])
    found = written(tmp_path / "a.json", text_as_written(some, restrictions=RESTRICTIONS))
    space = found.spaces["recorded"]
    assert sorted(g.canonical for g in space.enumerate()) == sorted(
        genome(block=r["block"], tile=r["tile"]).canonical for r in some.values()
    )


def test_a_closed_file_of_a_sampled_search_allows_only_its_rows(tmp_path: Path) -> None:
    some = dict(list(legal_rows().items())[2:5])
    document = {**header(restrictions=RESTRICTIONS), "cache": some}
    space = written(tmp_path / "a.json", json.dumps(document)).spaces["recorded"]
    assert space.size().legal == 3


def test_gzip_is_known_by_content_and_not_by_name(tmp_path: Path) -> None:
    path = tmp_path / "plainly.json"
    path.write_bytes(gzip.compress(json.dumps({**header(), "cache": legal_rows()}).encode()))
    assert load_recording(path).counts.rows == 8
    renamed = tmp_path / "not-zipped.json.gz"
    renamed.write_text(json.dumps({**header(), "cache": legal_rows()}))
    assert load_recording(renamed).counts.rows == 8


def test_rows_before_the_header_are_read_too(tmp_path: Path) -> None:
    document = {"cache": legal_rows(), **header(restrictions=RESTRICTIONS)}
    assert written(tmp_path / "a.json", json.dumps(document)).counts.ok == 8


@pytest.mark.parametrize(
    ("fields", "status", "failure"),
    [
        ({"time": "CompilationFailedConfig"}, Status.COMPILE_ERROR, "does not compile"),
        ({"time": "RuntimeFailedConfig"}, Status.LAUNCH_ERROR, "does not launch"),
        ({"time": "InvalidConfig"}, Status.REJECTED, "illegal on the recorded device"),
        ({"__error__": "CompilationFailedConfig"}, Status.COMPILE_ERROR, "does not compile"),
        ({"time": "InvalidMeasurement"}, Status.LAUNCH_ERROR, "no valid measurement"),
        ({"time": "3.5"}, Status.LAUNCH_ERROR, "no valid measurement"),
        ({"time": float("nan")}, Status.LAUNCH_ERROR, "no valid measurement"),
        ({"time": float("inf")}, Status.LAUNCH_ERROR, "no valid measurement"),
        ({"time": -1.0}, Status.LAUNCH_ERROR, "no valid measurement"),
        ({"time": 0}, Status.LAUNCH_ERROR, "no valid measurement"),
        ({"time": 1e20}, Status.LAUNCH_ERROR, "no valid measurement"),
        ({"time": None}, Status.LAUNCH_ERROR, "no valid measurement"),
        ({"time": [1.0]}, Status.LAUNCH_ERROR, "no valid measurement"),
        ({"time": True}, Status.LAUNCH_ERROR, "no valid measurement"),
    ],
)
def test_failed_rows_become_failures_with_their_class(
    tmp_path: Path, fields: dict[str, Any], status: Status, failure: str
) -> None:
    rows = {"16,1,15": row((16, 1, 15)), "16,2,15": row((16, 2, 15), **fields)}
    found = written(tmp_path / "a.json", json.dumps({**header(), "cache": rows}))
    answer = found.answer(genome(block=16, tile=2))
    assert answer is not None
    assert (answer.status, answer.failure) == (status, failure)
    assert answer.message
    assert (found.counts.ok, found.counts.failed) == (1, 1)


def test_of_contradictory_rows_the_last_one_wins_and_they_are_counted(tmp_path: Path) -> None:
    rows = ",".join(
        json.dumps({"16,1,15": row((16, 1, 15), time=time)})[1:-1] for time in (9.0, 5.0, 5.0)
    )
    head = json.dumps(header())[:-1]
    found = written(tmp_path / "a.json", f'{head}, "cache": {{{rows}}}}}')
    answer = found.answer(genome(block=16, tile=1))
    assert answer is not None
    assert answer.objective == 5.0
    counts = found.counts
    assert (counts.rows, counts.genomes) == (3, 1)
    assert (counts.duplicate, counts.contradictory) == (2, 1)


def test_rows_that_name_no_genome_are_dropped_and_counted(tmp_path: Path) -> None:
    rows = {
        "16,1,15": row((16, 1, 15)),
        "48,1,15": row((48, 1, 15)),
        "32,1,15": {"time": 4.0},
        "nonsense": {"time": 4.0},
        "64,1,15": 7.5,
    }
    found = written(tmp_path / "a.json", json.dumps({**header(), "cache": rows}))
    assert (found.counts.rows, found.counts.genomes, found.counts.dropped) == (5, 2, 3)
    by_key = found.answer(genome(block=32, tile=1))
    assert by_key is not None
    assert by_key.objective == 4.0


def test_costs_and_samples_are_kept(tmp_path: Path) -> None:
    fields = {
        "times": [3.0, 1.0, 2.0],
        "compile_time": 800.0,
        "verification_time": 150.0,
        "benchmark_time": 50.0,
        "framework_time": 1e6,
    }
    document = {**header(), "cache": {"16,1,15": row((16, 1, 15), **fields)}}
    answer = written(tmp_path / "a.json", json.dumps(document)).answer(genome(block=16, tile=1))
    assert answer is not None
    assert answer.samples == (3.0, 1.0, 2.0)
    assert answer.cost_s == pytest.approx(1.0)


def test_another_objective_keeps_its_name_as_unit_and_higher_is_better_falls_back(
    tmp_path: Path,
) -> None:
    rows = {"16,1,15": row((16, 1, 15), energy=0.5, **{"GFLOP/s": 900.0})}
    energy = written(tmp_path / "a.json", json.dumps({**header(objective="energy"), "cache": rows}))
    answer = energy.answer(genome(block=16, tile=1))
    assert answer is not None
    assert (answer.objective, energy.unit) == (0.5, "energy")
    rate = written(tmp_path / "b.json", json.dumps({**header(objective="GFLOP/s"), "cache": rows}))
    assert (rate.objective, rate.unit) == ("time", "ms")
    assert "better when higher" in rate.notes[0]


def test_the_environment_follows_the_content_and_not_the_place(tmp_path: Path) -> None:
    text = json.dumps({**header(), "cache": legal_rows()})
    first, same = written(tmp_path / "a.json", text), written(tmp_path / "b.json", text)
    other = written(tmp_path / "c.json", text.replace("32.0", "32.5"))
    assert first.environment.fingerprint == same.environment.fingerprint
    assert first.environment.fingerprint != other.environment.fingerprint
    assert first.workload.fingerprint == other.workload.fingerprint


@pytest.mark.parametrize("size", ["callable", [4096, "n"], [0, 4], [], None, 2.5, {"x": 1}])
def test_odd_problem_sizes_are_kept_as_text(tmp_path: Path, size: object) -> None:
    document = {**header(problem_size=size), "cache": legal_rows()}
    found = written(tmp_path / "a.json", json.dumps(document))
    assert dict(found.workload.axes) == {}
    assert found.counts.ok == 8
