"""One writer a campaign, several campaigns at once; and whatever dies, nothing is half written."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.postgres.server import Server
from tests.unit.store_records import (
    ELSEWHERE,
    HERE,
    RACE,
    SPEC,
    asked_and_told,
    candidate,
    measured,
)

from kernelarc.genomes import Candidate, InputError, Judged, StoppedError
from kernelarc.storage import Event, Round, StoreReader, StoreWriter, open_reader, open_writer

ROOT = Path(__file__).resolve().parent.parent.parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
HOLD = """
import os, sys, time
from kernelarc.storage import open_writer
from tests.unit.store_records import *
writer = open_writer(sys.argv[1], create=True)
campaign = writer.begin(SPEC, HERE)
{more}
print(campaign, flush=True)
time.sleep(60)
"""
# Genomes are the same in every campaign, in an order of the writer's own.
APPEND = """
import random, sys
from kernelarc.storage import Round, open_writer
from tests.unit.store_records import *
rng = random.Random(int(sys.argv[2]))
with open_writer(sys.argv[1], create=True) as writer:
    campaign = writer.begin(SPEC, HERE)
    print(campaign, flush=True)
    for number in range({rounds}):
        chosen = [rng.randrange(60) for _ in range(8)]
        asked = [candidate(8 * number + place, n=n) for place, n in enumerate(chosen)]
        told = [measured(c, 1.0 + c.number) for c in asked]
        writer.append(campaign, [Round(number=number, counts={{}}), *asked, *told])
        print(number, flush=True)
"""


def _program(text: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", text, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


@contextlib.contextmanager
def holder(where: str, more: str = "") -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run another process that begins a campaign and keeps it."""
    with _program(HOLD.format(more=more), where) as child:
        try:
            assert child.stdout is not None
            yield child, int(child.stdout.readline())
        finally:
            child.kill()


def _soon(succeeds: Callable[[], object]) -> None:
    """Try until it is not refused any more: a server needs a moment to notice a death."""
    deadline = time.monotonic() + 20
    while not _accepted(succeeds):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _accepted(call: Callable[[], object]) -> bool:
    try:
        call()
    except InputError as error:
        assert "is in use by a running campaign" in str(error)
        return False
    return True


def _resumed(where: str, campaign: int, kind: str = "resumed") -> None:
    with open_writer(where) as writer:
        writer.claim(campaign)
        writer.append(campaign, [Event(kind=kind)])


# Who may write


def test_a_second_process_is_refused_by_name(where: str) -> None:
    with holder(where) as (child, campaign), open_writer(where) as writer:
        for call in (
            lambda: writer.claim(campaign),
            lambda: writer.append(campaign, [Event(kind="mine")]),
        ):
            with pytest.raises(InputError) as caught:
                call()
            line = str(caught.value)
            assert re.search(
                rf"campaign {campaign} is in use by a running campaign \(kernelarc pid "
                rf"{child.pid} on .+, user owner, since 20..-",
                line,
            )
            assert "\n" not in line
        own = writer.begin(SPEC, HERE)
        assert own == campaign + 1
        assert writer.append(own, asked_and_told(2)) == 4
        assert list(writer.events(campaign)) == []


def test_a_second_writer_of_one_process_is_refused_too(where: str) -> None:
    with open_writer(where, create=True) as first:
        campaign = first.begin(SPEC, HERE)
        first.claim(campaign)
        with open_writer(where) as second:
            with pytest.raises(InputError, match=rf"pid {os.getpid()} on"):
                second.claim(campaign)
            first.close()
            _soon(lambda: second.claim(campaign))
            assert second.append(campaign, asked_and_told(1)) == 2
        with pytest.raises(InputError, match="no campaign 7"):
            open_writer(where).claim(7)


def test_a_killed_writer_leaves_no_lock(where: str) -> None:
    with holder(where) as (child, campaign):
        child.send_signal(signal.SIGKILL)
        child.wait()
        _soon(lambda: _resumed(where, campaign))


def test_a_forked_child_does_not_keep_the_lock(where: str) -> None:
    more = (
        "if os.fork() == 0:\n"
        "    try:\n"
        "        writer.campaigns()\n"
        "    except Exception as error:\n"
        "        print('child', type(error).__name__, flush=True)\n"
        "    time.sleep(60)\n"
        "time.sleep(1)\n"  # the child speaks first
        "writer.append(campaign, asked_and_told(1))"
    )
    with _program(HOLD.format(more=more), where) as child:
        assert child.stdout is not None
        said = child.stdout.readline().split()
        campaign = int(child.stdout.readline())
        orphans = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        child.kill()
        child.wait()
        try:
            _soon(lambda: _resumed(where, campaign))
        finally:
            for orphan in orphans:
                os.kill(int(orphan), signal.SIGKILL)
    assert said == ["child", "StoppedError"]
    assert len(orphans) == 1


