"""Bad input: one clear line, the right exit code, nothing written."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelarc.cli import exit_code
from kernelarc.cli._watching import watching
from kernelarc.genomes import StoppedError

Run = Callable[..., "Outcome"]


class Outcome:
    """What a command printed and exited with."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str | Path) -> Outcome:
        capfd.readouterr()
        code = exit_code([str(word) for word in arguments])
        printed = capfd.readouterr()
        return Outcome(code, printed.out, printed.err)

    return call


def assert_refused(outcome: Outcome, code: int, *parts: str) -> None:
    assert outcome.code == code, outcome.err
    assert outcome.out == ""
    lines = outcome.err.splitlines()
    assert len(lines) == 1, outcome.err
    assert lines[0].startswith("kernelarc: error: ")
    for part in parts:
        assert part in lines[0]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["rum"], ("No such command 'rum'", "'run'")),
        (["stat"], ("No such command 'stat'", "'status'")),
        (["run"], ("Missing argument 'TARGET'",)),
        (["run", "gemm", "--bugdet", "3"], ("No such option", "--budget")),
        (["run", "gemm", "--budget", "many"], ("'many' is not a valid integer",)),
        (["run", "gem"], ("'gem'", "'gemm'")),
        (["run", "gemm", "--device", "cuda:x"], ("cuda:x",)),
        (["run", "gemm", "--device", "cup"], ("'cup'", "'cpu'")),
        (["run", "gemm", "--device", "replay"], ("recorded space",)),
        (["run", "gemm", "--device", "cuda:0,cuda:1"], ("one device",)),
        (["run", "gemm", "--device", "cdua:0"], ("'cdua:0'", "'cuda:0'")),
        (["run", "matmull"], ("'matmull'", "'matmul'")),
        (["run", "matmul", "--device", "cpu"], ("cuda:N", "'gemm'")),
        (["run", "matmul", "--set", "m=4"], ("no axis 'm'",)),
        (["run", "matmul", "--option", "dtype=bf61"], ("'bf61'", "'bf16'")),
        (["run", "matmul", "--option", "workspace_mib=9999"], ("workspace_mib", "4096")),
        (["run", "gemm", "--option", "workspace_mib=9"], ("workspace_mib",)),
        (["run", "gemm", "--workload", "M"], ("--workload must be NAME=VALUE",)),
        (["run", "gemm", "--workload", "M=0"], ("workload 1 M", "not 0")),
        (["run", "gemm", "--workload", "M=4", "--workload", "M=4"], ("repeats",)),
        (["run", "gemm", "--workload", "M=1024", "--workload", "N=1024"], ("given twice",)),
        (["run", "gemm", "--islands", "memroy"], ("memroy", "'memory'")),
        (["run", "gemm", "--budget", "0"], ("budget must be", "not 0")),
        (["run", "gemm", "--budget", "-1"], ("budget must be", "not -1")),
        (["run", "gemm", "--seconds", "0"], ("seconds must be",)),
        (["run", "gemm", "--baselines", "all,eager"], ("baselines: 'all' stands alone",)),
        (["run", "gemm", "--set", "M=0"], ("set M", "not 0")),
        (["run", "gemm", "--set", "M=-5"], ("set M", "not -5")),
        (["run", "gemm", "--set", "M=1.5"], ("set M", "'1.5'")),
        (["run", "gemm", "--set", "M=9999999999"], ("set M", "2147483647")),
        (["run", "gemm", "--set", "M"], ("--set must be NAME=VALUE",)),
        (["run", "gemm", "--set", "M=1", "--set", "M=2"], ("'M' twice",)),
        (["run", "gemm", "--set", "m=64"], ("'m'", "M, N")),
        (["run", "gemm", "--set", "M=2147483647"], ("GiB of memory",)),
        (["run", "gemm", "--option", "residul=true"], ("residul", "'residual'")),
        (["run", "gemm", "--seed-genome", "none.json"], ("none.json",)),
        (["run", "none.toml"], ("none.toml", "No such file")),
        (["run", "none.json"], ("none.json",)),
        (["run", "gemm", "--log", "no/such/folder.log"], ("no/such/folder.log",)),
        (["resume", "none.db"], ("none.db",)),
        (["status", "none.db"], ("none.db",)),
        (["best", "none.db"], ("none.db",)),
        (["export", "none.db", "--format", "json", "-o", "x"], ("none.db",)),
        (["export", "none.db", "--format", "jsn", "-o", "x"], ("jsn", "json")),
        (["operators", "none"], ("none",)),
    ],
)
def test_bad_usage(run: Run, tmp_path: Path, arguments: list[str], parts: tuple[str, ...]) -> None:
    assert_refused(run(*arguments), 2, *parts)
    assert list(tmp_path.iterdir()) == []


