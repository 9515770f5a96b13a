"""A SOL-ExecBench ``solution.json``: read with every field checked, and written."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from kernelarc.genomes._errors import InputError
from kernelarc.genomes._json_source import Node, parsed, read_text

PYTHON_LANGUAGES = ("pytorch", "triton", "cute_dsl", "cutile", "cudnn_frontend")
CPP_LANGUAGES = ("cuda_cpp", "cutlass", "cudnn", "cublas")
HARDWARE = ("B200", "LOCAL")
BINDINGS = ("torch",)
CPP_SUFFIXES = (".cu", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp", ".cuh")
OPTION_LISTS = ("cflags", "cuda_cflags", "ld_flags")
_ENTRY = "'file::function', the file being one of the sources"


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """Sources that do a definition's job, and how the harness builds and calls them.

    Attributes:
        name: Of the solution.
        definition: Name of the definition it is for.
        author: Who made it.
        languages: All of Python or all of C++.
        entry_point: ``"file::function"``.
        sources: Text by relative path.
        hardware: Out of ``HARDWARE``.
        dependencies: Packages that it imports.
        destination_passing: Whether outputs are handed in as the last arguments.
        compile_options: Flags by ``cflags``, ``cuda_cflags``, ``ld_flags``.
        description: What it is, in words.
    """

    name: str
    definition: str
    author: str
    languages: tuple[str, ...]
    entry_point: str
    sources: dict[str, str]
    hardware: tuple[str, ...] = HARDWARE
    dependencies: tuple[str, ...] = ()
    destination_passing: bool = True
    compile_options: dict[str, tuple[str, ...]] = field(default_factory=dict)
    description: str = ""

    def text(self) -> str:
        """Return it as JSON text."""
        spec: dict[str, object] = {
            "languages": list(self.languages),
            "target_hardware": list(self.hardware),
            "entry_point": self.entry_point,
            "dependencies": list(self.dependencies),
            "destination_passing_style": self.destination_passing,
        }
        if self.compile_options:
            spec["binding"] = "torch"
            spec["compile_options"] = {k: list(v) for k, v in self.compile_options.items()}
        content = {
            "name": self.name,
            "definition": self.definition,
            "author": self.author,
            "description": self.description or self.name,
            "spec": spec,
            "sources": [{"path": p, "content": text} for p, text in self.sources.items()],
        }
        return json.dumps(content, indent=1) + "\n"


def load_solution(path: str | Path) -> Solution:
    """Read a ``solution.json``; a source without content is read from the file beside it.

    Raises:
        InputError: It is missing or malformed; the message says on which line, in which field,
            and what is allowed there.
    """
    path = Path(path)
    return _solution(parsed(read_text(path), str(path)), path.parent)


def checked_solution(text: str, where: str) -> Solution:
    """Read a solution from text that holds all of its sources.

    Raises:
        InputError: It is malformed.
    """
    return _solution(parsed(text, where), None)


def _solution(node: Node, folder: Path | None) -> Solution:
    node.members("a solution: name, definition, author, spec, sources")
    spec = node.need("spec", "an object: languages, target_hardware, entry_point")
    spec.members("languages, target_hardware, entry_point")
    languages = _languages(spec)
    sources = _sources(node, folder)
    binding, passing = spec.get("binding"), spec.given("destination_passing_style")
    if binding is not None:
        binding.chosen(BINDINGS)
    about = node.get("description")
    return Solution(
        name=node.need("name", "a text").text(),
        definition=node.need("definition", "the name of a definition").text(),
        author=node.need("author", "a text").text(),
        languages=languages,
        entry_point=_entry_point(spec, sources, languages),
        sources=sources,
        hardware=_chosen_all(spec, "target_hardware", HARDWARE),
        dependencies=_dependencies(spec.given("dependencies")),
        destination_passing=True if passing is None else passing.switch(),
        compile_options=_options(spec.get("compile_options")),
        description="" if about is None else about.words(),
    )


def _chosen_all(spec: Node, name: str, known: tuple[str, ...]) -> tuple[str, ...]:
    entry = spec.need(name, f"a list out of {', '.join(known)}")
    found = tuple(item.chosen(known) for item in entry.items(f"names out of {', '.join(known)}"))
    if not found:
        raise entry.wrong(f"a list with at least one of {', '.join(known)}")
    return found


def _languages(spec: Node) -> tuple[str, ...]:
    known = (*PYTHON_LANGUAGES, *CPP_LANGUAGES)
    found = _chosen_all(spec, "languages", known)
    if len({language in CPP_LANGUAGES for language in found}) > 1:
        raise spec.need("languages", "").wrong(
            f"all out of {', '.join(PYTHON_LANGUAGES)} or all out of {', '.join(CPP_LANGUAGES)}"
        )
    return found


def _sources(node: Node, folder: Path | None) -> dict[str, str]:
    entry = node.need("sources", "a list of path and content")
    found: dict[str, str] = {}
    for item in entry.items("sources, each with path and content"):
        item.members("path and content")
        path = item.need("path", "a relative path")
        name = path.text("a relative path")
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise path.wrong("a relative path without '..'")
        if name in found:
            raise path.refused(f"names {name!r} again; every source has a path of its own")
        found[name] = _content(item, name, folder)
    if not found:
        raise entry.wrong("a list with at least one source")
    return found


def _content(item: Node, name: str, folder: Path | None) -> str:
    content = item.get("content")
    if content is not None and content.value != "":
        return content.text("the source's text")
    try:
        if folder is not None and (folder / name).is_file():
            return read_text(folder / name)
    except OSError:  # a name that no file can have
        pass
    raise item.refused(f"lacks the field 'content', and there is no file {name!r} beside it")


def _entry_point(spec: Node, sources: dict[str, str], languages: tuple[str, ...]) -> str:
    entry = spec.need("entry_point", _ENTRY)
    text = entry.text(_ENTRY)
    file, _, function = text.partition("::")
    if text.count("::") != 1 or not function or file not in sources:
        raise entry.wrong(_ENTRY)
    allowed = CPP_SUFFIXES if languages[0] in CPP_LANGUAGES else (".py",)
    if PurePosixPath(file).suffix not in allowed:
        raise entry.wrong(f"in a file that ends in {', '.join(allowed)} for {languages[0]}")
    return text


def _dependencies(node: Node | None) -> tuple[str, ...]:
    return () if node is None else tuple(item.text() for item in node.items("names of packages"))


def _options(node: Node | None) -> dict[str, tuple[str, ...]]:
    if node is None:
        return {}
    node.members(", ".join(OPTION_LISTS))
    given = {name: node.given(name) for name in OPTION_LISTS}
    return {
        name: tuple(item.words() for item in flags.items("texts, one a flag"))
        for name, flags in given.items()
        if flags is not None
    }


def require_definition(solution: Solution, operator: str, where: str) -> None:
    """Refuse a solution that is for another definition.

    Raises:
        InputError: Says which.
    """
    if solution.definition != operator:
        raise InputError(
            f"{where}: the solution is for the definition {solution.definition!r}, not {operator!r}"
        )
