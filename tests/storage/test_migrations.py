from collections.abc import Iterator
from importlib.metadata import version

import psycopg2
import pytest
from sqlalchemy import text

from core.errors import DomainError
from devstack.harness.stack import Stack
from models import Model
from storage.migrations.run import migrate
from tests.support.stack.definitions import definitions
from tests.support.stack.make_release import ROOT, compute_checksums, read_checksums
from tests.support.stack.scratch_databases import ScratchDatabase, scratch_database

# Migrations disable three foreign keys of the table ``subscriptions``, because triggers check the
# references instead.
DISABLE_FOREIGN_KEY = "ALTER TABLE subscriptions ALTER CONSTRAINT fk_subscriptions_{} NOT ENFORCED"


@pytest.fixture
def empty_database(idle_stack: Stack) -> Iterator[ScratchDatabase]:
    """A database without tables."""
    with scratch_database(idle_stack) as opened:
        yield opened


@pytest.mark.tier("check")
def test_migrated_database_matches_the_models_and_the_schema_files(
    idle_stack: Stack, empty_database: ScratchDatabase
) -> None:
    with idle_stack.resources.database.engine.connect() as connection:
        migrated = definitions(connection)
    functions = {path.stem: path.read_text() for path in sorted(ROOT.glob("storage/schema/*.sql"))}
    # Create two functions before the tables, because a column's default and an index use them.
    first_functions = [functions.pop("feed_place"), functions.pop("network_of_ip")]
    with empty_database.engine.begin() as connection:
        connection.exec_driver_sql("CREATE EXTENSION pg_trgm; CREATE EXTENSION btree_gin")
        connection.exec_driver_sql("SET LOCAL check_function_bodies = off")
        for statements in first_functions:
            connection.exec_driver_sql(statements)
        Model.metadata.create_all(connection)
        for statements in functions.values():
            connection.exec_driver_sql(statements, execution_options={"no_parameters": True})
        for column in ("list_id", "user_id", "import_id"):
            connection.exec_driver_sql(DISABLE_FOREIGN_KEY.format(column))
        modelled = definitions(connection)
    for kind in modelled.keys() - {"storage"}:  # Only migrations set storage parameters.
        migrated_definitions = {each for each in migrated[kind] if "alembic_version" not in each}
        assert migrated_definitions == modelled[kind], kind


@pytest.mark.tier("check")
def test_released_migrations_and_schema_files_never_change() -> None:
    """After a release, each change of the schema needs a new migration.

    Each release adds the checksums of its migrations, of its database dump and of its API
    responses to ``SHA256SUMS``.
    """
    released = read_checksums()
    assert compute_checksums(map(ROOT.joinpath, released)) == released
    assert f"tests/storage/releases/{version('pressroom')}.json" in released


def test_migration_leaves_a_database_of_unknown_revision_unchanged(
    empty_database: ScratchDatabase,
) -> None:
    empty_database.execute(
        "CREATE TABLE alembic_version (version_num varchar(32) NOT NULL)",
        "INSERT INTO alembic_version VALUES ('0050')",
    )
    with pytest.raises(DomainError, match=r"\(0050\).*create an empty database"):
        migrate(empty_database.settings)
    assert empty_database.scalar("SELECT version_num FROM alembic_version") == "0050"
    assert empty_database.scalar("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 1


def test_migration_succeeds_without_changes_if_a_newer_release_has_migrated_the_database(
    empty_database: ScratchDatabase,
) -> None:
    migrate(empty_database.settings)
    empty_database.execute(
        "UPDATE alembic_version SET version_num = '9999'", "CREATE TABLE newer (id int)"
    )
    with empty_database.engine.connect() as connection:
        before = definitions(connection)
    assert migrate(empty_database.settings) == "9999"
    assert empty_database.scalar("SELECT version_num FROM alembic_version") == "9999"
    with empty_database.engine.connect() as connection:
        assert definitions(connection) == before


def test_database_rejects_a_ready_attachment_with_missing_data(idle_stack: Stack) -> None:
    owner = idle_stack.create_owner()
    with pytest.raises(psycopg2.errors.CheckViolation, match="ready_is_whole"):
        idle_stack.query(
            "INSERT INTO attachments (user_id, hash_id, status, encrypted, mime_type, filename,"
            " size, checksum, original_filename, original_mime_type, original_size,"
            " original_checksum) VALUES (%s, 'x', 2, false, 'image/webp', 'x.webp', 0, '', 'x',"
            " 'image/png', 1, '')",
            owner.user_id,
        )


def test_database_sessions_have_statement_and_lock_timeouts(idle_stack: Stack) -> None:
    with idle_stack.resources.unit_of_work() as uow:
        timeout = uow.session.scalar(text("SELECT current_setting('statement_timeout')"))
        lock_timeout = uow.session.scalar(text("SELECT current_setting('lock_timeout')"))
    assert (timeout, lock_timeout) == ("10s", "3s")
