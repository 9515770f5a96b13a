"""Recognising operators by what their references compute, in whatever words and order."""

from __future__ import annotations

import ast
from dataclasses import replace

from kernelarc.genomes._operators import Operator
from kernelarc.genomes.routes._formula import Formula, formula_of, gelu, times, total
from kernelarc.genomes.routes._recognise import recognised_matmul


def recognised(operator: Operator) -> Operator:
    """Return the operator with the ``op_type`` of what its reference computes.

    Known are matrix products (``recognised_matmul``), rows normalised by their root mean square, a
    residual added before or not (``rmsnorm``), and two projections of which one gates the other
    (``gated_projection``). Others come back as they are. The fingerprint stays.
    """
    product = recognised_matmul(operator)
    if product is not None:
        return product
    if operator.reference is None or len(operator.outputs) != 1:
        return operator
    names = tuple(spec.name for spec in operator.inputs)
    found = formula_of(operator.reference, names)
    if found is None:
        return operator
    for kind, fits in (("rmsnorm", _is_norm), ("gated_projection", _is_gated)):
        if fits(operator, found):
            return replace(operator, op_type=kind)
    return operator


def _input(name: str, turned: bool = False) -> Formula:
    return ("input", name, turned)


def _is_norm(operator: Operator, found: Formula) -> bool:
    """Tell whether it is ``w * s * rsqrt(mean(s * s) + eps)``, ``s`` one input or two added."""
    shape = operator.outputs[0].shape
    rows = [spec.name for spec in operator.inputs if spec.shape and spec.shape == shape]
    vectors = [spec.name for spec in operator.inputs if shape and spec.shape == shape[-1:]]
    scalars = [spec.name for spec in operator.inputs if spec.shape is None]
    if len(rows) not in {1, 2} or len(vectors) != 1 or len(scalars) > 1:
        return False
    s = total(*map(_input, rows))
    mean: Formula = ("mean", times(s, s))
    epsilons = [_input(name) for name in scalars] or _added_numbers(found, mean)
    return any(
        found == times(_input(vectors[0]), s, ("rsqrt", total(mean, epsilon)))
        for epsilon in epsilons
    )


def norm_epsilon(operator: Operator) -> str | float | None:
    """Return what a normalisation adds to the mean square: a scalar input's name, or a number."""
    scalars = [spec.name for spec in operator.inputs if spec.shape is None]
    if scalars:
        return scalars[0] if len(scalars) == 1 else None
    reference = operator.reference or ""
    found = formula_of(reference, tuple(spec.name for spec in operator.inputs))
    numbers = set() if found is None else {part[1] for part in _added_numbers(found, None)}
    return float(numbers.pop()) if len(numbers) == 1 else _named_epsilon(reference)


def _added_numbers(found: Formula, mean: Formula | None) -> list[Formula]:
    """Return the numbers that are added to a mean below a root; None takes any mean."""
    numbers = []
    for part in found:
        if isinstance(part, tuple):
            numbers += _added_numbers(part, mean)
    if found[0] == "rsqrt" and found[1][0] == "sum" and len(found[1]) == 3:
        terms = [term for term in found[1][1:] if term[0] != "number"]
        if len(terms) == 1 and (terms[0] == mean if mean else terms[0][0] == "mean"):
            numbers += [term for term in found[1][1:] if term[0] == "number"]
    return numbers


def _named_epsilon(reference: str) -> float | None:
    """Return the number that a reference gives the name ``EPSILON`` or ``EPS``, in any case."""
    try:
        nodes = list(ast.walk(ast.parse(reference)))
    except (SyntaxError, ValueError):
        return None
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            names = {t.id.lower() for t in node.targets if isinstance(t, ast.Name)}
            if names & {"epsilon", "eps"} and isinstance(node.value.value, float):
                return node.value.value
    return None


def _is_gated(operator: Operator, found: Formula) -> bool:
    """Tell whether it is ``bend(x . gate') * (x . up')``, inputs in that order."""
    if len(operator.inputs) != 3:
        return False
    x, gate, up = operator.inputs
    if x.shape is None or gate.shape is None or len(gate.shape) != 2 or gate.shape != up.shape:
        return False
    g: Formula = ("matmul", _input(x.name), _input(gate.name, True))
    u: Formula = ("matmul", _input(x.name), _input(up.name, True))
    silu = times(g, ("sigmoid", g))
    return found in (times(silu, u), times(gelu(g), u))
