"""Tests that Pressroom's credentials for Postgres, Redis and MinIO have few privileges."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from io import BytesIO

import psycopg2
import psycopg2.extensions
import pytest
import redis
from minio import Minio
from minio.error import S3Error
from psycopg2 import sql
from psycopg2.errors import InsufficientPrivilege, RestrictViolation
from pydantic import SecretStr
from redis.exceptions import NoPermissionError, ResponseError

from core.errors import DomainError
from core.settings import Settings
from devstack.harness.embedded_services import Services
from devstack.harness.stack import Stack
from storage.migrations.run import migrate
from tests.support.credits.old_orders import DISPUTED, create_old_order

Cursor = psycopg2.extensions.cursor

UNDELETABLE_TABLES = (
    *("feed_events", "consent_entries", "consent_claims", "consent_wordings"),
    *("credit_accounts", "credit_entries", "payment_order_transitions"),
)
APPEND_ONLY_TABLES = ("credit_entries", "payment_events", "payment_order_changes")
# Maps each table with data about orders to its column with the order's id. Maintenance deletes the
# data of orders that nobody paid or claimed. Triggers prevent the deletion of the data of paid or
# claimed orders.
ORDER_ID_COLUMNS = {
    "payment_events": "order_id",
    "payment_order_changes": "order_id",
    "payment_orders": "id",
}


@pytest.fixture
def application_cursor(stack: Stack) -> Iterator[Cursor]:
    """A database cursor that has only the privileges of the application's database role."""
    with closing(psycopg2.connect(stack.environment["PRESSROOM_DATABASE_URL"])) as connection:
        connection.autocommit = True
        with connection.cursor() as opened:
            yield opened


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE users ADD COLUMN more text",
        "ALTER TABLE credit_entries DISABLE TRIGGER credit_entries_stay",
        "ALTER TABLE credit_entries DISABLE TRIGGER ALL",
        "ALTER TABLE users OWNER TO CURRENT_USER",
        "DROP TABLE users CASCADE",
        "DROP TRIGGER credit_entries_stay ON credit_entries",
        "DROP FUNCTION refuse_ledger_changes() CASCADE",
        "CREATE OR REPLACE FUNCTION refuse_ledger_changes() RETURNS trigger LANGUAGE plpgsql AS ''",
        "CREATE TRIGGER mine BEFORE INSERT ON users EXECUTE FUNCTION refuse_ledger_changes()",
        "CREATE RULE mine AS ON DELETE TO credit_entries DO INSTEAD NOTHING",
        "CREATE INDEX ON users (name)",
        "CREATE TABLE mine (word text)",
        "CREATE UNLOGGED TABLE mine (word text)",
        "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE SCHEMA mine",
        "CREATE EXTENSION dblink",
        "CREATE DATABASE mine",
        "DROP DATABASE template1",
        "CREATE ROLE mine SUPERUSER LOGIN",
        "ALTER ROLE CURRENT_USER SUPERUSER",
        "SET ROLE pressroom",
        "SET session_replication_role = replica",
        "ALTER SYSTEM SET log_statement = 'all'",
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "CREATE TEMP TABLE taken (line text); COPY taken FROM PROGRAM 'id'",
        "CREATE TEMP TABLE taken (line text); COPY taken FROM '/etc/passwd'",
        "COPY (SELECT 1) TO '/tmp/pressroom-was-here'",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT pg_read_binary_file('postgresql.conf')",
        "SELECT pg_ls_dir('.')",
        "SELECT lo_import('/etc/passwd')",
        "SELECT rolpassword FROM pg_authid",
        "UPDATE alembic_version SET version_num = '0001'",
        "SELECT setval('jobs_id_seq', 1)",
        "UPDATE feed_events SET data = '{}'",
        "UPDATE feed_offsets SET places = 0",
        "UPDATE consent_entries SET ip = NULL",
        "UPDATE consent_entries SET occurred_at = now()",
        "UPDATE consent_claims SET claimed_by = 'another'",
        "UPDATE consent_wordings SET wording = 'Another'",
        *(f"TRUNCATE {table}" for table in ("jobs", "credit_entries", "consent_entries")),
        *(f"DELETE FROM {table}" for table in UNDELETABLE_TABLES),
        *(f"UPDATE {table} SET id = id" for table in APPEND_ONLY_TABLES),
        *(f"TRUNCATE {table} CASCADE" for table in ORDER_ID_COLUMNS),
        *(f"ALTER TABLE {table} DISABLE TRIGGER {table}_purged" for table in ORDER_ID_COLUMNS),
    ],
)
def test_application_role_cannot_change_schema_roles_protected_rows_or_server_files(
    application_cursor: Cursor, statement: str
) -> None:
    with pytest.raises(InsufficientPrivilege):
        application_cursor.execute(statement)


