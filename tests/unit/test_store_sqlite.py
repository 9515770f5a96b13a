"""SQLite conforms."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.store_conformance import StoreConformance


class TestSqlite(StoreConformance):
    """Every test of the conformance class, on a file."""

    @pytest.fixture
    def where(self, tmp_path: Path) -> str:
        return str(tmp_path / "a store.db")