def test_a_baseline_that_nobody_offers(run: Run, tmp_path: Path) -> None:
    sizes = [word for axis in "MNK" for word in ("--set", f"{axis}=64")]
    named = run("run", "gemm", *sizes, "--baselines", "torch eager")
    assert_refused(named, 2, "unknown 'torch eager'", "on offer here: numpy", "or eager")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ("empty",)),
        (b"not json", ("JSON",)),
        (b"[1, 2]", ()),
        (gzip.compress(b'{"a": 1}', mtime=0)[:-6], ()),
        (b"\x1f\x8bnonsense", ()),
    ],
)
def test_a_file_that_is_no_space(
    run: Run, tmp_path: Path, content: bytes, parts: tuple[str, ...]
) -> None:
    space = tmp_path / "space.json"
    space.write_bytes(content)
    assert_refused(run("run", space), 2, "space.json", *parts)
    assert [path.name for path in tmp_path.iterdir()] == ["space.json"]


@pytest.mark.parametrize(
    ("member", "value", "parts"),
    [
        ("tune_params_keys", "tile", ("'tune_params_keys' must be a list",)),
        ("tune_params", [4, 8], ("'tune_params' must be an object",)),
        ("tune_params", {"tile": [5], "unroll": [1]}, ("none of its", "tile, unroll", "domain")),
    ],
)
def test_a_space_whose_header_is_of_another_kind(
    run: Run, small_space: Path, member: str, value: object, parts: tuple[str, ...]
) -> None:
    content = {**json.loads(small_space.read_text()), member: value}
    small_space.write_text(json.dumps(content))
    assert_refused(run("run", small_space), 2, "small.json", *parts)
    assert [path.name for path in small_space.parent.iterdir()] == ["small.json"]


def test_what_a_recording_left_out_is_said(run: Run, small_space: Path) -> None:
    whole = small_space.read_text()
    content = json.loads(whole)
    content["cache"]["5,1"] = {"tile": 5, "unroll": 1, "time": 1.0}
    small_space.write_text(json.dumps(content))
    said = json.loads(run("run", small_space, "--budget", "3", "--json").out)["remarks"]
    assert any("1 of" in remark and "rows are not used" in remark for remark in said), said
    small_space.write_text(whole[: whole.rindex("{") + 9])
    said = json.loads(run("run", small_space, "--budget", "3", "--json").out)["remarks"]
    assert any("lacks its end" in remark for remark in said), said
    small_space.write_text(whole)
    said = json.loads(run("run", small_space, "--budget", "3", "--json").out)["remarks"]
    assert not any("small.json" in remark for remark in said), said


LONG = "x" * 300


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", f"{LONG}.json"],
        ["run", f"{LONG}.toml"],
        ["run", LONG],
        ["run", "gemm", "--store", LONG],
        ["run", "gemm", "--log", LONG],
        ["run", "gemm", "--seed-genome", LONG],
        ["status", LONG],
        ["export", LONG, "--format", "json", "-o", "x"],
        ["operators", LONG],
    ],
)
def test_a_name_that_is_too_long_for_a_file(run: Run, tmp_path: Path, arguments: list[str]) -> None:
    assert_refused(run(*arguments), 2, "xxx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [["run", "pipe.toml"], ["run", "gemm", "--seed-genome", "pipe.toml"]]
)
def test_a_pipe_is_not_waited_for(run: Run, tmp_path: Path, arguments: list[str]) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    assert_refused(run(*arguments), 2, "pipe.toml", "no regular file")