@pytest.mark.parametrize(
    "steps",
    [
        ("paid_at = now()", "status = 'pending'", "status = 'paid_unclaimed'"),
        ("status = 'pending'", "status = 'paid'"),
        ("paid_at = now()",),
        ("claimed_at = now()",),
        ("refunded_minor = 5",),
        (DISPUTED,),
        ("mismatch = 'x'",),
        ("credited = 500",),
        ("next_check_at = now()",),
    ],
    ids=[
        *("paid, unclaimed", "paid", "with a payment", "claimed", "refunded", "disputed"),
        *("mismatched", "credited", "asked about"),
    ],
)
def test_application_role_cannot_delete_orders_with_payment_history(
    stack: Stack, application_cursor: Cursor, steps: tuple[str, ...]
) -> None:
    order_id = create_old_order(stack, *steps)
    for table, column in ORDER_ID_COLUMNS.items():
        for condition in (f"{column} = {order_id}", "true"):
            with pytest.raises(RestrictViolation):
                application_cursor.execute(f"DELETE FROM {table} WHERE {condition}")
        application_cursor.execute(f"SELECT count(*) FROM {table} WHERE {column} = {order_id}")
        [(row_count,)] = application_cursor.fetchall()
        assert row_count
    # Disable the triggers and delete the test's order, because the order's state can't occur in
    # production.
    for table, column in ORDER_ID_COLUMNS.items():
        stack.query(
            f"SET session_replication_role = replica; DELETE FROM {table} WHERE {column} = %s",
            order_id,
        )


def test_application_role_owns_nothing_and_is_no_member_of_other_roles(
    application_cursor: Cursor,
) -> None:
    application_cursor.execute(
        "SELECT rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls,"
        " EXISTS (SELECT FROM pg_auth_members WHERE member = pg_roles.oid),"
        " EXISTS (SELECT FROM pg_class WHERE relowner = pg_roles.oid AND relpersistence <> 't')"
        " FROM pg_roles WHERE rolname = current_user"
    )
    assert application_cursor.fetchone() == (False,) * 7


def test_application_role_has_no_write_privilege_on_append_only_tables(
    application_cursor: Cursor,
) -> None:
    """The application's role has no privilege for changes that a trigger forbids.

    Without the privilege, the application's role can't change the table even if somebody disables
    or drops the trigger.
    """
    application_cursor.execute(
        "SELECT DISTINCT tgrelid::regclass::text, privilege FROM pg_trigger"
        " CROSS JOIN (VALUES ('UPDATE', 16), ('DELETE', 8)) AS privileges (privilege, bit)"
        # Select the BEFORE triggers that run once per statement, because these triggers reject the
        # whole statement.
        " WHERE tgname LIKE '%\\_stay' AND tgtype & 2 > 0 AND tgtype & 1 = 0 AND tgtype & bit > 0"
        " AND has_table_privilege(tgrelid, privilege)"
    )
    assert application_cursor.fetchall() == []


def test_security_definer_functions_have_safe_search_path_and_are_not_public(
    application_cursor: Cursor,
) -> None:
    application_cursor.execute(
        "SELECT oid::regprocedure::text, proconfig,"
        " has_function_privilege('public', oid, 'EXECUTE')"
        " FROM pg_proc WHERE prosecdef AND pronamespace = 'public'::regnamespace"
    )
    for name, options, is_open in application_cursor.fetchall():
        paths = [each.partition("=")[2] for each in options or () if "search_path=" in each]
        assert paths, f"{name} has no search path of its own"
        # If pg_temp weren't the last schema in the search path, Postgres would prefer the caller's
        # temporary tables to Pressroom's tables.
        assert paths[0].replace(" ", "").endswith("pg_temp"), name
        assert not is_open, f"{name} is open to every role"


