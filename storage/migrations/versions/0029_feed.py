"""The feed: the facts of an owner in an order that a reader can follow without losing one.

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock. The release before writes no facts, but for balances that run low.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

# How many ids a partition has. A restore skips a hundredth of them.
IDS_EACH = 10**11

# Of the transaction that calls it. The column has it as its default, so no writer can forget it.
PLACE = """
CREATE FUNCTION feed_place() RETURNS bigint LANGUAGE sql VOLATILE
SET search_path = public, pg_temp AS $$
    SELECT places + pg_current_xact_id()::text::bigint FROM feed_offsets
$$
"""

# The numbers of transactions begin anew in a new cluster, and a dump knows neither the events nor the
# cursors that were given after it. A place is at least as high as the microseconds since 1970 (or
# nearly: there are 2^20 places a second), so those of now are above all that any earlier database
# gave, unless that one made a million transactions a second. So are the ids.
RAISE = """
CREATE FUNCTION raise_feed_places() RETURNS bigint LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    raised bigint;
BEGIN
    UPDATE feed_offsets SET places = greatest(
        places,
        (extract(epoch FROM clock_timestamp()) * 1048576)::bigint
            - pg_current_xact_id()::text::bigint
    ) RETURNING places INTO raised;
    PERFORM setval('feed_events_id_seq', greatest(last_value, least(
        last_value + 1000000000,
        (SELECT max(to_id) FROM partitions WHERE parent = 'feed_events') - 1000000000
    ))) FROM feed_events_id_seq;
    RETURN raised;
END
$$
"""

# The threshold is the account's own, so a charge costs no look at anything else. It fires when the
# balance crosses the threshold, and not again before the balance was above it.
TELL_LOW = """
CREATE FUNCTION tell_low_credits() RETURNS trigger LANGUAGE plpgsql
SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO feed_events (user_id, type, subject_id, data)
    VALUES (NEW.user_id, 'credits.low', NEW.id,
        jsonb_build_object('balance_credit', NEW.balance, 'below', NEW.low_below));
    RETURN NULL;
END
$$
"""

_PARTITIONED = "interval '30 days', interval '30 days')"
_AND_FEED = f"""{_PARTITIONED},
        ('feed_events', 'id', 'feed_events_id_seq', {IDS_EACH},
            interval '10 days', interval '30 days')"""


def upgrade() -> None:
    connection = op.get_bind()
    op.create_table(
        "feed_offsets",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("places", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_feed_offsets_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_feed_offsets")),
    )
    op.execute("INSERT INTO feed_offsets (id, places) VALUES (1, 0)")
    connection.exec_driver_sql(PLACE)
    op.create_table(
        "feed_events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("place", sa.BigInteger(), server_default=sa.text("feed_place()"), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("list_id", sa.BigInteger(), nullable=True),
        sa.Column("subject_id", sa.BigInteger(), nullable=True),
        sa.Column(
            "data",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column(
            "occurred_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "octet_length(data::text) <= 2000", name=op.f("ck_feed_events_data_bounded")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_feed_events")),
        postgresql_partition_by="RANGE (id)",
    )
    op.create_index(
        "ix_feed_events_user_id_type_place_id", "feed_events", ["user_id", "type", "place", "id"]
    )
    op.create_index(
        "ix_feed_events_list_id_type_place_id",
        "feed_events",
        ["list_id", "type", "place", "id"],
        postgresql_where=sa.text("list_id IS NOT NULL"),
    )
    _make_first_partition(connection)
    _rewrite("partition_state(text)", _PARTITIONED, _AND_FEED)
    for function in (RAISE, TELL_LOW):
        connection.exec_driver_sql(function)
    op.add_column(
        "credit_accounts",
        sa.Column(
            "low_below",
            sa.Numeric(precision=15, scale=4),
            server_default=sa.text("100"),
            nullable=False,
        ),
    )
    op.execute(
        "CREATE TRIGGER low_credits_are_told AFTER UPDATE OF balance ON credit_accounts"
        " FOR EACH ROW WHEN (OLD.balance >= NEW.low_below AND NEW.balance < NEW.low_below)"
        " EXECUTE FUNCTION tell_low_credits()"
    )


def downgrade() -> None:
    op.execute("DROP TRIGGER low_credits_are_told ON credit_accounts")
    op.drop_column("credit_accounts", "low_below")
    op.execute("DROP FUNCTION tell_low_credits()")
    op.execute("DROP FUNCTION raise_feed_places()")
    _rewrite("partition_state(text)", _AND_FEED, _PARTITIONED)
    op.execute("DELETE FROM partitions WHERE parent = 'feed_events'")
    op.drop_table("feed_events")
    op.execute("DROP FUNCTION feed_place()")
    op.drop_table("feed_offsets")


def _make_first_partition(connection: sa.Connection) -> None:
    connection.exec_driver_sql(
        "CREATE TABLE feed_events_p0 (LIKE feed_events INCLUDING ALL EXCLUDING IDENTITY"
        " EXCLUDING INDEXES)"
    )
    connection.exec_driver_sql(
        "ALTER TABLE feed_events ATTACH PARTITION feed_events_p0"
        f" FOR VALUES FROM (MINVALUE) TO ({IDS_EACH})"
    )
    for index in ("user_id_type_place_id", "list_id_type_place_id"):
        made = f"feed_events_p0_{index}_idx"
        connection.exec_driver_sql(f"ALTER INDEX {made} RENAME TO ix_feed_events_{index}_p0")
    connection.exec_driver_sql("ALTER INDEX feed_events_p0_pkey RENAME TO pk_feed_events_p0")
    connection.exec_driver_sql(
        "INSERT INTO partitions (name, parent, from_id, to_id)"
        f" VALUES ('feed_events_p0', 'feed_events', 0, {IDS_EACH})"
    )


def _rewrite(function: str, before: str, after: str) -> None:
    """Replace a part of a function that an earlier migration made."""
    source = op.get_bind().scalar(
        sa.text("SELECT pg_get_functiondef(CAST(:name AS regprocedure))"), {"name": function}
    )
    if before not in source:
        raise RuntimeError(f"{function} is not as the migrations before this one made it")
    op.execute(sa.text(source.replace(before, after).replace(":", r"\:")))
