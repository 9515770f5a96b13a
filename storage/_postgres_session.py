"""A session on a PostgreSQL server, whatever its defaults and those of the role are."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any, Final

import psycopg
from psycopg.types.json import Jsonb

from kernelarc.genomes import InputError
from kernelarc.storage._address import Address

Session = psycopg.Connection[Any]

_OLDEST: Final = 12
_SETTINGS: Mapping[str, str] = {
    "extra_float_digits": "3",  # floats to the last bit
    "idle_session_timeout": "0",  # a writer is silent for as long as the device works
    "jit": "off",  # its compiler costs more than these statements
    # A host that lost its power holds its campaigns for a minute, not for two hours.
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
# Older servers lack some. A role may have switched durable commits off, for us it may not.
_SET = """
SELECT set_config(name, %(values)s ->> name, false)
FROM pg_settings
WHERE name IN (SELECT jsonb_object_keys(%(values)s))
UNION ALL
SELECT set_config(name, 'on', false)
FROM pg_settings
WHERE name = 'synchronous_commit' AND setting = 'off'
"""


def connect(address: Address, *, wait_s: float, read_only: bool) -> Session:
    """Open a session in which transactions are begun explicitly.

    Raises:
        psycopg.Error: There is no connection, as the driver says it.
    """
    own: dict[str, Any] = {
        "application_name": f"kernelarc pid {os.getpid()} on {socket.gethostname()}"[:63],
        "client_encoding": "UTF8",
        "connect_timeout": str(max(2, round(wait_s))),  # whole seconds, two at least
    }
    session: Session = psycopg.connect(address.uri, autocommit=True, **own)
    try:
        _prepare(session, address, wait_s=wait_s, read_only=read_only)
    except BaseException:
        session.close()
        raise
    return session


def _prepare(session: Session, address: Address, *, wait_s: float, read_only: bool) -> None:
    version = session.info.server_version // 10_000
    if version < _OLDEST:
        raise InputError(
            f"store {address.name}: the server is PostgreSQL {version}, it must be {_OLDEST} or "
            f"newer"
        )
    encoding = session.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise InputError(
            f"store {address.name}: the database's encoding is {encoding}, it must be UTF8: make "
            f"one with `createdb --encoding=UTF8 --template=template0`"
        )
    values = dict(_SETTINGS)
    values["lock_timeout"] = str(max(1, round(wait_s * 1000)))
    if read_only:
        values["default_transaction_read_only"] = "on"
    session.execute(_SET, {"values": Jsonb(values)})