def test_a_campaign_file_may_begin_with_a_byte_order_mark(run: Run, small_space: Path) -> None:
    text = 'target = "small.json"\nbudget = 3\n'
    small_space.with_name("c.toml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert run("run", "c.toml").code == 0


def test_values_that_no_key_takes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('target = "gemm"\nstore = "a\\u0000b"\n')
    assert_refused(run("run", "c.toml"), 2, "store", "null")
    assert_refused(run("run", "gemm", "--retention", "many"), 2, "retention", "'unbounded'")


def test_a_folder_as_space(run: Run, tmp_path: Path) -> None:
    (tmp_path / "space.json").mkdir()
    assert_refused(run("run", tmp_path / "space.json"), 2, "space.json")


def test_a_campaign_file_with_a_syntax_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('target = "gemm"\nbudget = = 3\n')
    assert_refused(run("run", "c.toml"), 2, "c.toml: line 2, column 10")


def test_genes_that_the_space_does_not_have(run: Run, small_space: Path) -> None:
    assert_refused(run("run", small_space, "--pin", "tiel=4"), 2, "tiel", "'tile'")
    assert_refused(run("run", small_space, "--pin", "tile=5"), 2, "tile", "'5'")
    assert_refused(run("run", small_space, "--strategy", "tiel=memory"), 2, "tiel", "'tile'")
    assert_refused(run("run", small_space, "--set", "M=5"), 2, "--set")
    assert [path.name for path in small_space.parent.iterdir()] == ["small.json"]


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("{", ("not JSON",)),
        ('{"genome": {"tile": 5, "unroll": 1}}', ("tile",)),
        ('{"genome": {"tiel": 4, "unroll": 1}}', ("tiel", "'tile'")),
        ('{"genome": {}}', ("genome",)),
        ('{"bests": [3]}', ("an object with a genome",)),
        ("[" * 20_000, ("not JSON",)),
    ],
)
def test_a_seed_genome_outside_the_space(
    run: Run, small_space: Path, content: str, parts: tuple[str, ...]
) -> None:
    seed = small_space.with_name("seed.json")
    seed.write_text(content)
    assert_refused(run("run", small_space, "--seed-genome", seed), 2, "seed.json", *parts)
    assert not small_space.with_name("kernelarc.db").exists()


@pytest.mark.parametrize("flag", ["--budget=4", "--dry-run"])
def test_a_seed_genome_that_a_pin_excludes_names_the_pin(
    run: Run, small_space: Path, flag: str
) -> None:
    seed = small_space.with_name("seed.json")
    seed.write_text('{"genome": {"tile": 8, "unroll": 1}}')
    words = ("run", small_space, flag, "--seed-genome", seed, "--pin")
    assert_refused(run(*words, "tile=16"), 2, "seed.json", "'tile' is 8", "the pin tile=16")
    assert not small_space.with_name("kernelarc.db").exists()
    assert run(*words, "tile=8").code == 0


def _text_file(path: Path) -> None:
    path.write_text("just some text, and more of it than a header has\n" * 9)


def _foreign_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE other (x)")
    connection.close()