@pytest.fixture
def make_database(stack: Stack) -> Iterator[Callable[[str], Settings]]:
    """A function that creates a database with the given owner, and returns settings for it."""
    databases: list[str] = []
    roles_before = {role for (role,) in stack.query("SELECT rolname FROM pg_roles")}
    with closing(psycopg2.connect(stack.owner_url)) as connection, connection.cursor() as cursor:
        connection.autocommit = True

        def make(owner: str) -> Settings:
            database = f"roles_{secrets.token_hex(4)}"
            databases.append(database)
            create = sql.SQL("CREATE DATABASE {} OWNER {}")
            cursor.execute(create.format(sql.Identifier(database), sql.Identifier(owner)))
            server, _, _ = stack.owner_url.partition("://")[2].rpartition("/")
            url = SecretStr(f"postgresql+psycopg2://{server}/{database}")
            return stack.settings().model_copy(update={"database_url": url})

        yield make
        for name in databases:
            drop = sql.SQL("DROP DATABASE {} WITH (FORCE)")
            cursor.execute(drop.format(sql.Identifier(name)))
        cursor.execute("SELECT rolname FROM pg_roles")
        for (role,) in cursor.fetchall():
            if role not in roles_before:
                cursor.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def build_database_url(settings: Settings, user: str, password: str) -> SecretStr:
    server = settings.database_url.get_secret_value().rpartition("@")[2]
    return SecretStr(f"postgresql+psycopg2://{user}:{password}@{server}")


