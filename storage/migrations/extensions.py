"""Extensions of Postgres, which the server's packages bring and a migration switches on."""

import psycopg2.errors
import sqlalchemy as sa
from alembic import op
from sqlalchemy.exc import DBAPIError

from core.errors.requests import DATABASE_UNUSABLE

_NOT_THERE = (psycopg2.errors.FeatureNotSupported, psycopg2.errors.UndefinedFile)
_FIND = sa.text("SELECT 1 FROM pg_extension WHERE extname = :name")


def require(name: str) -> None:
    """Switch a trusted extension on, for which the database's right CREATE is enough.

    Raises ``service.unavailable``, with what the operator does about it.
    """
    connection = op.get_bind()
    if connection.scalar(_FIND, {"name": name}):
        return
    try:
        connection.exec_driver_sql(f"CREATE EXTENSION {name} SCHEMA public")
    except DBAPIError as error:
        if isinstance(error.orig, psycopg2.errors.InsufficientPrivilege):
            reason = f"the role that migrates may not CREATE EXTENSION {name}: let a role run it"
        elif isinstance(error.orig, _NOT_THERE):
            reason = f"the server has no extension {name}: install the package of Postgres' contrib"
        else:
            raise
        raise DATABASE_UNUSABLE(reason=f"{reason}, and migrate again") from error
