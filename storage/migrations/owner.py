"""Sessions of the owner of the tables, who may set what holds for a session."""

from collections.abc import Callable
from functools import partial

import psycopg2
from psycopg2.extensions import connection
from pydantic import SecretStr
from sqlalchemy import Engine, NullPool, create_engine

from storage.database import SESSION_DEFAULTS, connector, is_pooled, run_alone


class PooledSession(psycopg2.OperationalError):
    """A pool is between us and the server, where the session must be ours alone."""


def open_for_owner(url: SecretStr, *, application_name: str) -> Engine:
    """Its first use raises ``PooledSession`` if the sessions are not with the server itself."""
    owner_url, connect = connector(url, application_name)
    return create_engine(owner_url, creator=partial(_directly, connect), poolclass=NullPool)


def _directly(connect: Callable[..., connection]) -> connection:
    opened = connect()
    if is_pooled(opened):
        opened.close()
        raise PooledSession(
            "a pool of connections is in front of the server: PRESSROOM_MIGRATION_DATABASE_URL "
            "names the server itself"
        )
    for name, value in SESSION_DEFAULTS.items():
        run_alone(opened, f"SET {name} = '{value}'")
    return opened
