"""Replace check_left_lists, check_left_users and check_left_imports with a single function.

The migration replaces the function of three triggers, which keep their names. Replacing a trigger
takes no lock that blocks readers. The code of release 1.0.0 never calls the dropped functions
directly.
"""

from alembic import op

revision = "0112"
down_revision = "0111"
branch_labels = None
depends_on = None


_FUNCTION = """
CREATE FUNCTION check_deleted_row() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.id = OLD.id THEN
        RETURN NULL;
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE feature_not_supported USING MESSAGE = format(
            'rows of %s are deleted in read committed transactions only', TG_TABLE_NAME);
    END IF;
    CASE TG_TABLE_NAME
        WHEN 'lists' THEN
            PERFORM FROM subscriptions WHERE list_id = OLD.id LIMIT 1 FOR KEY SHARE;
        WHEN 'users' THEN
            PERFORM FROM subscriptions WHERE user_id = OLD.id LIMIT 1 FOR KEY SHARE;
        WHEN 'imports' THEN
            PERFORM FROM subscriptions WHERE import_id = OLD.id LIMIT 1 FOR KEY SHARE;
    END CASE;
    IF FOUND THEN
        RAISE foreign_key_violation USING TABLE = 'subscriptions',
            CONSTRAINT = TG_ARGV[0],
            MESSAGE = format('a subscription refers to the row of %s', TG_TABLE_NAME);
    END IF;
    RETURN NULL;
END
$$;
"""


def upgrade() -> None:
    op.execute(_FUNCTION)
    for table, key in (("lists", "list_id"), ("users", "user_id"), ("imports", "import_id")):
        op.execute(f"""
        CREATE OR REPLACE TRIGGER {table}_check_left AFTER DELETE OR UPDATE OF id ON {table}
            FOR EACH ROW EXECUTE FUNCTION check_deleted_row('fk_subscriptions_{key}')
        """)
        op.execute(f"DROP FUNCTION check_left_{table}()")