def _newer_schema(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()


@pytest.mark.parametrize("spoil", [_text_file, _foreign_database])
def test_a_store_that_is_none(run: Run, small_space: Path, spoil: Callable[[Path], None]) -> None:
    store = small_space.with_name("s.db")
    spoil(store)
    before = store.read_bytes()
    commands: list[list[str | Path]] = [
        ["status", store],
        ["resume", store],
        ["conclusions", store],
        ["run", small_space, "--budget", "3", "--store", store],
    ]
    for command in commands:
        assert_refused(run(*command), 2, "s.db")
    assert store.read_bytes() == before


def test_a_store_of_a_newer_version(run: Run, small_space: Path) -> None:
    store = small_space.with_name("s.db")
    assert run("run", small_space, "--budget", "3", "--store", store).code == 0
    _newer_schema(store)
    assert_refused(run("best", store), 2, "s.db", "newer")
    assert_refused(run("run", small_space, "--store", store), 2, "s.db", "newer")


def test_campaigns_and_genomes_that_are_not_there(run: Run, small_space: Path) -> None:
    store = small_space.with_name("s.db")
    assert run("run", small_space, "--budget", "5", "--store", store).code == 0
    assert_refused(run("resume", store, "7"), 2, "campaign 7")
    assert_refused(run("best", store, "--campaign", "7"), 2, "campaign 7")
    assert_refused(run("show", store, "zzzz"), 2, "zzzz")
    assert_refused(run("resume", store, "--budget", "0"), 2, "budget")
    assert_refused(run("resume", store, "--seconds", "-1"), 2, "seconds")


def test_extending_one_limit_says_that_the_other_is_used_up(run: Run, small_space: Path) -> None:
    store = small_space.with_name("s.db")
    words = ["run", small_space, "--budget", "5", "--seconds", "600", "--store", store]
    assert run(*words).code == 0
    before = store.read_bytes()
    refused = run("resume", store, "--seconds", "9")
    assert_refused(refused, 2, "campaign 1", "its budget of 5 evaluations", "--budget N")
    assert store.read_bytes() == before
    assert run("resume", store, "--budget", "2").code == 0  # 600 s are far from used up
    again = run("resume", store, "--seconds", "9", "--budget", "2", "--json")
    assert json.loads(again.out)["evaluations"]["unique"] == 9


def test_more_evaluations_alone_do_not_lift_a_used_up_time(run: Run, small_space: Path) -> None:
    store = small_space.with_name("s.db")
    words = ["run", small_space, "--seconds", "0.000001", "--budget", "20", "--store", store]
    assert run(*words).code == 1  # nothing was tried
    before = store.read_bytes()
    refused = run("resume", store, "--budget", "5")
    assert_refused(refused, 2, "campaign 1 has used up its time", "--seconds S")
    assert store.read_bytes() == before
    assert run("resume", store, "--budget", "5", "--seconds", "60").code == 0


def test_who_cannot_choose_a_store_is_not_told_to(run: Run, small_space: Path) -> None:
    store = small_space.with_name("s.db")
    assert run("run", small_space, "--budget", "5", "--store", store).code == 0
    store.with_name("s.db.lock").mkdir()
    for words in (["resume", store, "--budget", "2"], ["verify", store]):
        refused = run(*words)
        assert_refused(refused, 2, "s.db.lock cannot be made", "copy it to a folder on a writable")
        assert "--store" not in refused.err
    again = run("run", small_space, "--store", store)
    assert_refused(again, 2, "s.db.lock cannot be made", "choose --store on a writable disk")


def test_a_space_without_a_valid_genome_ends_with_1(run: Run, small_space: Path) -> None:
    content = json.loads(small_space.read_text())
    for row in content["cache"].values():
        row["time"] = "CompilationFailedConfig"
        row.pop("times", None)
    small_space.write_text(json.dumps(content))
    outcome = run("run", small_space, "--budget", "40", "--json")
    assert outcome.code == 1, outcome.err
    result = json.loads(outcome.out)
    assert result["best"] is None
    assert result["evaluations"]["failed"] == result["evaluations"]["unique"] > 0
    assert_refused(run("export", "kernelarc.db", "--format", "json", "-o", "x.json"), 2, "valid")
    assert not Path("x.json").exists()
    assert run("best", "kernelarc.db").code == 1


def test_no_compiler_is_a_missing_part(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert_refused(run("run", "gemm", "--budget", "3"), 4, "cc", "install")
    assert list(Path().iterdir()) == []
    assert run("doctor").code == 4


DEFINITION = """
{"name": "%s", "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 64},
 "K": {"type": "const", "value": 64}},
 "inputs": {"x": {"shape": ["M", "K"], "dtype": "bfloat16"},
            "w": {"shape": ["N", "K"], "dtype": "bfloat16"}},
 "outputs": {"y": {"shape": ["M", "N"], "dtype": "bfloat16"}},
 "reference": "def run(x, w):\\n    return %s\\n"}
"""


def _problem(folder: Path, body: str) -> Path:
    folder.mkdir()
    (folder / "definition.json").write_text(DEFINITION % ("task", body))
    (folder / "workload.jsonl").write_text('{"uuid": "a", "axes": {"M": 128}, "inputs": {}}\n')
    return folder


def test_a_problem_folder_without_a_route(run: Run, tmp_path: Path) -> None:
    folder = _problem(tmp_path / "task", "softmax(x @ w.T)")
    assert_refused(run("run", folder), 2, "task", "not recognised as a matrix product")


def test_a_problem_folder_brings_its_workloads(run: Run, tmp_path: Path) -> None:
    folder = _problem(tmp_path / "task", "x @ w.T")
    assert_refused(run("run", folder, "--set", "M=3"), 2, "brings its workloads")
    assert_refused(run("run", folder, "--device", "cpu"), 2, "runs on cuda:N")


@pytest.mark.skipif(
    importlib.util.find_spec("nvmath") is not None, reason="the extra cuda is installed"
)
@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "matmul"],
        ["run", "matmul", "--dry-run"],
        ["run", "gemm", "--device", "cuda"],
        ["run", "gemm", "--device", "cuda:3", "--option", "tf32=true"],
    ],
)
def test_a_missing_extra_says_what_to_install(
    run: Run, tmp_path: Path, arguments: list[str]
) -> None:
    assert_refused(run(*arguments), 4, "kernelarc[cuda]", "nvmath-python")
    assert list(tmp_path.iterdir()) == []


