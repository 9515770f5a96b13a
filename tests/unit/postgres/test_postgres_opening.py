"""Whatever stands where a store should: one clear line, and the password is never in it."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.unit.postgres.server import Server
from tests.unit.store_records import HERE, SPEC, asked_and_told

from kernelarc.genomes import InputError, KernelarcError, MissingPartError
from kernelarc.storage import StoreReader, open_reader, open_writer, store_name
from kernelarc.storage import _postgres_schema as schema_module
from kernelarc.storage._schema import SCHEMA_VERSION

GOLDEN = Path(__file__).resolve().parent.parent.parent / "golden"
SECRET = "hunter2"
OPENERS: Mapping[str, Callable[[str], StoreReader]] = {
    "read": lambda url: open_reader(url, wait_s=2),
    "write": lambda url: open_writer(url, wait_s=2),
    "create": lambda url: open_writer(url, create=True, wait_s=2),
}
opener = pytest.mark.parametrize("call", OPENERS.values(), ids=OPENERS)


def _refused(call: Callable[[str], StoreReader], url: str, words: str) -> str:
    with pytest.raises(KernelarcError, match=words) as caught:
        call(url)
    line = str(caught.value)
    assert "\n" not in line
    assert SECRET not in line
    assert caught.value.exit_code == 2
    return line


# The URL


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://u@h/db", "postgresql://u@h/db"),
        ("postgresql+psycopg://u:p@h:5433/db", "postgresql://u@h:5433/db"),
        ("postgres://u:p%40ss%2Fw@h/db", "postgresql://u@h/db"),
        ("postgresql://u:@h1:1,h2:2/db", "postgresql://u@h1:1,h2:2/db"),
        ("postgresql://u:p@[::1]:5/db", "postgresql://u@[::1]:5/db"),
        ("postgresql:///db?host=/tmp&password=p", "postgresql:///db?host=/tmp"),
        ("postgresql://%2Ftmp/db?sslpassword=p&password=p", "postgresql://%2Ftmp/db"),
        ("postgresql://", "postgresql://"),
        ("a folder/kernelarc.db", "a folder/kernelarc.db"),
        ("sqlite:///x.db", "sqlite:///x.db"),
    ],
)
def test_a_store_is_called_by_its_url_without_the_password(url: str, name: str) -> None:
    assert store_name(url) == name


@opener
@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{SECRET}@x@h/db",
        f"postgresql://u:x/{SECRET}@h/db",
        f"postgresql://u:x?{SECRET}@h/db",
        f"postgresql://u:12#{SECRET}@h/db",
        f"postgresql://u:{SECRET}",
        f"postgresql://u:{SECRET}/db",
        f"postgresql://u@h:{SECRET}/db",
        f"postgresql://u@h/db?{SECRET}",
        f"postgresql+asyncpg://u:{SECRET}@h/db",
    ],
)
def test_what_is_no_url_is_said_without_repeating_it(
    call: Callable[[str], StoreReader], url: str
) -> None:
    line = _refused(call, url, r"write postgresql://")
    assert store_name(url) == f"{url.partition('://')[0]}://..."
    assert "store postgresql" in line


def test_an_unknown_option_is_named(server: Server) -> None:
    url = server.url(password=SECRET) + "?colour=red"
    _refused(open_reader, url, "colour")


# The server


@opener
def test_a_server_that_is_not_there_is_said(call: Callable[[str], StoreReader]) -> None:
    url = f"postgresql://u:{SECRET}@%2Fnowhere:1/db"
    line = _refused(call, url, r"store postgresql://u@%2Fnowhere:1/db: cannot be reached")
    assert "check that the server runs" in line
    _refused(call, f"postgresql://u:{SECRET}@127.0.0.1:1/db", "cannot be reached")


@opener
def test_a_missing_database_is_said(server: Server, call: Callable[[str], StoreReader]) -> None:
    _refused(call, server.url("nowhere"), '"nowhere" does not exist.*createdb makes one')


@opener
def test_a_wrong_password_is_said(
    server: Server, call: Callable[[str], StoreReader], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.role("locked")
    _refused(call, server.url(user="locked", password=SECRET), "password authentication failed")
    _refused(call, server.url(user="locked"), "no password supplied")
    assert SECRET not in caplog.text


def test_the_right_password_opens_and_stays_unsaid(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.role("locked", password=SECRET)
    schema = server.schema(owner="locked")
    with open_writer(server.inside(schema, user="locked", password=SECRET), create=True) as store:
        campaign = store.begin(SPEC, HERE)
        with pytest.raises(InputError, match="no campaign 9") as caught:
            store.campaign(9)
        assert SECRET not in str(caught.value)
    monkeypatch.setenv("PGPASSWORD", SECRET)
    with open_reader(server.inside(schema, user="locked")) as reader:
        assert reader.campaign().id == campaign


@opener
def test_another_encoding_is_said(server: Server, call: Callable[[str], StoreReader]) -> None:
    url = server.url(server.database("SQL_ASCII"))
    _refused(call, url, "encoding is SQL_ASCII, it must be UTF8")


def test_a_server_that_is_too_old_is_said(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelarc.storage._postgres_session._OLDEST", 99)
    _refused(open_reader, where, "the server is PostgreSQL .*, it must be 99 or newer")


# The database


@opener
def test_another_programs_database_is_left_alone(
    server: Server, schema: str, where: str, call: Callable[[str], StoreReader]
) -> None:
    server.do(f"CREATE TABLE {schema}.campaign (id int); CREATE VIEW {schema}.v AS SELECT 1")
    _refused(call, where, r"another program's database \(it has campaign, v\)")
    tables = server.do(
        f"SELECT relname FROM pg_class WHERE relnamespace = '{schema}'::regnamespace"
    )
    assert sorted(tables) == [("campaign",), ("v",)]


def test_a_plain_database_holds_a_store(server: Server) -> None:
    """The usual case: no schema of its own; and what an extension brings is in nobody's way."""
    url = server.url(server.database()).replace("postgresql:", "postgresql+psycopg:")
    with open_writer(url, create=True) as writer:
        writer.append(writer.begin(SPEC, HERE), asked_and_told(2))
    with open_reader(url) as reader:
        assert len(list(reader.log(1))) == 4
        assert 100_000 < reader.size_bytes() < 4_000_000


