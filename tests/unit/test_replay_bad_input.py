"""Bad recordings: one clear line that names the file, never a traceback; nothing is written."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from kernelarc.bench import ReplayDevice, load_input_space
from kernelarc.genomes import InputError, NothingValidError

HEAD = {"kernel_name": "k", "tune_params_keys": ["a"], "tune_params": {"a": [1, 2]}}
GOOD = json.dumps({**HEAD, "cache": {"1": {"a": 1, "time": 1.0}}})


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        ReplayDevice(path)
    assert caught.value.exit_code == 2
    line = str(caught.value)
    assert "\n" not in line
    assert str(path) in line
    return line


def test_a_missing_file(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "absent.json")


def test_a_folder(tmp_path: Path) -> None:
    assert "is a folder" in refused(tmp_path)


@pytest.mark.parametrize("content", [b"", b" \n", b"\0\0"])
def test_an_empty_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert "is empty" in refused(path)


def test_a_broken_gzip_stream(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    whole = gzip.compress(GOOD.encode())
    damaged = bytearray(whole)
    damaged[15] ^= 0xFF
    for content in (whole[:-12], bytes(damaged), whole[:3]):
        path.write_bytes(content)
        assert "broken gzip stream" in refused(path)


def test_a_gzip_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b""))
    assert "is empty" in refused(path)


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "{",
        '{"a"',
        "{'a': 1}",
        '{"kernel_name": "k", ',
        '{"kernel_name": "k", "tune_params": {"a": [1, 2',
        GOOD + "and more",
        GOOD.replace('"time": 1.0', '"time": 1.0 oops'),
        GOOD.replace('"time": 1.0', '"time": @, "b": 2'),
    ],
)
def test_no_json(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    assert "is not JSON" in refused(path)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"kernel_name": "\xff\xfe"}')
    assert "is not JSON" in refused(path)


@pytest.mark.parametrize(
    "text", ["[1, 2]", "3", '"text"', "null", "{}", '{"name": "x", "axes": {}}', '{"rows": []}']
)
def test_json_of_another_kind(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    assert "no recorded space" in refused(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tune_params_keys": [], "tune_params": {}}, "no genes"),
        ({"tune_params_keys": ["a", "a"]}, "twice"),
        ({"tune_params_keys": ["b"]}, "no domain for gene 'b'"),
        ({"tune_params": {"a": []}}, "empty domain"),
        ({"tune_params": {"a": [{}]}}, "no allele"),
        ({"tune_params": {"a": [1, float("nan")]}}, "finite"),
        ({"restrictions": 3}, "restrictions"),
        ({"restrictions": [3]}, "restrictions"),
        ({"restrictions": ["a > "]}, "a > "),
        ({"restrictions": ["b > 1"]}, "'b'"),
        ({"restrictions": ["print(a)"]}, "print(a)"),
        ({"restrictions": ["a.real > 1"]}, "a.real"),
        ({"restrictions": ["1 / (a - 1) > 0"]}, "divides by zero"),
        ({"objective": "GFLOP/s", "cache": {"1": {"a": 1, "GFLOP/s": 2.0}}}, "no row has a time"),
    ],
)
def test_headers_that_make_no_sense(tmp_path: Path, change: dict[str, object], said: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**HEAD, "cache": {"1": {"a": 1, "time": 1.0}}, **change}))
    assert said in refused(path)


def test_no_genes_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"kernel_name": "k", "cache": {}}')
    assert "no genes" in refused(path)
    path.write_text('{"results": []}')
    assert "no genes" in refused(path)


@pytest.mark.parametrize(
    "document",
    [
        {**HEAD, "cache": {}},
        {**HEAD, "restrictions": ["a > 5"], "cache": {}},
        {**HEAD, "restrictions": ["a > 5"], "cache": {"1": {"a": 1, "time": 1.0}}},
    ],
)
def test_a_space_without_a_legal_genome_is_no_bad_input_but_holds_nothing(
    tmp_path: Path, document: dict[str, object]
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document))
    device = ReplayDevice(path)
    (space,) = device.recording.spaces.values()
    assert space.size().legal == 0
    with pytest.raises(NothingValidError) as caught:
        space.sample(np.random.default_rng(0))
    assert caught.value.exit_code == 1


def test_a_space_description_without_results_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"ConfigurationSpace": {"TuningParameters": []}, "General": {}}')
    assert "T1 input" in refused(path)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("__import__('os').getcwd()", "not allowed"),
        ("open('x')", "not allowed"),
        ("[x for x in (1).__class__.__mro__]", "not allowed"),
        ("9**9**9", "too large"),
        ("range(10**9)", "more than"),
        ("[1, 2", "no list of values"),
        ("", "no list of values"),
    ],
)
def test_domains_in_text_are_parsed_and_never_evaluated(
    tmp_path: Path, values: str, said: str
) -> None:
    path = tmp_path / "a.json"
    parameter = {"Name": "a", "Type": "int", "Values": values}
    path.write_text(json.dumps({"ConfigurationSpace": {"TuningParameters": [parameter]}}))
    with pytest.raises(InputError, match=said) as caught:
        load_input_space(path)
    assert str(path) in str(caught.value)


def test_a_domain_in_text_gives_a_gene(tmp_path: Path) -> None:
    texts = {
        "a": "[16, 32, 64]",
        "b": "range(1, 9, 2)",
        "c": "[2**i for i in range(4)]",
        "d": "list(range(2)) + [7]",
        "e": "['x', 'y']",
        "f": "5",
    }
    parameters = [{"Name": n, "Type": "int", "Values": text} for n, text in texts.items()]
    conditions = [{"Expression": "a * b <= 64", "Parameters": ["a", "b"]}]
    path = tmp_path / "a.json"
    path.write_text(
        json.dumps(
            {"ConfigurationSpace": {"TuningParameters": parameters, "Conditions": conditions}}
        )
    )
    space = load_input_space(path)
    assert [gene.values() for gene in space.genes] == [
        (16, 32, 64),
        (1, 3, 5, 7),
        (1, 2, 4, 8),
        (0, 1, 7),
        ("x", "y"),
        (5,),
    ]
    assert space.size().legal == 4 * 3 * 2 * (2 + 1 + 1) - 4 * 3 * 2 * 0
