from collections.abc import Iterator

import psycopg2
import pytest
from sqlalchemy import Connection, text

from core.errors import DomainError
from storage.migrations.run import differences, migrate
from storage.schema import functions
from tests.scratch import ScratchDatabase, scratch_database
from tests.stack import Stack

# Those of an extension are left out.
OURS = (
    "FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
    " AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_proc.oid AND deptype = 'e')"
)
FUNCTIONS = f"SELECT pg_get_functiondef(oid) {OURS}"
TRIGGERS = "SELECT pg_get_triggerdef(oid) || tgenabled::text FROM pg_trigger WHERE NOT tgisinternal"
# With the triggers that call them, and the default of a column.
DROP_FUNCTIONS = f"""
DO $$ DECLARE function text; BEGIN
    FOR function IN SELECT oid::regprocedure {OURS} LOOP
        EXECUTE 'DROP FUNCTION ' || function || ' CASCADE';
    END LOOP;
END $$
"""


@pytest.fixture
def scratch(idle_stack: Stack) -> Iterator[ScratchDatabase]:
    with scratch_database(idle_stack) as opened:
        yield opened


@pytest.mark.check
def test_migrated_database_has_what_the_models_say(idle_stack: Stack) -> None:
    assert differences(idle_stack.resources.database.engine) == []


@pytest.mark.check
def test_migrated_database_has_the_functions_of_the_schema(scratch: ScratchDatabase) -> None:
    migrate(scratch.settings)
    with scratch.engine.connect() as connection:
        migrated = definitions(connection)
        connection.exec_driver_sql(DROP_FUNCTIONS)
        assert definitions(connection) == (set(), set())
        for statements in functions().values():
            connection.exec_driver_sql(statements, execution_options={"no_parameters": True})
        assert definitions(connection) == migrated
        connection.rollback()


def definitions(connection: Connection) -> tuple[set[str], set[str]]:
    """All functions and all triggers."""
    return set(connection.scalars(text(FUNCTIONS))), set(connection.scalars(text(TRIGGERS)))


@pytest.mark.parametrize(
    ("revision", "advice"),
    [("0050", "create an empty database"), ("9999", "migrate it with that release")],
)
def test_a_database_from_whose_revision_no_migration_leads_on_is_left_alone(
    scratch: ScratchDatabase, revision: str, advice: str
) -> None:
    scratch.execute(
        "CREATE TABLE alembic_version (version_num varchar(32) NOT NULL)",
        f"INSERT INTO alembic_version VALUES ('{revision}')",
    )
    with pytest.raises(DomainError, match=rf"\({revision}\).*{advice}"):
        migrate(scratch.settings)
    assert scratch.scalar("SELECT version_num FROM alembic_version") == revision
    assert scratch.scalar("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 1


def test_the_database_refuses_a_ready_attachment_that_is_not_whole(idle_stack: Stack) -> None:
    owner = idle_stack.new_owner()
    with pytest.raises(psycopg2.errors.CheckViolation, match="ready_is_whole"):
        idle_stack.query(
            "INSERT INTO attachments (user_id, hash_id, status, encrypted, mime_type, filename,"
            " size, checksum, original_filename, original_mime_type, original_size,"
            " original_checksum) VALUES (%s, 'x', 2, false, 'image/webp', 'x.webp', 0, '', 'x',"
            " 'image/png', 1, '')",
            owner.user_id,
        )


def test_a_statement_that_takes_too_long_is_ended(idle_stack: Stack) -> None:
    with idle_stack.resources.unit_of_work() as uow:
        timeout = uow.session.scalar(text("SELECT current_setting('statement_timeout')"))
        lock_timeout = uow.session.scalar(text("SELECT current_setting('lock_timeout')"))
    assert (timeout, lock_timeout) == ("10s", "3s")