def test_two_stores_in_one_database_are_two(server: Server) -> None:
    urls = [server.inside(server.schema()) for _ in range(2)]
    writers = [open_writer(url, create=True) for url in urls]
    for writer in writers:
        with writer:
            assert writer.begin(SPEC, HERE) == 1


@opener
def test_a_search_path_to_nowhere_is_said(
    server: Server, call: Callable[[str], StoreReader]
) -> None:
    _refused(call, server.inside("nowhere"), "no store in this database yet|no schema that exists")


@opener
def test_a_newer_schema_is_said(
    server: Server, schema: str, where: str, call: Callable[[str], StoreReader]
) -> None:
    open_writer(where, create=True).close()
    server.do(f"INSERT INTO {schema}.kernelarc_schema VALUES ({SCHEMA_VERSION + 6})")
    _refused(call, where, r"newer kernelarc \(schema 7, this one knows up to 1\): upgrade")


def test_the_schema_is_the_golden_one_to_the_letter() -> None:
    """A changed table, index or trigger needs a new version and a migration."""
    golden = GOLDEN / f"postgres-schema-{SCHEMA_VERSION}.sql"
    statements = [" ".join(text.split()) for text in schema_module.postgres_statements()]
    assert ";\n".join(statements) + ";\n" == golden.read_text()