def test_a_problem_folder_that_is_a_product_reaches_its_device(run: Run, tmp_path: Path) -> None:
    folder = _problem(tmp_path / "task", "x @ w.T")
    outcome = run("run", folder, "--option", "workspace_mb=4")
    assert_refused(outcome, 2, "'workspace_mb'", "'workspace_mib'")


def test_no_command_shows_the_help(run: Run, tmp_path: Path) -> None:
    outcome = run()
    assert (outcome.code, outcome.out) == (2, "")
    assert "Usage: kernelarc" in outcome.err
    assert "conclusions" in outcome.err
    assert len(outcome.err.splitlines()) > 10


def test_a_log_goes_to_a_log_or_a_new_file_only(run: Run, small_space: Path) -> None:
    store = small_space.with_name("s.db")
    assert run("run", small_space, "--budget", "3", "--store", store).code == 0
    before = {path: path.read_bytes() for path in small_space.parent.iterdir()}
    os.mkfifo(small_space.with_name("pipe"))
    for place, why in ((store, "no log"), (small_space, "no log"), ("pipe", "regular file")):
        assert_refused(run("run", small_space, "--store", store, "--log", place), 2, "--log", why)
    small_space.with_name("pipe").unlink()
    assert {path: path.read_bytes() for path in small_space.parent.iterdir()} == before


def test_a_log_that_cannot_be_made_is_said_before_a_store_is(run: Run, small_space: Path) -> None:
    assert_refused(run("run", small_space, "--log", "/proc/none.log"), 2, "--log /proc/none.log")
    assert_refused(run("run", small_space, "--pin", "x=1", "--log", "new.log"), 2, "'x'")
    assert [path.name for path in small_space.parent.iterdir()] == ["small.json"]


