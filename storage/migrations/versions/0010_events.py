"""Events: rows that only grow, and the source of failed logins.

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

# The trigger and the purge have a fixed search path, so that no table or function of a caller's own
# stands in for one of ours.
KEEP_EVENTS = """
CREATE FUNCTION keep_events() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_OP = 'DELETE' AND OLD.occurred_at < now() - interval '1 year' THEN
        RETURN OLD;
    END IF;
    IF TG_OP = 'UPDATE'
        AND to_jsonb(NEW) = to_jsonb(OLD) || '{"ip": null, "user_agent": null}'
        AND EXISTS (SELECT FROM users WHERE id = OLD.user_id AND erased_at IS NOT NULL)
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'events are never changed, and kept for a year'
        USING ERRCODE = 'restrict_violation';
END
$$
"""

# The one way to delete events, for a role that may not delete rows of the table itself.
PURGE_EVENTS = """
CREATE FUNCTION purge_events(most integer) RETURNS bigint LANGUAGE sql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH purged AS (
        DELETE FROM events WHERE id IN (
            SELECT id FROM events WHERE occurred_at < now() - interval '1 year'
            ORDER BY occurred_at LIMIT most
        ) RETURNING 1
    )
    SELECT count(*) FROM purged
$$
"""


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column(
            "occurred_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("ip", sa.String(), nullable=True),
        sa.Column("user_agent", sa.String(), nullable=True),
        sa.Column("credential_kind", sa.String(), nullable=True),
        sa.Column("credential_id", sa.BigInteger(), nullable=True),
        sa.Column(
            "detail",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "char_length(user_agent) <= 300", name=op.f("ck_events_user_agent_bounded")
        ),
        sa.CheckConstraint(
            "octet_length(detail::text) <= 2000", name=op.f("ck_events_detail_bounded")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index("ix_events_user_id_id", "events", ["user_id", sa.text("id DESC")])
    op.create_index(op.f("ix_events_occurred_at"), "events", ["occurred_at"])
    op.execute(KEEP_EVENTS)
    op.execute(
        "CREATE TRIGGER events_stay BEFORE UPDATE OR DELETE ON events "
        "FOR EACH ROW EXECUTE FUNCTION keep_events()"
    )
    op.execute(
        "CREATE TRIGGER events_are_not_truncated BEFORE TRUNCATE ON events "
        "FOR EACH STATEMENT EXECUTE FUNCTION keep_events()"
    )
    op.execute(PURGE_EVENTS)
    op.add_column("login_attempts", sa.Column("source", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    op.drop_column("login_attempts", "source")
    op.execute("DROP FUNCTION purge_events(integer)")
    op.drop_table("events")
    op.execute("DROP FUNCTION keep_events()")
