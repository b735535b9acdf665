import threading

import psycopg2
import pytest
from pydantic import SecretStr
from sqlalchemy import text

from core.settings import Settings
from storage.migrations.run import current_revision, differences, head_revision, migrate
from tests.stack import Stack

pytestmark = pytest.mark.check


def test_migrated_database_has_what_the_models_say(stack: Stack) -> None:
    assert differences(stack.resources.database.engine) == []


def as_owner(stack: Stack) -> Settings:
    url = stack.owner_url.replace("postgresql:", "postgresql+psycopg2:")
    return stack.settings().model_copy(update={"migration_database_url": SecretStr(url)})


def test_migrating_again_changes_nothing(stack: Stack) -> None:
    assert migrate(as_owner(stack)) == head_revision()
    with stack.resources.database.engine.connect() as connection:
        assert current_revision(connection) == head_revision()


def test_processes_that_migrate_at_once_take_turns(stack: Stack) -> None:
    settings, revisions = as_owner(stack), list[str]()
    threads = [
        threading.Thread(target=lambda: revisions.append(migrate(settings))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert revisions == [head_revision()] * 3


def test_every_constraint_and_index_has_a_name_of_ours(stack: Stack) -> None:
    prefixes = ("pk_", "fk_", "uq_", "ck_", "ix_")
    names = stack.query(
        "SELECT conname FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid "
        "WHERE t.relnamespace = 'public'::regnamespace AND contype <> 'n' "
        "AND t.relname <> 'alembic_version' "
        "UNION SELECT indexname FROM pg_indexes WHERE schemaname = 'public' "
        "AND tablename <> 'alembic_version'"
    )
    assert names
    assert [name for (name,) in names if not str(name).startswith(prefixes)] == []


def test_the_database_refuses_a_ready_attachment_that_is_not_whole(stack: Stack) -> None:
    owner = stack.new_owner()
    with pytest.raises(psycopg2.errors.CheckViolation, match="ready_is_whole"):
        stack.query(
            "INSERT INTO attachments (user_id, hash_id, status, encrypted, mime_type, filename,"
            " size, checksum, original_filename, original_mime_type, original_size,"
            " original_checksum) VALUES (%s, 'x', 2, false, 'image/webp', 'x.webp', 0, '', 'x',"
            " 'image/png', 1, '')",
            owner.user_id,
        )


def test_a_statement_that_takes_too_long_is_ended(stack: Stack) -> None:
    with stack.resources.unit_of_work() as uow:
        timeout = uow.session.scalar(text("SELECT current_setting('statement_timeout')"))
        lock_timeout = uow.session.scalar(text("SELECT current_setting('lock_timeout')"))
    assert (timeout, lock_timeout) == ("10s", "3s")
