"""A user's kernel file: what is found in it, and one clear line for each thing wrong with it."""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path

import pytest

from kernelarc.bench.kernelfile import KernelFile, read_kernel_file
from kernelarc.genomes import InputError, MissingPartError

HAS_TRITON = importlib.util.find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed")

HEAD = "import triton\nimport triton.language as tl\n\n"
JITTED = """
@triton.jit
def {name}(x, n, BLOCK: tl.constexpr, MODE: tl.constexpr = 2):
    tl.store(x + tl.arange(0, BLOCK), 0.0)
"""
TUNED = """
def before(arguments):
    pass

@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 128}, num_warps=8, num_stages=2),
        triton.Config({"BLOCK": 256, "MODE": 3}, num_stages=4, maxnreg=96),
    ],
    key=["n"],
    reset_to_zero=["x"],
    pre_hook=before,
)
@triton.heuristics({"EVEN": lambda arguments: arguments["n"] % 2 == 0})
@triton.jit
def tuned(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr, MODE: tl.constexpr = 2):
    tl.store(x + tl.arange(0, BLOCK), inner(0.0))

@triton.jit
def inner(value):
    return value
"""


def read(tmp_path: Path, text: str, limit_s: float = 60.0) -> KernelFile:
    path = tmp_path / "kernels.py"
    path.write_text(text)
    return read_kernel_file(path, limit_s=limit_s)


def refused(tmp_path: Path, text: str, limit_s: float = 60.0) -> str:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text, limit_s)
    assert caught.value.exit_code == 2
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(tmp_path / "kernels.py"), "FILE")


def test_a_syntax_error_is_placed_by_line(tmp_path: Path) -> None:
    assert (
        refused(tmp_path, "x = 1\ndef broken(:\n") == "FILE, line 2: syntax error: invalid syntax"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        (b"x = '\xff\xfe'\n", "syntax error|Python"),
        (b"# \xe9 in a comment\nx = 1\n", "it is not UTF-8 and declares"),
        (b"x = 1\n\n\n# \xe9 further down\n", "is no Python source: 'utf-8' codec"),
    ],
)
def test_a_file_that_is_no_python(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "kernels.py"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_kernel_file(path)


@pytest.mark.skipif(HAS_TRITON, reason="Triton is installed")
def test_without_triton_the_line_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(MissingPartError, match=r"install kernelarc\[triton\]") as caught:
        read(tmp_path, HEAD)
    assert caught.value.exit_code == 4


@needs_triton
def test_an_autotuned_kernel_says_all_that_its_decorators_say(tmp_path: Path) -> None:
    kernel = read(tmp_path, HEAD + TUNED).kernel()
    assert (kernel.name, kernel.tuned, kernel.prunes) == ("tuned", True, False)
    assert (
        kernel.line
        == (HEAD + TUNED)
        .splitlines()
        .index("def tuned(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr, MODE: tl.constexpr = 2):")
        + 1
    )
    assert kernel.seeds == (
        {"BLOCK": 128, "MODE": 2, "num_warps": 8, "num_stages": 2, "num_ctas": 1, "maxnreg": 0},
        {"BLOCK": 256, "MODE": 3, "num_warps": 4, "num_stages": 4, "num_ctas": 1, "maxnreg": 96},
    )
    assert kernel.keys == ("n",)
    assert kernel.reset_to_zero == ("x",)
    assert kernel.hooks == ("pre_hook",)
    assert kernel.heuristics == ("EVEN",)
    assert kernel.constants == ("BLOCK", "EVEN", "MODE")


@needs_triton
def test_a_jitted_function_that_another_calls_is_no_kernel(tmp_path: Path) -> None:
    assert [k.name for k in read(tmp_path, HEAD + TUNED).kernels] == ["tuned"]


@needs_triton
def test_kernels_of_other_files_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text(HEAD + JITTED.format(name="far"))
    text = HEAD + "from elsewhere import far\n" + JITTED.format(name="near")
    assert [k.name for k in read(tmp_path, text).kernels] == ["near"]


@needs_triton
def test_of_two_kernels_the_user_is_asked_which(tmp_path: Path) -> None:
    text = HEAD + JITTED.format(name="first") + JITTED.format(name="second")
    file = read(tmp_path, text)
    with pytest.raises(InputError, match=r"has 2 kernels: first \(line 6\), second \(line 10\)"):
        file.kernel()
    assert file.kernel("second").line == 10
    with pytest.raises(InputError, match="did you mean 'second'"):
        file.kernel("secnd")


@needs_triton
def test_a_file_without_a_kernel(tmp_path: Path) -> None:
    assert "no kernel in it" in refused(tmp_path, HEAD)


@needs_triton
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("\n1 / 0\n", "FILE, line 5: raises on import: ZeroDivisionError: division by zero"),
        ("import absent_part\n", "line 4: raises on import: ModuleNotFoundError: No module named"),
        ("raise SystemExit(3)\n", "raises on import: SystemExit: 3"),
    ],
)
def test_a_file_that_raises_on_import(tmp_path: Path, body: str, message: str) -> None:
    assert message in refused(tmp_path, HEAD + body)


@needs_triton
def test_a_file_that_ends_its_process(tmp_path: Path) -> None:
    text = HEAD + "import os\nprint('leaving', flush=True)\nos._exit(7)\n"
    assert refused(tmp_path, text) == "FILE: ended its process on import (exit 7): leaving"


@needs_triton
def test_an_import_that_never_ends_is_ended_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "child"
    text = (
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
        "while True: time.sleep(1)\n"
    )
    assert "takes longer than 4 s" in refused(tmp_path, text, limit_s=4.0)
    for _ in range(50):
        if not _runs(int(note.read_text())):
            break
        time.sleep(0.1)
    assert not _runs(int(note.read_text()))


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@needs_triton
def test_what_a_file_prints_is_caught(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = HEAD + JITTED.format(name="noisy") + "import os\nprint('loud')\nos.write(1, b'raw\\n')\n"
    file = read(tmp_path, text)
    assert {"loud", "raw"} <= set(file.printed.split())
    assert capfd.readouterr() == ("", "")


@needs_triton
def test_a_value_that_cannot_be_searched(tmp_path: Path) -> None:
    text = HEAD + (
        "@triton.autotune(configs=[triton.Config({'BLOCK': 8}), triton.Config({'BLOCK': None})],"
        " key=[])\n" + JITTED.format(name="odd").lstrip()
    )
    assert "configuration 2 of odd: BLOCK is None" in refused(tmp_path, text)


def test_nothing_of_the_file_is_imported_here(tmp_path: Path) -> None:
    marker = f"KERNELARC_TEST_{os.getpid()}"
    path = tmp_path / "kernels.py"
    path.write_text(f"import os\nos.environ[{marker!r}] = 'set'\n")
    with pytest.raises((InputError, MissingPartError)):
        read_kernel_file(path)
    assert marker not in os.environ
