"""Segments of a list's members, acts on all members that fit a filter, and exports of them.

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock. The release before knows of none of it: it makes no such exports,
and leaves the jobs to this release, whose kinds it does not know.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0035"
down_revision = "0034c"
branch_labels = None
depends_on = None

# How many acts a partition has the changes of.
IDS_EACH = 10**7

_FEED = "interval '10 days', interval '30 days')"
_AND_CHANGES = f"""{_FEED},
        ('bulk_changes', 'bulk_id', 'bulk_acts_id_seq', {IDS_EACH},
            interval '30 days', interval '30 days')"""
_END = """    END IF;
    RETURN NOT is_used;"""
# As an import, an act may be young in an old partition.
_UNLESS_ACTS = f"""    ELSIF part.parent = 'bulk_changes' THEN
        SELECT EXISTS (
            SELECT FROM bulk_acts WHERE id >= part.from_id AND id < part.to_id
                AND (finished_at IS NULL OR finished_at >= since)
        ) INTO is_used;
{_END}"""


def upgrade() -> None:
    op.create_table(
        "segments",
        _id(),
        sa.Column("list_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("folded", sa.String(), nullable=False),
        sa.Column("filter", _document(), nullable=False),
        _moment("created_at", default="now()"),
        _moment("updated_at", default="now()"),
        sa.ForeignKeyConstraint(["list_id"], ["lists.id"], name=op.f("fk_segments_list_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_segments")),
        sa.UniqueConstraint("list_id", "folded", name=op.f("uq_segments_list_id_folded")),
    )
    _make_acts()
    _make_changes()
    op.add_column("exports", sa.Column("filter", _document(), nullable=True))
    op.add_column("exports", sa.Column("statuses", sa.ARRAY(sa.Text()), nullable=True))
    op.add_column(
        "exports",
        sa.Column("format", sa.String(), server_default=sa.text("'csv'"), nullable=False),
    )
    _rewrite("partition_state(text)", _FEED, _AND_CHANGES)
    _rewrite("is_outlived(partitions,timestamptz)", _END, _UNLESS_ACTS)


def downgrade() -> None:
    _rewrite("is_outlived(partitions,timestamptz)", _UNLESS_ACTS, _END)
    _rewrite("partition_state(text)", _AND_CHANGES, _FEED)
    op.execute("DELETE FROM partitions WHERE parent = 'bulk_changes'")
    for name in ("format", "statuses", "filter"):
        op.drop_column("exports", name)
    for table in ("bulk_changes", "bulk_acts", "segments"):
        op.drop_table(table)


def _make_acts() -> None:
    op.create_table(
        "bulk_acts",
        _id(),
        sa.Column("list_id", sa.BigInteger(), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("filter", _document(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("tag_id", sa.BigInteger(), nullable=True),
        sa.Column("type", sa.String(), nullable=True),
        sa.Column("status", sa.String(), server_default=sa.text("'running'"), nullable=False),
        sa.Column("reached_status", sa.String(), nullable=True),
        sa.Column("reached_id", sa.BigInteger(), nullable=True),
        _count("seen"),
        _count("matched"),
        _count("changed"),
        sa.Column("undo_job_id", sa.BigInteger(), nullable=True),
        sa.Column("undo_reached_id", sa.BigInteger(), nullable=True),
        _count("undone"),
        _moment("undone_at"),
        _moment("created_at", default="now()"),
        _moment("finished_at"),
        sa.CheckConstraint(
            "action IN ('tag', 'untag', 'remove', 'set_type', 'email_off')",
            name=op.f("ck_bulk_acts_action_known"),
        ),
        sa.CheckConstraint(
            "status IN ('running', 'succeeded', 'failed', 'cancelled')",
            name=op.f("ck_bulk_acts_status_known"),
        ),
        sa.ForeignKeyConstraint(["list_id"], ["lists.id"], name=op.f("fk_bulk_acts_list_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_bulk_acts_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bulk_acts")),
    )
    op.create_index("ix_bulk_acts_user_id_id", "bulk_acts", ["user_id", "id"])
    op.create_index("ix_bulk_acts_list_id", "bulk_acts", ["list_id"])
    op.create_index("ix_bulk_acts_finished_at", "bulk_acts", ["finished_at"])


def _make_changes() -> None:
    op.create_table(
        "bulk_changes",
        sa.Column("bulk_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("subscription_id", sa.BigInteger(), autoincrement=False, nullable=False),
        _moment("applied_at", nullable=False),
        _moment("updated_at_before", nullable=False),
        sa.Column("status_before", sa.String(), nullable=False),
        sa.Column("type_before", sa.String(), nullable=False),
        _moment("paid_expiry_before"),
        _moment("paid_expiry_after"),
        sa.PrimaryKeyConstraint("bulk_id", "subscription_id", name=op.f("pk_bulk_changes")),
        postgresql_partition_by="RANGE (bulk_id)",
    )
    op.create_index("ix_bulk_changes_subscription_id", "bulk_changes", ["subscription_id"])
    op.execute("CREATE TABLE bulk_changes_p0 (LIKE bulk_changes INCLUDING ALL EXCLUDING INDEXES)")
    op.execute(
        "ALTER TABLE bulk_changes ATTACH PARTITION bulk_changes_p0"
        f" FOR VALUES FROM (MINVALUE) TO ({IDS_EACH})"
    )
    op.execute("ALTER INDEX bulk_changes_p0_pkey RENAME TO pk_bulk_changes_p0")
    op.execute(
        "ALTER INDEX bulk_changes_p0_subscription_id_idx"
        " RENAME TO ix_bulk_changes_subscription_id_p0"
    )
    op.execute(
        "INSERT INTO partitions (name, parent, from_id, to_id)"
        f" VALUES ('bulk_changes_p0', 'bulk_changes', 0, {IDS_EACH})"
    )


def _id() -> sa.Column[int]:
    return sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False)


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), server_default=sa.text("0"), nullable=False)


def _moment(
    name: str, *, default: str | None = None, nullable: bool | None = None
) -> sa.Column[object]:
    """``nullable``: unless it has a default, where it isn't given."""
    return sa.Column(
        name,
        sa.DateTime(timezone=True),
        server_default=None if default is None else sa.text(default),
        nullable=default is None if nullable is None else nullable,
    )


def _document() -> postgresql.JSONB[object]:
    return postgresql.JSONB(none_as_null=True, astext_type=sa.Text())


def _rewrite(function: str, before: str, after: str) -> None:
    """Replace a part of a function that an earlier migration made."""
    source = op.get_bind().scalar(
        sa.text("SELECT pg_get_functiondef(CAST(:name AS regprocedure))"), {"name": function}
    )
    if before not in source:
        raise RuntimeError(f"{function} is not as the migrations before this one made it")
    op.execute(sa.text(source.replace(before, after).replace(":", r"\:")))
