"""Revoked trace ids, when a person took their account back, and orders that may be purged.

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

# An order that a stranger made and that nobody paid or claimed, when no more facts can come.
ABANDONED = """
CREATE FUNCTION is_abandoned_order(wanted bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM payment_orders
        WHERE id = wanted AND created_at < now() - interval '30 days'
            AND status IN ('created', 'pending', 'failed', 'expired') AND next_check_at IS NULL
            AND user_id IS NULL AND claimed_at IS NULL AND paid_at IS NULL
            AND refunded_minor = 0 AND dispute IS NULL AND mismatch IS NULL AND credited = 0
    )
$$
"""

KEEP = """
CREATE FUNCTION keep_payment_history() RETURNS trigger
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    wanted bigint;
BEGIN
    IF TG_TABLE_NAME = 'payment_orders' THEN
        wanted := OLD.id;
    ELSE
        wanted := OLD.order_id;
    END IF;
    IF is_abandoned_order(wanted) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'what happened to orders is never changed or deleted'
        USING ERRCODE = 'restrict_violation';
END
$$
"""

# What each table's trigger refuses for a whole statement, before and since.
HISTORY = {
    "payment_orders": ("DELETE OR TRUNCATE", "TRUNCATE"),
    "payment_order_changes": ("UPDATE OR DELETE OR TRUNCATE", "UPDATE OR TRUNCATE"),
    "payment_events": ("UPDATE OR DELETE OR TRUNCATE", "UPDATE OR TRUNCATE"),
}


def _refuse(table: str, acts: str) -> None:
    op.execute(f"DROP TRIGGER {table}_stay ON {table}")
    op.execute(
        f"CREATE TRIGGER {table}_stay BEFORE {acts} ON {table} "
        "FOR EACH STATEMENT EXECUTE FUNCTION refuse_payment_history_changes()"
    )


def upgrade() -> None:
    op.add_column("lists", sa.Column("traces_revoked_through", sa.BigInteger(), nullable=True))
    op.add_column("users", sa.Column("recovered_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("upkeep", sa.Column("bookmark", sa.BigInteger(), nullable=True))
    # A person is deleted only after a look here.
    op.create_index(op.f("ix_exports_user_id"), "exports", ["user_id"])
    op.execute(ABANDONED)
    op.execute(KEEP)
    for table, (_, acts) in HISTORY.items():
        op.execute(
            f"CREATE TRIGGER {table}_purged BEFORE DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION keep_payment_history()"
        )
        _refuse(table, acts)


def downgrade() -> None:
    for table, (acts, _) in HISTORY.items():
        _refuse(table, acts)
        op.execute(f"DROP TRIGGER {table}_purged ON {table}")
    op.execute("DROP FUNCTION keep_payment_history")
    op.execute("DROP FUNCTION is_abandoned_order")
    op.drop_index("ix_exports_user_id", "exports")
    op.drop_column("upkeep", "bookmark")
    op.drop_column("users", "recovered_at")
    op.drop_column("lists", "traces_revoked_through")
