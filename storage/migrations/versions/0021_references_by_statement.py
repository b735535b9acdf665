"""What subscriptions refer to is checked once a statement, not once a row.

Postgres checks a foreign key by a query of its own for each row and key: a third of what a new
member costs. Here the three foreign keys of ``subscriptions`` stay declared, and triggers keep them:
one statement looks up, and locks, what all new rows refer to.

Safe under running code: the keys change hands in one transaction, which scans no table.
"""

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

KEYS = {"list_id": "lists", "user_id": "users", "import_id": "imports"}

# Few lists and imports, and mostly a person a row.
REFERRED = {
    "list_id": "SELECT DISTINCT list_id FROM after_it",
    "user_id": "SELECT user_id FROM after_it",
    "import_id": "SELECT DISTINCT import_id FROM after_it WHERE import_id IS NOT NULL",
}
# Each look takes the lock that a foreign key takes, so a row that is referred to stays until the
# commit. OFFSET 0 has Postgres look up one row at a time, whatever its statistics say: the plan is
# kept, and the next statement may have one row or ten thousand.
_LOOK_UP = """
    SELECT count(*) - count(held.id) INTO missing
    FROM ({referred}) AS referred
    LEFT JOIN LATERAL (
        SELECT id FROM {table} WHERE id = referred.{column} FOR KEY SHARE OFFSET 0
    ) AS held ON true;
    IF missing > 0 THEN
        RAISE foreign_key_violation USING TABLE = 'subscriptions',
            CONSTRAINT = 'fk_subscriptions_{column}', COLUMN = '{column}',
            MESSAGE = 'a subscription refers to a row of {table} that is not there';
    END IF;
"""
CHECK_NEW = f"""
CREATE FUNCTION check_new_subscriptions() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    missing bigint;
BEGIN
{"".join(_LOOK_UP.format(column=c, table=t, referred=REFERRED[c]) for c, t in KEYS.items())}
    RETURN NULL;
END
$$
"""

_LOOK_UP_CHANGED = """
    IF NEW.{column} IS DISTINCT FROM OLD.{column} AND NEW.{column} IS NOT NULL THEN
        PERFORM FROM {table} WHERE id = NEW.{column} FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE foreign_key_violation USING TABLE = 'subscriptions',
                CONSTRAINT = 'fk_subscriptions_{column}', COLUMN = '{column}',
                MESSAGE = 'a subscription refers to a row of {table} that is not there';
        END IF;
    END IF;
"""
CHECK_CHANGED = f"""
CREATE FUNCTION check_changed_subscription() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
{"".join(_LOOK_UP_CHANGED.format(column=column, table=table) for column, table in KEYS.items())}
    RETURN NULL;
END
$$
"""

# A transaction with one snapshot for all its statements would not see a subscription that was
# committed since, and that held the row until then.
CHECK_LEFT = """
CREATE FUNCTION check_left_{table}() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.id = OLD.id THEN
        RETURN NULL;
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE feature_not_supported
            USING MESSAGE = 'rows of {table} are deleted in read committed transactions only';
    END IF;
    PERFORM FROM subscriptions WHERE {column} = OLD.id LIMIT 1 FOR KEY SHARE;
    IF FOUND THEN
        RAISE foreign_key_violation USING TABLE = 'subscriptions',
            CONSTRAINT = 'fk_subscriptions_{column}',
            MESSAGE = 'a subscription refers to the row of {table}';
    END IF;
    RETURN NULL;
END
$$
"""


def _enforce(how: str) -> None:
    for column in KEYS:
        op.execute(f"ALTER TABLE subscriptions ALTER CONSTRAINT fk_subscriptions_{column} {how}")


def upgrade() -> None:
    # All at once and in the order in which most transactions meet them.
    op.execute("LOCK TABLE lists, users, imports, subscriptions IN ACCESS EXCLUSIVE MODE")
    op.execute(CHECK_NEW)
    op.execute(CHECK_CHANGED)
    op.execute(
        "CREATE TRIGGER subscriptions_check_new AFTER INSERT ON subscriptions"
        " REFERENCING NEW TABLE AS after_it"
        " FOR EACH STATEMENT EXECUTE FUNCTION check_new_subscriptions()"
    )
    changed = " OR ".join(f"NEW.{column} IS DISTINCT FROM OLD.{column}" for column in KEYS)
    op.execute(
        f"CREATE TRIGGER subscriptions_check_changed AFTER UPDATE OF {', '.join(KEYS)}"
        f" ON subscriptions FOR EACH ROW WHEN ({changed})"
        " EXECUTE FUNCTION check_changed_subscription()"
    )
    for column, table in KEYS.items():
        op.execute(CHECK_LEFT.format(column=column, table=table))
        op.execute(
            f"CREATE TRIGGER {table}_check_left AFTER DELETE OR UPDATE OF id ON {table}"
            f" FOR EACH ROW EXECUTE FUNCTION check_left_{table}()"
        )
    _enforce("NOT ENFORCED")


def downgrade() -> None:
    _enforce("ENFORCED")
    for table in KEYS.values():
        op.execute(f"DROP TRIGGER {table}_check_left ON {table}")
        op.execute(f"DROP FUNCTION check_left_{table}")
    op.execute("DROP TRIGGER subscriptions_check_changed ON subscriptions")
    op.execute("DROP TRIGGER subscriptions_check_new ON subscriptions")
    op.execute("DROP FUNCTION check_changed_subscription")
    op.execute("DROP FUNCTION check_new_subscriptions")
