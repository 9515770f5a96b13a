"""Where a store is, and how to call it in print: a URL may hold a password, its name never does."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from kernelarc.genomes import InputError

_SCHEME = re.compile(r"postgres(?:ql)?(?:\+(\w*))?://", re.IGNORECASE)
_HOST = r"(?:\[[^@/?#\[\]]*\]|[^:@/?#,\[\]]*)(?::\d*)?"
# What stands before ``?``: user and password, hosts with ports (or sockets), database.
_PLACE = re.compile(
    r"(?:(?P<user>[^:@/?#]*)(?::(?P<password>[^@/?#]*))?@)?"
    rf"(?P<hosts>{_HOST}(?:,{_HOST})*)"
    r"(?P<database>/[^@/?#]*)?"
)
_SECRET = ("password", "sslpassword")
_FORM = "write postgresql://user@host:port/database"


@dataclass(frozen=True, slots=True)
class Address:
    """A PostgreSQL database.

    Attributes:
        name: The URL without a password: for people, and to be opened again with the password
            from PGPASSWORD or ~/.pgpass.
        uri: The URL as the driver wants it.
    """

    name: str
    uri: str = field(repr=False)


def postgres_address(where: str | Path) -> Address | None:
    """Read a PostgreSQL URL; None when it is none.

    Raises:
        InputError: It cannot be one. The message repeats none of it: where a password with a
            special character is not encoded, any part may be a piece of the password.
    """
    text = str(where)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return None
    if scheme[1] not in (None, "psycopg"):
        raise InputError(
            f"store {scheme[0]}...: the only driver is psycopg: write postgresql://..."
        )
    place, mark, query = text[scheme.end() :].partition("?")
    found = _PLACE.fullmatch(place)
    if found is None or "@" in query or "#" in query or not all(map(_is_option, _options(query))):
        raise InputError(
            f"store {scheme[0]}...: not a database URL: {_FORM}; special characters in a password "
            f"are written as % and two hex digits (@ as %40, / as %2F), or leave it to PGPASSWORD"
        )
    user = f"{found['user']}@" if found["user"] else ""
    shown = "&".join(o for o in _options(query) if o.partition("=")[0].lower() not in _SECRET)
    name = f"postgresql://{user}{found['hosts']}{found['database'] or ''}"
    return Address(name + f"?{shown}" * bool(shown), f"postgresql://{place}{mark}{query}")


def _options(query: str) -> list[str]:
    return [option for option in query.split("&") if option]


def _is_option(option: str) -> bool:
    return re.fullmatch(r"[A-Za-z_]+=[^=]*", option) is not None


def store_name(where: str | Path) -> str:
    """Return how to call a store in messages and results: as it was given, without a password."""
    try:
        address = postgres_address(where)
    except InputError:
        return str(where).partition("://")[0] + "://..."
    return str(where) if address is None else address.name
