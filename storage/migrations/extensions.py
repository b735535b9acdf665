"""Creates the Postgres extensions that the database needs."""

import psycopg2.errors
import sqlalchemy as sa
from alembic import op
from sqlalchemy.exc import DBAPIError

from core.errors.requests import DATABASE_UNUSABLE

_MISSING_EXTENSION_ERRORS = (psycopg2.errors.FeatureNotSupported, psycopg2.errors.UndefinedFile)
_SELECT_EXTENSION = sa.text("SELECT 1 FROM pg_extension WHERE extname = :name")


def require(name: str) -> None:
    """Create a trusted extension unless the database already has the extension.

    Creating a trusted extension needs only the privilege CREATE on the database. Raises
    ``service.unavailable`` with advice for the operator if the extension can't be created.
    """
    connection = op.get_bind()
    if connection.scalar(_SELECT_EXTENSION, {"name": name}):
        return
    try:
        connection.exec_driver_sql(f"CREATE EXTENSION {name} SCHEMA public")
    except DBAPIError as error:
        if isinstance(error.orig, psycopg2.errors.InsufficientPrivilege):
            reason = f"the role that migrates may not CREATE EXTENSION {name}: let a role run it"
        elif isinstance(error.orig, _MISSING_EXTENSION_ERRORS):
            reason = (
                f"the database server has no extension {name}; install the Postgres contrib package"
            )
        else:
            raise
        raise DATABASE_UNUSABLE(reason=f"{reason}, and run the migration again") from error
