"""Tests the database triggers that act like foreign keys of the table ``subscriptions``."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg2
import pytest
from psycopg2.errors import FeatureNotSupported, ForeignKeyViolation
from psycopg2.extensions import connection

from core.ids import random_id
from devstack.harness.stack import Stack
from tests.support.stack.held_rows import await_waiter

MISSING = 2**40
_ADD = (
    "INSERT INTO subscriptions (list_id, user_id, status, source, import_id)"
    " VALUES (%s, %s, 'active', 'import', %s) RETURNING id"
)


class Rows:
    """Creates rows that refer to each other: a list, an import into the list, and people."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.owner_id = stack.create_owner().user_id
        self.list_id = self._create_list()
        [(self.import_id,)] = stack.query(
            "INSERT INTO imports (list_id, user_id, source, object_prefix, size)"
            " VALUES (%s, %s, 'file', %s, 0) RETURNING id",
            self.list_id,
            self.owner_id,
            f"references-{random_id()}",
        )

    def _create_list(self) -> object:
        slug = f"references-{random_id()}"
        [(list_id,)] = self.stack.query(
            "INSERT INTO lists (id, user_id, title, slug) VALUES (%s, %s, %s, %s) RETURNING id",
            random_id(),
            self.owner_id,
            slug,
            slug,
        )
        return list_id

    def create_person(self) -> int:
        user_id = random_id()
        self.stack.query(
            "INSERT INTO users (id, email) VALUES (%s, %s)", user_id, f"{user_id}@example.com"
        )
        return user_id

    def add_subscription(self, **changes: object) -> object:
        row = {
            "list_id": self.list_id,
            "user_id": self.create_person(),
            "import_id": None,
            **changes,
        }
        [(subscription_id,)] = self.stack.query(
            _ADD, row["list_id"], row["user_id"], row["import_id"]
        )
        return subscription_id


@pytest.fixture
def rows(stack: Stack) -> Rows:
    return Rows(stack)


def connect_as_application(stack: Stack) -> closing[connection]:
    """Connect to the database with the application's role."""
    return closing(psycopg2.connect(stack.environment["PRESSROOM_DATABASE_URL"]))


@pytest.mark.parametrize("column", ["list_id", "user_id", "import_id"])
def test_subscription_requires_an_existing_list_person_and_import(rows: Rows, column: str) -> None:
    with pytest.raises(ForeignKeyViolation) as caught:
        rows.add_subscription(**{column: MISSING})
    assert caught.value.diag.constraint_name == f"fk_subscriptions_{column}"
    subscription_id = rows.add_subscription(import_id=rows.import_id)
    with pytest.raises(ForeignKeyViolation) as caught:
        rows.stack.query(
            f"UPDATE subscriptions SET {column} = %s WHERE id = %s", MISSING, subscription_id
        )
    assert caught.value.diag.constraint_name == f"fk_subscriptions_{column}"


def test_one_invalid_reference_rejects_a_whole_batch_of_subscriptions(rows: Rows) -> None:
    people = [rows.create_person() for _ in range(3)]
    statement = (
        "INSERT INTO subscriptions (list_id, user_id, status, source)"
        " SELECT %s, unnest(%s::bigint[]), 'active', 'import'"
    )
    with pytest.raises(ForeignKeyViolation):
        rows.stack.query(statement, rows.list_id, [*people, MISSING])
    rows.stack.query(statement, rows.list_id, people)


@pytest.mark.parametrize(
    ("column", "table"), [("list_id", "lists"), ("user_id", "users"), ("import_id", "imports")]
)
def test_list_person_or_import_of_a_subscription_cannot_be_deleted(
    rows: Rows, column: str, table: str
) -> None:
    user_id = rows.create_person()
    rows.add_subscription(user_id=user_id, import_id=rows.import_id)
    referenced_id = {"list_id": rows.list_id, "user_id": user_id, "import_id": rows.import_id}[
        column
    ]
    # The error names the table ``subscriptions`` or ``imports``, because both tables may refer to
    # the row that is deleted or changed.
    with (
        connect_as_application(rows.stack) as application_connection,
        application_connection.cursor() as cursor,
    ):
        for statement in (
            f"DELETE FROM {table} WHERE id = %s",
            f"UPDATE {table} SET id = -id WHERE id = %s",
        ):
            with pytest.raises(ForeignKeyViolation) as caught:
                cursor.execute(statement, (referenced_id,))
            assert caught.value.diag.table_name in {"subscriptions", "imports"}
            application_connection.rollback()
    # After the subscription is deleted, the person and the import can be deleted too.
    rows.stack.query("DELETE FROM subscriptions WHERE user_id = %s", user_id)
    if table != "lists":
        rows.stack.query(f"DELETE FROM {table} WHERE id = %s", referenced_id)


def test_person_referenced_by_an_open_transaction_is_not_deleted(rows: Rows) -> None:
    user_id = rows.create_person()
    delete = "DELETE FROM users WHERE id = %s"
    with (
        ThreadPoolExecutor(1) as pool,
        connect_as_application(rows.stack) as application_connection,
    ):
        application_connection.cursor().execute(_ADD, (rows.list_id, user_id, None))
        deletion = pool.submit(rows.stack.query, delete, user_id)
        await_waiter(rows.stack, "DELETE FROM users")
        application_connection.commit()
        assert isinstance(deletion.exception(30), ForeignKeyViolation)
    assert rows.stack.query("SELECT 1 FROM users WHERE id = %s", user_id)


def test_subscription_waits_for_a_concurrent_person_deletion_and_is_then_rejected(
    rows: Rows,
) -> None:
    user_id = rows.create_person()
    with (
        ThreadPoolExecutor(1) as pool,
        connect_as_application(rows.stack) as application_connection,
    ):
        application_connection.cursor().execute("DELETE FROM users WHERE id = %s", (user_id,))
        insertion = pool.submit(rows.add_subscription, user_id=user_id)
        await_waiter(rows.stack, "INSERT INTO subscriptions")
        application_connection.commit()
        assert isinstance(insertion.exception(30), ForeignKeyViolation)


def test_transaction_with_an_old_snapshot_cannot_delete_a_person(rows: Rows) -> None:
    user_id = rows.create_person()
    with (
        connect_as_application(rows.stack) as application_connection,
        application_connection.cursor() as cursor,
    ):
        application_connection.set_session(isolation_level="REPEATABLE READ")
        cursor.execute("SELECT 1")
        rows.add_subscription(user_id=user_id)
        with pytest.raises(FeatureNotSupported):
            cursor.execute("DELETE FROM users WHERE id = %s", (user_id,))


def test_temporary_table_cannot_deceive_the_reference_checks(rows: Rows) -> None:
    with (
        connect_as_application(rows.stack) as application_connection,
        application_connection.cursor() as cursor,
    ):
        cursor.execute("CREATE TEMP TABLE users (id bigint)")
        cursor.execute("INSERT INTO pg_temp.users VALUES (%s)", (MISSING,))
        with pytest.raises(ForeignKeyViolation):
            cursor.execute(_ADD, (rows.list_id, MISSING, None))
