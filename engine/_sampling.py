"""How much ``check`` and ``record`` take of a space unless told otherwise."""

from __future__ import annotations

SAMPLES = 20
"""Genomes that ``check`` compiles of each route and workload."""

MEASURE, CHECK = 1500, 5000
"""Genomes of each workload that ``record`` measures, and that it asks the device about."""
