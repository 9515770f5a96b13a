"""Recognising operators by what their references compute, in whatever words and order."""

from __future__ import annotations

import ast
from dataclasses import replace

from kernelarc.genomes._operators import Operator
from kernelarc.genomes.routes._formula import Formula, formula_of, gelu, number, times, total
from kernelarc.genomes.routes._recognise import recognised_matmul


def recognised(operator: Operator) -> Operator:
    """Return the operator with the ``op_type`` of what its reference computes.

    Known are matrix products (``recognised_matmul``), a residual added and normalised by the root
    mean square (``rmsnorm``), and two projections of which one gates the other
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
    """Tell whether it is ``weight * s * rsqrt(mean(s * s) + eps)`` with ``s`` a sum of two."""
    shape = operator.outputs[0].shape
    rows = [spec.name for spec in operator.inputs if spec.shape and spec.shape == shape]
    vectors = [spec.name for spec in operator.inputs if shape and spec.shape == shape[-1:]]
    scalars = [spec.name for spec in operator.inputs if spec.shape is None]
    if len(rows) != 2 or len(vectors) != 1 or len(scalars) > 1:
        return False
    if scalars:
        epsilon = _input(scalars[0])
    else:
        value = _named_epsilon(operator.reference or "")
        if value is None:
            return False
        epsilon = number(value)
    s = total(_input(rows[0]), _input(rows[1]))
    mean: Formula = ("mean", times(s, s))
    return found == times(_input(vectors[0]), s, ("rsqrt", total(mean, epsilon)))


def _named_epsilon(reference: str) -> float | None:
    """Return the number that a reference gives the name ``EPSILON`` or ``EPS``, in any case."""
    for node in ast.walk(ast.parse(reference)):
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
