"""Lanes by latency, patience with what fails, removals and periodic work as rows.

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

LANES = "lane IN ('request', 'money', 'mail', 'export', 'media', 'bulk', 'upkeep', 'io')"


def _moment(name: str, *, given: bool = False) -> sa.Column[object]:
    kind = sa.DateTime(timezone=True)
    if given:
        return sa.Column(name, kind, server_default=sa.text("now()"), nullable=False)
    return sa.Column(name, kind, nullable=True)


def upgrade() -> None:
    op.add_column("jobs", _moment("failing_since"))
    op.add_column("jobs", sa.Column("last_reason", sa.String(), nullable=True))
    op.add_column("jobs", sa.Column("waiter", sa.String(), nullable=True))
    op.add_column(
        "jobs", sa.Column("on_behalf_of", sa.BigInteger(), server_default="0", nullable=False)
    )
    # NOT VALID: it holds for every new row, and the old rows, which a narrower rule held for, are
    # not read under the lock.
    op.execute("ALTER TABLE jobs DROP CONSTRAINT ck_jobs_lane_known")
    op.execute(f"ALTER TABLE jobs ADD CONSTRAINT ck_jobs_lane_known CHECK ({LANES}) NOT VALID")
    op.create_table(
        "object_removals",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        _moment("try_at", given=True),
        sa.Column("tries", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("last_reason", sa.String(), nullable=True),
        _moment("created_at", given=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_object_removals")),
    )
    op.create_index("ix_object_removals_try_at", "object_removals", ["try_at"])
    op.create_table(
        "upkeep",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("every_seconds", sa.BigInteger(), nullable=False),
        _moment("due_at", given=True),
        _moment("send_after", given=True),
        sa.Column("attempt", sa.BigInteger(), server_default="0", nullable=False),
        _moment("lease_expires_at"),
        _moment("last_started_at"),
        _moment("last_finished_at"),
        sa.Column("last_result", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("last_error", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_upkeep")),
    )


def downgrade() -> None:
    op.drop_table("upkeep")
    op.drop_table("object_removals")
    op.execute("ALTER TABLE jobs DROP CONSTRAINT ck_jobs_lane_known")
    op.execute(
        "ALTER TABLE jobs ADD CONSTRAINT ck_jobs_lane_known "
        "CHECK (lane IN ('io', 'media', 'bulk')) NOT VALID"
    )
    for column in ("on_behalf_of", "waiter", "last_reason", "failing_since"):
        op.drop_column("jobs", column)