def test_a_started_program_does_not_keep_the_lock(where: str) -> None:
    writer = open_writer(where, create=True)
    campaign = writer.begin(SPEC, HERE)
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        try:
            writer.close()
            _soon(lambda: _resumed(where, campaign))
        finally:
            child.kill()


# Several at once


def test_writers_of_several_campaigns_share_genomes_and_never_wait_for_ever(where: str) -> None:
    """They also make the store at the same time, and begin at the same time."""
    running = [_program(APPEND.format(rounds=40), where, str(seed)) for seed in range(3)]
    for child in running:
        _, errors = child.communicate(timeout=90)
        assert (child.returncode, errors) == (0, "")
    with open_reader(where) as reader:
        campaigns = reader.campaigns()
        assert [row.id for row in campaigns] == [1, 2, 3]
        assert len(reader.operators()) == 1
        for row in campaigns:
            log = list(reader.log(row.id))
            assert [position for position, _ in log] == list(range(1, 40 * 17 + 1))
            asked = [entry for _, entry in log if isinstance(entry, Candidate)]
            assert [c.number for c in asked] == list(range(320))
        known = list(reader.known(HERE.fingerprint, SPEC.problem.workloads[0].fingerprint))
        assert len({k.genome.fingerprint for k in known}) == len(known) == 60


def test_a_genome_that_another_writer_is_just_adding_is_waited_for(where: str) -> None:
    """The slower one finds it there, whether the faster one commits or not."""
    with open_writer(where, create=True) as one, open_writer(where) as other:
        first, second = one.begin(SPEC, HERE), other.begin(SPEC, HERE)
        for number, fate in enumerate(("COMMIT", "ROLLBACK")):
            done: list[int] = []
            with one._backend.writing() as connection:  # type: ignore[attr-defined]
                _add_genomes(one, connection, [2 * number, 2 * number + 1])
                thread = threading.Thread(target=_append, args=(other, second, number, done))
                thread.start()
                _wait_until_one_waits(where)
                assert done == []
                connection.exec_driver_sql(fate)
                if fate == "ROLLBACK":
                    connection.exec_driver_sql("BEGIN")
            thread.join(20)
            assert done == [4 * (number + 1)]
        one.append(first, asked_and_told(4))
        assert [c.genome for _, c in one.log(first) if isinstance(c, Candidate)] == [
            c.genome for _, c in one.log(second) if isinstance(c, Candidate)
        ]


def _add_genomes(writer: StoreWriter, connection: object, numbers: list[int]) -> None:
    genomes = {candidate(n).genome.fingerprint: candidate(n).genome for n in numbers}
    writer._genomes(connection, genomes)  # type: ignore[attr-defined]


def _append(writer: StoreWriter, campaign: int, number: int, done: list[int]) -> None:
    done.append(writer.append(campaign, asked_and_told(2, start=2 * number)))


def _wait_until_one_waits(where: str) -> None:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    deadline = time.monotonic() + 20
    with open_reader(where) as reader:
        while time.monotonic() < deadline:
            with reader._backend.reading() as connection:  # type: ignore[attr-defined]
                if connection.exec_driver_sql(waiting).scalar_one() > 0:
                    return
            time.sleep(0.01)
    raise AssertionError("nobody waits")


def test_whoever_keeps_others_waiting_for_too_long_is_said(where: str) -> None:
    with open_writer(where, create=True) as one, open_writer(where, wait_s=0.05) as other:
        campaign = other.begin(SPEC, HERE)
        with one._backend.writing() as connection:  # type: ignore[attr-defined]
            one._backend.take_turn(connection)  # type: ignore[attr-defined]
            with pytest.raises(StoppedError, match="another writer keeps it waiting"):
                other.environment(ELSEWHERE)
        other.environment(ELSEWHERE)
        assert other.append(campaign, asked_and_told(1)) == 2


def test_many_processes_race_for_one_campaign(where: str) -> None:
    """Everyone appends under the lock or is refused; nothing is lost, nothing interleaves."""
    with open_writer(where, create=True) as writer:
        writer.begin(SPEC, HERE)
    for child in [_program(RACE, where, name) for name in "abc"]:
        assert child.communicate(timeout=60) == ("", "")
        assert child.returncode == 0
    with open_reader(where) as reader:
        log = list(reader.log(1))
    assert [position for position, _ in log] == list(range(1, 16))
    kinds = [event.kind for _, event in log if isinstance(event, Event)]
    for name in "abc":
        assert [kind for kind in kinds if kind[0] == name] == [f"{name}{n}" for n in range(5)]


# Deaths


