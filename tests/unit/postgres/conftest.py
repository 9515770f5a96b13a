"""One server for each test process, started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.postgres.server import Server, binaries


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Start the server from the binaries that are installed here."""
    programs = binaries()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed (Debian: apt-get install postgresql)")
    running = Server(programs)
    yield running
    running.stop()


@pytest.fixture
def schema(server: Server) -> str:
    """Make an empty schema: as good as a database, and much cheaper."""
    return server.schema()


@pytest.fixture
def where(server: Server, schema: str) -> str:
    """Return the URL of a place in which there is no store yet."""
    return server.inside(schema)
