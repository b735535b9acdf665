from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2
from sqlalchemy.engine.interfaces import DBAPIConnection, IsolationLevel


class Dialect(PGDialect_psycopg2):
    """SQLAlchemy's own, but going to and from autocommit costs no round trip.

    It names the usual level at each turn, and Psycopg tells the server of a level that is named;
    the server's default needs no words (psycopg2, ``connection.set_session``).
    """

    supports_statement_cache = True

    def set_isolation_level(self, dbapi_connection: DBAPIConnection, level: IsolationLevel) -> None:
        is_autocommit = level == "AUTOCOMMIT"
        if is_autocommit or level == self.default_isolation_level:
            dbapi_connection.set_session(isolation_level="DEFAULT", autocommit=is_autocommit)
        else:
            super().set_isolation_level(dbapi_connection, level)  # type: ignore[no-untyped-call]