def test_an_older_schema_is_migrated_by_the_next_writer(
    server: Server, schema: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_writer(where, create=True) as writer:
        writer.begin(SPEC, HERE)
    current = SCHEMA_VERSION + 1
    monkeypatch.setattr(schema_module, "SCHEMA_VERSION", current)
    monkeypatch.setattr("kernelarc.storage._postgres.SCHEMA_VERSION", current)
    failing = {SCHEMA_VERSION: ["CREATE TABLE more (id int)", "SELECT 1 / 0"]}
    monkeypatch.setattr(schema_module, "MIGRATIONS", failing)
    _refused(open_reader, where, "of an older kernelarc .*the next writer brings it up to date")
    _refused(open_writer, where, "division by zero")
    assert server.do(f"SELECT to_regclass('{schema}.more')") == [(None,)]
    monkeypatch.setattr(schema_module, "MIGRATIONS", {SCHEMA_VERSION: failing[SCHEMA_VERSION][:1]})
    open_writer(where).close()
    with open_reader(where) as reader:
        assert reader.campaign().spec == SPEC
    assert server.do(f"SELECT version FROM {schema}.kernelarc_schema") == [(1,), (2,)]


def test_what_is_left_of_a_store_is_said_to_be_damaged(
    server: Server, schema: str, where: str
) -> None:
    with open_writer(where, create=True) as writer:
        writer.append(writer.begin(SPEC, HERE), asked_and_told(2))
        server.do(f"DROP TABLE {schema}.evaluation")
        with pytest.raises(InputError, match=r'damaged .*"evaluation" does not exist'):
            writer.bests(1)
    with open_reader(where) as reader, pytest.raises(InputError, match="damaged"):
        list(reader.log(1))


# Rights


def test_the_right_to_read_is_enough_to_read(server: Server, schema: str, where: str) -> None:
    with open_writer(where, create=True) as writer:
        writer.append(writer.begin(SPEC, HERE), asked_and_told(2))
    server.role("guest")
    url = server.inside(schema, user="guest")
    _refused(open_reader, url, "no store in this database|no permission")
    server.do(f"GRANT USAGE ON SCHEMA {schema} TO guest")
    _refused(open_reader, url, "no permission .*ask the owner")
    server.do(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO guest")
    with open_reader(url) as reader:
        assert len(list(reader.log(1))) == 4
    _refused(
        open_writer, url, r"no permission to add rows to campaign: .*grant INSERT on all of them"
    )
    server.do(f"GRANT INSERT ON ALL TABLES IN SCHEMA {schema} TO guest")
    server.do(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO guest")
    with open_writer(url) as writer:
        assert writer.append(1, asked_and_told(1, start=2)) == 6


def test_a_role_that_may_not_make_tables_is_said(server: Server, schema: str) -> None:
    server.role("guest")
    server.do(f"GRANT USAGE ON SCHEMA {schema} TO guest")
    url = server.inside(schema, user="guest")
    _refused(OPENERS["create"], url, "no permission .*ask the owner")


def test_a_reader_cannot_write(where: str) -> None:
    open_writer(where, create=True).close()
    with (
        open_reader(where) as reader,
        pytest.raises(InputError, match="read-only"),
        reader._backend.writing() as connection,  # type: ignore[attr-defined]
    ):
        connection.exec_driver_sql("CREATE TABLE x (y int)")


def test_a_read_only_server_is_read_and_not_written(server: Server, where: str) -> None:
    open_writer(where, create=True).close()
    standby = where + "%20-cdefault_transaction_read_only%3Don"
    open_reader(standby).close()
    _refused(open_writer, standby, "the server is read-only: give the primary server's URL")


def test_a_careless_role_changes_nothing(server: Server) -> None:
    """Floats to the last bit and durable commits, whatever an administrator set for the role."""
    server.role("careless")
    schema = server.schema(owner="careless")
    for setting in ("extra_float_digits = -10", "synchronous_commit = off", "jit = on"):
        server.do(f"ALTER ROLE careless SET {setting}")
    with open_writer(server.inside(schema, user="careless"), create=True) as writer:
        campaign = writer.begin(SPEC, HERE)
        told = asked_and_told(3)
        writer.append(campaign, told)
        assert [entry for _, entry in writer.log(campaign)] == told
        with writer._backend.writing() as connection:  # type: ignore[attr-defined]
            found = connection.exec_driver_sql("SHOW synchronous_commit").scalar_one()
    assert found == "on"


# Without the driver


def test_without_psycopg_the_extra_is_named() -> None:
    program = (
        "import sys\n"
        "sys.modules['psycopg'] = None\n"
        "from kernelarc.storage import open_reader, open_writer\n"
        "for call in (open_reader, open_writer):\n"
        "    try:\n"
        f"        call('postgresql://u:{SECRET}@h/db')\n"
        "    except Exception as error:\n"
        "        print(type(error).__name__, error.exit_code, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith(f"{MissingPartError.__name__} 4 store postgresql://u@h/db: ")
        assert "pip install 'kernelarc[distributed]'" in line
        assert SECRET not in line
