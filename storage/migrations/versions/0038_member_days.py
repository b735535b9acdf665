"""How many members joined and left each list on each day.

The trigger that counts subscribers notes it, so the release before does too. Its function changes
hands while no transaction writes subscriptions: each writes with the old one or with the new one,
and what was written before is counted by the next migration.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

# Less than the second after which Postgres ends one side of a deadlock, perhaps a caller's.
_WAIT = "SET LOCAL lock_timeout = '500ms'"
# As another migration has it: deleted all the time.
_BUSY = "autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000"
# Of a day, the row of each source and tier changes each half minute, in columns without an index.
_HOT = "autovacuum_vacuum_scale_factor = 0.05, fillfactor = 80"

# One look at what a statement changed gives both: what it did to each day, and to each count. A
# member who stays active and has another tier has moved; all others of the same record are as they
# were. There is no join: the plan is kept, and the next statement may have one row or ten thousand.
COUNT_SUBSCRIBERS = """
CREATE OR REPLACE FUNCTION count_subscribers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        WITH noted AS (
            INSERT INTO member_day_deltas
                (list_id, day, source, type, joined, gone, moved_in, moved_out)
            SELECT list_id, (now() AT TIME ZONE 'UTC')::date, source, type, count(*), 0, 0, 0
            FROM after_it WHERE status = 'active' GROUP BY list_id, source, type
            RETURNING list_id, joined
        )
        INSERT INTO subscriber_deltas (list_id, active)
        SELECT list_id, sum(joined) FROM noted GROUP BY list_id;
    ELSIF TG_OP = 'DELETE' THEN
        WITH noted AS (
            INSERT INTO member_day_deltas
                (list_id, day, source, type, joined, gone, moved_in, moved_out)
            SELECT list_id, (now() AT TIME ZONE 'UTC')::date, source, type, 0, count(*), 0, 0
            FROM before_it WHERE status = 'active' GROUP BY list_id, source, type
            RETURNING list_id, gone
        )
        INSERT INTO subscriber_deltas (list_id, active)
        SELECT list_id, -sum(gone) FROM noted GROUP BY list_id;
    ELSE
        WITH noted AS (
            INSERT INTO member_day_deltas
                (list_id, day, source, type, joined, gone, moved_in, moved_out)
            SELECT list_id, (now() AT TIME ZONE 'UTC')::date, source, type,
                count(*) FILTER (WHERE is_after AND is_alone),
                count(*) FILTER (WHERE NOT is_after AND is_alone),
                count(*) FILTER (WHERE is_after AND NOT is_alone),
                count(*) FILTER (WHERE NOT is_after AND NOT is_alone)
            FROM (
                SELECT list_id, source, type, is_after, count(*) OVER same = 1 AS is_alone,
                    min(type) OVER same <> max(type) OVER same AS has_moved
                FROM (
                    SELECT id, list_id, source, type, true AS is_after
                    FROM after_it WHERE status = 'active'
                    UNION ALL
                    SELECT id, list_id, source, type, false
                    FROM before_it WHERE status = 'active'
                ) AS either
                WINDOW same AS (PARTITION BY id)
            ) AS changed
            WHERE is_alone OR has_moved
            GROUP BY list_id, source, type
            RETURNING list_id, joined - gone AS difference
        )
        INSERT INTO subscriber_deltas (list_id, active)
        SELECT list_id, sum(difference) FROM noted
        GROUP BY list_id HAVING sum(difference) <> 0;
    END IF;
    RETURN NULL;
END
$$
"""

# As the migration of subscriptions made it.
COUNT_SUBSCRIBERS_BEFORE = """
CREATE OR REPLACE FUNCTION count_subscribers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO subscriber_deltas (list_id, active)
        SELECT list_id, count(*) FROM after_it WHERE status = 'active' GROUP BY list_id;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO subscriber_deltas (list_id, active)
        SELECT list_id, -count(*) FROM before_it WHERE status = 'active' GROUP BY list_id;
    ELSE
        INSERT INTO subscriber_deltas (list_id, active)
        SELECT list_id, sum(difference) FROM (
            SELECT list_id, 1 AS difference FROM after_it WHERE status = 'active'
            UNION ALL
            SELECT list_id, -1 FROM before_it WHERE status = 'active'
        ) AS changed
        GROUP BY list_id HAVING sum(difference) <> 0;
    END IF;
    RETURN NULL;
END
$$
"""


def _columns() -> list[sa.Column[object]]:
    kinds: dict[str, sa.types.TypeEngine[Any]] = {
        "day": sa.Date(),
        "source": sa.String(),
        "type": sa.String(),
    }
    names = ("list_id", "day", "source", "type", "joined", "gone", "moved_in", "moved_out")
    return [sa.Column(name, kinds.get(name, sa.BigInteger()), nullable=False) for name in names]


def upgrade() -> None:
    op.create_table(
        "member_days",
        *_columns(),
        sa.ForeignKeyConstraint(["list_id"], ["lists.id"], name=op.f("fk_member_days_list_id")),
        sa.PrimaryKeyConstraint("list_id", "day", "source", "type", name=op.f("pk_member_days")),
    )
    op.create_table(
        "member_day_deltas",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        *_columns(),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_member_day_deltas")),
    )
    op.create_index("ix_member_day_deltas_list_id", "member_day_deltas", ["list_id"])
    op.execute(f"ALTER TABLE member_days SET ({_HOT})")
    op.execute(f"ALTER TABLE member_day_deltas SET ({_BUSY})")
    op.execute(_WAIT)
    op.execute("LOCK TABLE subscriptions IN SHARE MODE")
    op.execute(COUNT_SUBSCRIBERS)


def downgrade() -> None:
    op.execute(_WAIT)
    op.execute("LOCK TABLE subscriptions IN SHARE MODE")
    op.execute(COUNT_SUBSCRIBERS_BEFORE)
    op.drop_table("member_day_deltas")
    op.drop_table("member_days")
