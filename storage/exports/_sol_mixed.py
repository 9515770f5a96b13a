"""A solution of two routes: Triton's kernels where they won, cuBLASLt for every other shape."""

from __future__ import annotations

from kernelarc.genomes import InputError, Solution
from kernelarc.storage.exports._sol_cublaslt import cublaslt_source
from kernelarc.storage.exports._sol_triton import triton_sources
from kernelarc.storage.exports._sol_words import about, solution_name
from kernelarc.storage.exports._subject import Subject

FILE, LIBRARY, COMPILED = "solution.py", "library_part.py", "compiled_part.py"


def mixed_solution(subject: Subject) -> Solution:
    """Return the solution of a campaign whose bests are of cuBLASLt and of Triton.

    Raises:
        InputError: A genome overwrites an input, which only a solution of one route can say.
        MissingPartError: Triton is not installed.
    """
    library, in_place = cublaslt_source(subject)
    if in_place:
        raise InputError(
            f"campaign {subject.campaign.id}: format sol writes two routes only where no genome "
            f"overwrites the residual; run without in_place, or with one of --routes"
        )
    operator = subject.operator
    names = [spec.name for spec in (*operator.inputs, *operator.outputs)]
    pairs = ", ".join(f'"{name}": {name}' for name in names)
    source = (
        '"""Each shape runs what was found fastest for it."""\n\n'
        "from compiled_part import KEY, TABLE, launch\n"
        "from library_part import run as library\n\n\n"
        f"def run({', '.join(names)}):\n"
        f'    """Write the outputs; the inputs stay as they are."""\n'
        f"    memory = {{{pairs}}}\n"
        "    if tuple(memory[name].shape[place] for name, place in KEY) in TABLE:\n"
        "        launch(memory)\n"
        "    else:\n"
        f"        library({', '.join(names)})\n"
    )
    compile(source, FILE, "exec")
    return Solution(
        name=solution_name(subject, "cublaslt_triton"),
        definition=operator.name,
        author="kernelarc",
        languages=("triton",),
        entry_point=f"{FILE}::run",
        sources={FILE: source, LIBRARY: library, **triton_sources(subject, COMPILED)},
        dependencies=("torch", "triton"),
        description=about(subject),
    )