def test_a_full_disk_ends_the_log_and_not_the_campaign(
    run: Run, small_space: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A device that is always full stands in for the log's disk alone.
    monkeypatch.setattr(Path, "is_file", lambda self: self.exists() and not self.is_dir())
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    (small_space.parent / "full.log").symlink_to(full)
    monkeypatch.setattr("kernelarc.cli._log_file.LogFile._demand_log", lambda self: None)
    outcome = run("run", small_space, "--budget", "3", "--log", "full.log", "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["evaluations"]["unique"] == 3
    assert len(outcome.err.splitlines()) == 1
    assert "going on without it" in outcome.err


def test_a_recording_replaces_neither_its_target_nor_a_store(run: Run, small_space: Path) -> None:
    store = small_space.with_name("s.db")
    assert run("run", small_space, "--budget", "3", "--store", store).code == 0
    before = {path: path.read_bytes() for path in small_space.parent.iterdir()}
    assert_refused(run("record", small_space, "-o", "small.json"), 2, "small.json", "the target")
    assert_refused(run("record", small_space, "-o", store), 2, "s.db", "database")
    assert {path: path.read_bytes() for path in small_space.parent.iterdir()} == before
    outcome = run("record", small_space, "-o", "other.json")
    assert outcome.code == 0
    told = outcome.err.splitlines()
    assert len(told) == len(set(told))


@pytest.mark.parametrize("flag", ["--store", "--log", "--seed-genome"])
def test_a_name_that_is_no_utf8_is_refused(run: Run, small_space: Path, flag: str) -> None:
    name = os.fsdecode(b"\xfc.db")
    assert_refused(run("run", small_space, flag, name), 2, "UTF-8")
    assert_refused(run("run", os.fsdecode(b"\xfc.json")), 2, "target", "UTF-8")
    assert [path.name for path in small_space.parent.iterdir()] == ["small.json"]


def test_a_store_whose_name_is_no_utf8_is_read(run: Run, small_space: Path) -> None:
    store = small_space.with_name("s.db")
    assert run("run", small_space, "--budget", "3", "--store", store).code == 0
    moved = store.rename(store.with_name(os.fsdecode(b"\xfc.db")))
    assert run("best", moved).code == 0


def test_a_second_interruption_says_how_to_go_on() -> None:
    with (
        pytest.raises(StoppedError, match=r"go on with: kernelarc resume my\.db 7$"),
        watching(None) as observer,
    ):
        observer.on_start({"store": "my.db", "campaign_id": 7})
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), watching(None):
        raise KeyboardInterrupt


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_output_that_cannot_be_written(small_space: Path) -> None:
    program = "from kernelarc.cli import main; main()"
    command = [sys.executable, "-c", program, "operators"]
    with Path("/dev/full").open("w") as full:
        said = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert said.returncode == 2
    assert len(said.stderr.splitlines()) == 1
    assert "the output cannot be written: No space left" in said.stderr
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    said = subprocess.run(closed, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("definition.json", '"value": 64}', '"value": 0}', "axes.N.value is refused: operator"),
        ("definition.json", '"value": 64}', '"value": -64}', "axes.N.value must be a whole number"),
        ("definition.json", '"bfloat16"}', '"bf16"}', "dtype must be one of float64, float32"),
        ("definition.json", '["M", "K"]', '["M", "J"]', "names the unknown axis 'J'"),
        ("definition.json", "def run", "def ran", "has no top-level function 'run'"),
        ("definition.json", '"y":', '"x":', "outputs.x is the name of an input too"),
        ("workload.jsonl", "128", "-128", "axes.M must be a whole number from 0"),
        ("workload.jsonl", "128", "0", "axis 'M' is 0, which leaves the output 'y' empty"),
        ("workload.jsonl", '"M": 128', "", "axes does not bind the axis 'M'"),
        ("workload.jsonl", '"uuid": "a", ', "", "lacks the field 'uuid'"),
        ("workload.jsonl", "{}}", '{"x": {"type": "zeros"}}}', "inputs.x.type must be one of"),
    ],
)
def test_a_malformed_problem_folder_is_one_line_with_file_line_and_field(
    run: Run, tmp_path: Path, file: str, old: str, new: str, said: str
) -> None:
    folder = _problem(tmp_path / "task", "x @ w.T")
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))
    outcome = run("run", folder)
    assert_refused(outcome, 2, f"{folder / file}, line ", said)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["task"]


def test_what_a_problem_folder_holds_in_vain_is_one_warning(run: Run, tmp_path: Path) -> None:
    folder = _problem(tmp_path / "task", "softmax(x @ w.T)")
    line = (
        '{"uuid": "%s", "axes": {"M": %d}, "inputs": {}, '
        '"tolerance": {"required_match_ratio": 0.9}}'
    )
    (folder / "workload.jsonl").write_text(
        "\n".join(line % row for row in zip("abc", (8, 16, 32), strict=True))
    )
    command = [sys.executable, "-m", "kernelarc", "run", str(folder)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    warned, refused = said.stderr.splitlines()
    assert said.returncode == 2 and refused.startswith("kernelarc: error: ")
    assert warned == (
        f"kernelarc: warning: {folder / 'workload.jsonl'}, line 1: 'required_match_ratio' is "
        "ignored; the schema's name is 'required_matched_ratio' (so on 2 more lines)"
    )


def test_a_malformed_solution_in_a_problem_folder(run: Run, tmp_path: Path) -> None:
    folder = _problem(tmp_path / "task", "x @ w.T")
    (folder / "solution.json").write_text('{\n "name": "s",\n "spec": 5\n}')
    said = "line 3: spec must be a JSON object (languages, target_hardware, entry_point), not 5"
    assert_refused(run("run", folder), 2, said)
