"""A campaign through the engine and the command line, kept on a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.postgres.server import Server

from kernelarc.cli import exit_code
from kernelarc.engine import (
    CampaignResult,
    CampaignSettings,
    Counts,
    Observer,
    StopRequest,
    result_of,
    resume,
    run,
)
from kernelarc.genomes import Judged
from kernelarc.storage import Event, open_reader, open_writer

SECRET = "hunter2"
BUDGET = 24


def _settings(space: Path, store: str) -> CampaignSettings:
    return CampaignSettings(target=str(space), store=store, budget=BUDGET, seed=5)


def _history(store: str) -> list[object]:
    """Return the whole log but for events."""
    with open_reader(store) as reader:
        return [entry for _, entry in reader.log(1) if not isinstance(entry, Event)]


def _result(store: str) -> dict[str, Any]:
    with open_reader(store) as reader:
        found = result_of(reader, 1, store=store).to_json()
    return {key: value for key, value in found.items() if key not in ("seconds", "store")}


class After(Observer):
    """Does something once, after so many verdicts."""

    def __init__(self, verdicts: int, act: Callable[[], object]) -> None:
        self.left = verdicts
        self.act = act

    def on_verdict(self, judged: Judged, counts: Counts) -> None:
        self.left -= 1
        if self.left == 0:
            self.act()


@pytest.fixture
def on_file(small_space: Path) -> str:
    """Run the campaign that the others must equal, in a file."""
    store = str(small_space.with_name("whole.db"))
    assert run(_settings(small_space, store)).exit_code == 0
    return store


def test_a_campaign_on_a_server_equals_one_in_a_file(
    small_space: Path, on_file: str, where: str
) -> None:
    run(_settings(small_space, where))
    assert _history(where) == _history(on_file)
    assert _result(where) == _result(on_file)


def test_interrupted_and_resumed_on_a_server_equals_left_alone(
    small_space: Path, on_file: str, where: str
) -> None:
    stop = StopRequest()
    cut = run(_settings(small_space, where), observer=After(7, stop.ask), stop=stop)
    assert (cut.status, cut.exit_code, cut.store) == ("interrupted", 3, where)
    assert resume(where).status == "finished"
    assert _history(where) == _history(on_file)
    assert _result(where) == _result(on_file)


def test_a_connection_lost_in_the_middle_is_resumed_from(
    server: Server, small_space: Path, on_file: str, where: str
) -> None:
    others = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE pid <> "

    def sever() -> None:
        server.do(f"{others} pg_backend_pid() AND application_name LIKE 'kernelarc pid%'")

    cut = run(_settings(small_space, where), observer=After(5, sever))
    assert (cut.status, cut.exit_code) == ("stopped", 3)
    assert "the connection to the server was lost" in cut.reason
    assert f"kernelarc resume {where}" in cut.reason
    assert resume(where).status == "finished"
    assert _history(where) == _history(on_file)
    assert _result(where) == _result(on_file)


def test_a_server_lost_in_the_middle_stops_the_campaign_with_one_line(
    server: Server,
    small_space: Path,
    on_file: str,
    where: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flags = ("--store", where, "--budget", str(BUDGET), "--seed", "5")
    monkeypatch.setattr("kernelarc.engine.run", _halting(server))
    try:
        code = exit_code(["run", str(small_space), *flags])
    finally:
        server.start()
    said = capsys.readouterr().err
    assert code == 3
    assert said.count("\n") == 1
    assert "the connection to the server was lost" in said
    assert resume(where).status == "finished"
    assert _history(where) == _history(on_file)


def _halting(server: Server) -> Callable[..., CampaignResult]:
    """Return ``run`` on a server that is shut down after some verdicts."""

    def halting(settings: CampaignSettings, **more: Any) -> CampaignResult:
        return run(settings, **{**more, "observer": After(5, server.halt)})

    return halting


def test_a_campaign_that_another_process_writes_is_neither_resumed_nor_verified(
    small_space: Path, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = StopRequest()
    run(_settings(small_space, where), observer=After(7, stop.ask), stop=stop)
    before = _history(where)
    with open_writer(where) as other:
        other.claim(1)
        for command in ("resume", "verify"):
            assert exit_code([command, where]) == 2
            said = capsys.readouterr().err
            assert "campaign 1 is in use by a running campaign (kernelarc pid" in said
            assert said.count("\n") == 1
        beside = run(_settings(small_space, where))
        assert (beside.status, beside.campaign_id) == ("finished", 2)
    assert _history(where) == before


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg"])
def test_every_command_works_and_none_shows_the_password(
    server: Server,
    small_space: Path,
    tmp_path: Path,
    scheme: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    server.role("locked", password=SECRET)
    schema = server.schema(owner="locked")
    name = server.inside(schema, user="locked")
    url = server.inside(schema, user="locked", password=SECRET).replace("postgresql", scheme, 1)

    def call(*words: str) -> str:
        code = exit_code(list(words))
        printed = capfd.readouterr()
        assert code == 0, printed.err
        assert SECRET not in printed.out + printed.err
        return printed.out

    flags = ("--store", url, "--budget", "12", "--seed", "3", "--log", "run.log")
    result = json.loads(call("run", str(small_space), *flags, "--json"))
    assert result["store"] == name
    assert json.loads(call("resume", url, "--budget", "4", "--json"))["status"] == "finished"
    for command in ("status", "best", "campaigns", "conclusions", "verify"):
        assert json.loads(call(command, url, "--json"))["store"] == name
        call(command, url)
    fingerprint = result["best"]["fingerprint"]
    assert json.loads(call("show", url, fingerprint, "--json"))["store"] == name
    call("export", url, "--format", "json", "-o", "out.json")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"run.log", "out.json"} <= {path.name for path in files}
    for path in files:
        assert SECRET.encode() not in path.read_bytes()
    with server.connect() as connection:
        for row in connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema]
        ):
            rows = connection.execute(f"SELECT t::text FROM {schema}.{row[0]} AS t".encode())
            assert SECRET not in str(rows.fetchall())