def _groups(where: str, campaign: int) -> int:
    """Return how many rounds there are, each whole."""
    with open_reader(where) as reader:
        entries = [entry for _, entry in reader.log(campaign)]
    rounds = [entry.number for entry in entries if isinstance(entry, Round)]
    asked = [entry.number for entry in entries if isinstance(entry, Candidate)]
    told = [e.evaluation.candidate.number for e in entries if isinstance(e, Judged)]
    assert rounds == list(range(len(rounds)))
    assert asked == told == list(range(8 * len(rounds)))
    return len(rounds)


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.11])
def test_killed_at_any_moment_nothing_acknowledged_is_lost(where: str, after_s: float) -> None:
    with _program(APPEND.format(rounds=100_000), where, "1") as child:
        assert child.stdout is not None and child.stderr is not None
        campaign = int(child.stdout.readline())
        said = [child.stdout.readline()]
        time.sleep(after_s)
        child.kill()
        # Not by communicate(): it loses what readline() has read ahead.
        rest, errors = child.stdout.read(), child.stderr.read()
    assert errors == ""
    said += [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
    _soon(lambda: _resumed(where, campaign))
    # One group may be committed and not yet said to be.
    assert int(said[-1]) + 1 <= _groups(where, campaign) <= int(said[-1]) + 2


def _sever(server: Server, writer: StoreReader) -> None:
    """End the writer's session on the server's side, as a restart or a lost network does."""
    pid = writer._backend.session.info.backend_pid  # type: ignore[attr-defined]
    server.do(f"SELECT pg_terminate_backend({pid}, 10000)")


def test_a_lost_connection_stops_the_writer_and_loses_nothing(server: Server, where: str) -> None:
    with open_writer(where, create=True) as writer:
        campaign = writer.begin(SPEC, HERE)
        writer.append(campaign, asked_and_told(3))
        _sever(server, writer)
        for _ in range(2):  # it stays so: the lock may be another's by now
            with pytest.raises(StoppedError, match=r"connection .*was lost") as caught:
                writer.append(campaign, asked_and_told(1, start=3))
            assert "go on with `kernelarc resume postgresql://owner@" in str(caught.value)
            assert "\n" not in str(caught.value)
        # What is there can still be read, for the last words.
        assert writer.counts(campaign).measured == 3
        _resumed(where, campaign)
        with pytest.raises(StoppedError):
            writer.append(campaign, asked_and_told(1, start=3))
    with open_reader(where) as reader:
        entries = [entry for _, entry in reader.log(campaign)]
    assert entries == [*asked_and_told(3), Event(kind="resumed")]


def test_a_connection_that_is_lost_inside_a_group_writes_none_of_it(
    server: Server, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_writer(where, create=True) as writer:
        campaign = writer.begin(SPEC, HERE)
        whole = writer._write  # type: ignore[attr-defined]

        def write(*arguments: object) -> None:
            whole(*arguments)
            _sever(server, writer)

        with monkeypatch.context() as patched:
            patched.setattr(writer, "_write", write)
            with pytest.raises(StoppedError, match="was lost"):
                writer.append(campaign, asked_and_told(2))
        assert list(writer.log(campaign)) == []
    with open_writer(where) as writer:
        assert writer.append(campaign, asked_and_told(2)) == 4


def test_a_writer_that_reads_first_does_not_write_without_its_lock(
    server: Server, where: str
) -> None:
    with open_writer(where, create=True) as writer:
        campaign = writer.begin(SPEC, HERE)
        _sever(server, writer)
        with pytest.raises(StoppedError, match="was lost"):
            writer.campaigns()
        assert len(list(writer.campaigns())) == 1
        with pytest.raises(StoppedError, match="was lost"):
            writer.append(campaign, [Event(kind="mine")])


def test_a_reader_goes_on_with_a_new_connection(server: Server, where: str) -> None:
    with open_writer(where, create=True) as writer:
        writer.append(writer.begin(SPEC, HERE), [candidate(0), measured(candidate(0), 1.0)])
    with open_reader(where) as reader:
        assert len(list(reader.log(1))) == 2
        _sever(server, reader)
        with pytest.raises(InputError, match="was lost"):
            reader.campaigns()
        assert len(list(reader.log(1))) == 2


def test_a_server_that_is_gone_is_said_and_its_return_awaited(server: Server) -> None:
    where = server.inside(server.schema())
    with open_writer(where, create=True) as writer, open_reader(where) as reader:
        campaign = writer.begin(SPEC, HERE)
        reader.campaigns()
        server.halt()
        try:
            _all_refused(writer, reader, campaign)
        finally:
            server.start()
        assert len(list(reader.campaigns())) == 1
    _resumed(where, campaign)


def _all_refused(writer: StoreWriter, reader: StoreReader, campaign: int) -> None:
    for _ in range(2):
        with pytest.raises(StoppedError, match="was lost"):
            writer.append(campaign, [Event(kind="lost")])
        with pytest.raises(StoppedError, match="was lost"):
            writer.counts(campaign)
    for words in ("was lost", "cannot be reached"):
        with pytest.raises(InputError, match=words):
            reader.campaigns()
