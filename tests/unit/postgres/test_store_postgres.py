"""PostgreSQL conforms."""

from __future__ import annotations

from tests.unit.store_conformance import StoreConformance


class TestPostgres(StoreConformance):
    """Every test of the conformance class, on a real server."""