def execute(url: SecretStr, statement: str) -> list[tuple[object, ...]]:
    """Run a SQL statement as the user of a database URL, and return the rows of its result."""
    dsn = url.get_secret_value().replace("+psycopg2", "")
    with closing(psycopg2.connect(dsn)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


def test_migration_with_single_role_succeeds_with_a_warning(
    make_database: Callable[[str], Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = make_database("pressroom")
    migrate(settings)
    assert "database.role_may_change_tables" in "".join(capsys.readouterr())
    execute(settings.database_url, "TRUNCATE jobs CASCADE")


def test_migration_creates_separate_application_role_when_configured(
    make_database: Callable[[str], Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    before = make_database("pressroom")
    migrate(before)
    execute(before.database_url, "INSERT INTO users (id, email) VALUES (1, 'kept@example.com')")
    capsys.readouterr()
    application = build_database_url(before, "Second-Role", "it%27s%20secret")
    urls = {"database_url": application, "migration_database_url": before.database_url}
    after = before.model_copy(update=urls)
    for _ in range(2):
        migrate(after)
    assert "role_may_change_tables" not in "".join(capsys.readouterr())
    assert execute(application, "SELECT email FROM users") == [("kept@example.com",)]
    with pytest.raises(InsufficientPrivilege):
        execute(application, "TRUNCATE jobs")
    assert execute(application, "SHOW statement_timeout") == [("10s",)]
    # The application's role must be able to use tables that the database's owner creates later.
    execute(before.database_url, "CREATE TABLE of_the_next_release (id bigserial)")
    execute(application, "INSERT INTO of_the_next_release DEFAULT VALUES")


def test_migration_revokes_manually_granted_privileges(
    make_database: Callable[[str], Settings],
) -> None:
    before = make_database("pressroom")
    application = build_database_url(before, "third_role", "word")
    urls = {"database_url": application, "migration_database_url": before.database_url}
    after = before.model_copy(update=urls)
    migrate(after)
    execute(before.database_url, "GRANT ALL ON jobs TO third_role")
    execute(before.database_url, "GRANT CREATE ON SCHEMA public TO PUBLIC")
    migrate(after)
    for statement in ("TRUNCATE jobs", "CREATE TABLE mine (id bigint)"):
        with pytest.raises(InsufficientPrivilege):
            execute(application, statement)


def test_migration_names_missing_role_that_the_owner_cannot_create(
    make_database: Callable[[str], Settings],
) -> None:
    administrator = make_database("pressroom").database_url
    execute(administrator, "CREATE ROLE plain_owner LOGIN PASSWORD 'word'")
    before = make_database("plain_owner")
    owner = build_database_url(before, "plain_owner", "word")
    application = build_database_url(before, "missing_role", "word")
    after = before.model_copy(update={"database_url": application, "migration_database_url": owner})
    with pytest.raises(DomainError, match="role missing_role doesn't exist"):
        migrate(after)
    execute(administrator, "CREATE ROLE missing_role LOGIN PASSWORD 'word'")
    migrate(after)
    with pytest.raises(InsufficientPrivilege):
        execute(application, "DROP TABLE users CASCADE")
    assert execute(application, "SELECT count(*) FROM users") == [(0,)]
    # The owner of the database isn't allowed to change the settings of the application's role.
    # The migration has therefore logged in as the application's role to set this role's lock
    # timeout.
    assert execute(application, "SHOW lock_timeout") == [("3s",)]


@pytest.mark.parametrize(
    "command",
    [
        *("FLUSHALL", "FLUSHDB", "CONFIG GET *", "CONFIG SET dir /tmp", "DEBUG SLEEP 0"),
        *("SCRIPT KILL", "SCRIPT FLUSH", "SHUTDOWN NOSAVE", "KEYS *", "MONITOR", "SAVE"),
        *("ACL LIST", "ACL SETUSER default on nopass", "CLIENT KILL TYPE normal", "CLIENT LIST"),
        *("MODULE LIST", "REPLICAOF 10.0.0.1 6379", "SWAPDB 0 1", "FUNCTION FLUSH", "BGREWRITEAOF"),
        "MIGRATE 10.0.0.1 6379 key 0 100",
        "EVAL return(redis.call('FLUSHALL')) 0",
    ],
)
def test_redis_rejects_administrative_commands_of_the_application_user(
    stack: Stack, command: str
) -> None:
    with (
        redis.Redis.from_url(stack.environment["PRESSROOM_REDIS_URL"]) as client,
        pytest.raises((NoPermissionError, ResponseError), match=r"permission|ACL|not allowed"),
    ):
        client.execute_command(*command.split())


@pytest.mark.parametrize("wrong_login", ["", ":wrong@", "pressroom:wrong@", "stranger:wrong@"])
def test_redis_requires_user_and_password(stack: Stack, wrong_login: str) -> None:
    server = stack.environment["PRESSROOM_REDIS_URL"].rpartition("@")[2]
    with (
        redis.Redis.from_url(f"redis://{wrong_login}{server}") as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.ping()


def minio(stack: Stack, access_key: str, secret_key: str) -> Minio:
    host = stack.environment["PRESSROOM_S3_ENDPOINT"].removeprefix("http://")
    return Minio(
        host, access_key=access_key, secret_key=secret_key, secure=False, region="us-east-1"
    )


def test_application_s3_key_opens_only_its_own_bucket(stack: Stack, services: Services) -> None:
    keys = services.secrets
    admin = minio(stack, keys.s3_admin_access_key, keys.s3_admin_secret_key)
    application = minio(
        stack,
        stack.environment["PRESSROOM_S3_ACCESS_KEY"],
        stack.environment["PRESSROOM_S3_SECRET_KEY"],
    )
    admin.make_bucket("another")
    admin.put_object("another", "private", BytesIO(b"secret"), 6)
    attempts: list[Callable[[], object]] = [
        lambda: list(application.list_objects("another", recursive=True)),
        lambda: application.get_object("another", "private").read(),
        lambda: application.stat_object("another", "private"),
        lambda: application.put_object("another", "mine", BytesIO(b"mine"), 4),
        lambda: application.remove_object("another", "private"),
        lambda: application.remove_bucket("another"),
        lambda: application.make_bucket("a-third"),
        lambda: application.delete_bucket_policy("another"),
    ]
    for attempt in attempts:
        with pytest.raises(S3Error, match=r"AccessDenied|Access Denied"):
            attempt()
    assert admin.stat_object("another", "private").size == 6
    assert "another" not in {each.name for each in application.list_buckets()}
    assert stack.resources.objects.has_bucket()
