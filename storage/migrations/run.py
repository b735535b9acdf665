from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, make_url, text

from core.settings.store_settings import MigrationSettings
from models import Model
from storage.database import open_database
from storage.migrations import roles

ADVISORY_LOCK = 0x50726573  # "Pres" in ASCII


def configuration(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    config.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    config.attributes["connection"] = connection
    return config


def migrate(settings: MigrationSettings) -> str:
    """Bring the database to the newest revision as the owner of its tables; return its name.

    Then let the application's role in. Processes that migrate at the same time take turns on an
    advisory lock. One that is killed half way left whole revisions, and the next goes on.
    """
    owner = settings.migration_database_url or settings.database_url
    as_owner = settings.model_copy(update={"database_url": owner})
    database = open_database(as_owner, pool_size=1, application_name="pressroom-migrate")
    try:
        return _migrate(database.engine, make_url(settings.database_url.get_secret_value()))
    finally:
        database.close()


def _migrate(engine: Engine, application: URL) -> str:
    with engine.connect() as connection:
        # Its session is given other timeouts, so it must not go back to the pool.
        connection.detach()
        with connection.begin():
            connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": ADVISORY_LOCK})
        try:
            command.upgrade(configuration(connection), "head")
            # Alembic has committed what it did, and begun to read again.
            connection.rollback()
            roles.let_in(connection, application)
        finally:
            connection.rollback()
            with connection.begin():
                connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": ADVISORY_LOCK})
        return current_revision(connection) or ""


def current_revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def head_revision() -> str:
    head = ScriptDirectory.from_config(configuration()).get_current_head()
    if head is None:
        raise LookupError("there is no migration")
    return head


def differences(engine: Engine) -> list[object]:
    """What the models have and the migrated database has not, or the other way round."""
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        return list(compare_metadata(context, Model.metadata))
