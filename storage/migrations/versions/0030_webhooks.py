"""Webhooks: endpoints with their secrets, deliveries, and the lane that they are sent in.

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock. The release before knows no such lane, and leaves its jobs alone.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

LANES = (
    "lane IN ('request', 'photos', 'money', 'mail', 'webhooks', 'export', 'media', 'bulk',"
    " 'upkeep', 'io')"
)
FORMER_LANES = "lane IN ('request', 'money', 'mail', 'export', 'media', 'bulk', 'upkeep', 'io')"


def upgrade() -> None:
    _replace_lanes(LANES)
    _make_endpoints()
    _make_secrets()
    _make_deliveries()


def downgrade() -> None:
    op.drop_table("webhook_deliveries")
    op.drop_table("webhook_secrets")
    op.drop_table("webhook_endpoints")
    op.execute("DELETE FROM jobs WHERE lane = 'webhooks'")
    _replace_lanes(FORMER_LANES)


def _replace_lanes(lanes: str) -> None:
    # NOT VALID: it holds for every new row, and the old rows, which a narrower rule held for, are
    # not read under the lock.
    op.execute("ALTER TABLE jobs DROP CONSTRAINT ck_jobs_lane_known")
    op.execute(f"ALTER TABLE jobs ADD CONSTRAINT ck_jobs_lane_known CHECK ({lanes}) NOT VALID")


def _id() -> sa.Column[int]:
    return sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False)


def _moment(name: str, *, given: bool = False) -> sa.Column[object]:
    kind = sa.DateTime(timezone=True)
    if given:
        return sa.Column(name, kind, server_default=sa.text("now()"), nullable=False)
    return sa.Column(name, kind, nullable=True)


def _make_endpoints() -> None:
    op.create_table(
        "webhook_endpoints",
        _id(),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("types", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("list_id", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.String(), server_default="active", nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("place", sa.BigInteger(), nullable=False),
        sa.Column("event_id", sa.BigInteger(), nullable=False),
        _moment("due_at"),
        sa.Column("is_held", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        _moment("failing_since"),
        sa.Column("job_id", sa.BigInteger(), nullable=True),
        _moment("created_at", given=True),
        _moment("deleted_at"),
        sa.CheckConstraint(
            "state IN ('active', 'paused', 'ended')", name=op.f("ck_webhook_endpoints_state_known")
        ),
        sa.CheckConstraint(
            "char_length(url) <= 2000", name=op.f("ck_webhook_endpoints_url_bounded")
        ),
        sa.CheckConstraint("cardinality(types) > 0", name=op.f("ck_webhook_endpoints_has_types")),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["users.id"],
            name=op.f("fk_webhook_endpoints_user_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["list_id"], ["lists.id"], name=op.f("fk_webhook_endpoints_list_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_endpoints")),
    )
    op.create_index(
        "ix_webhook_endpoints_user_id_id", "webhook_endpoints", ["user_id", sa.text("id DESC")]
    )
    op.create_index(
        "ix_webhook_endpoints_active",
        "webhook_endpoints",
        ["id"],
        postgresql_where=sa.text("state = 'active'"),
    )
    op.create_index(
        "ix_webhook_endpoints_deleted_at",
        "webhook_endpoints",
        ["deleted_at"],
        postgresql_where=sa.text("deleted_at IS NOT NULL"),
    )
    # Changed with each delivery, in columns that no index has.
    op.execute(
        "ALTER TABLE webhook_endpoints SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05)"
    )


def _make_secrets() -> None:
    op.create_table(
        "webhook_secrets",
        _id(),
        sa.Column("endpoint_id", sa.BigInteger(), nullable=False),
        sa.Column("context", sa.String(), nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary(), nullable=False),
        sa.Column("wrapped_by", sa.String(), nullable=False),
        _moment("created_at", given=True),
        _moment("expires_at"),
        sa.ForeignKeyConstraint(
            ["endpoint_id"],
            ["webhook_endpoints.id"],
            name=op.f("fk_webhook_secrets_endpoint_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_secrets")),
        sa.UniqueConstraint("context", name=op.f("uq_webhook_secrets_context")),
    )
    op.create_index(op.f("ix_webhook_secrets_endpoint_id"), "webhook_secrets", ["endpoint_id"])
    op.create_index(op.f("ix_webhook_secrets_expires_at"), "webhook_secrets", ["expires_at"])


def _make_deliveries() -> None:
    op.create_table(
        "webhook_deliveries",
        _id(),
        sa.Column("endpoint_id", sa.BigInteger(), nullable=False),
        sa.Column("event_id", sa.BigInteger(), nullable=True),
        sa.Column("place", sa.BigInteger(), nullable=True),
        sa.Column("event_type", sa.String(), nullable=False),
        sa.Column("person_id", sa.BigInteger(), nullable=True),
        sa.Column("status", sa.String(), server_default="pending", nullable=False),
        sa.Column("attempts", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("round_attempts", sa.BigInteger(), server_default="0", nullable=False),
        _moment("queued_at", given=True),
        _moment("due_at", given=True),
        _moment("last_attempt_at"),
        _moment("delivered_at"),
        sa.Column("status_code", sa.BigInteger(), nullable=True),
        sa.Column("milliseconds", sa.BigInteger(), nullable=True),
        sa.Column("answer", sa.LargeBinary(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        _moment("created_at", given=True),
        sa.CheckConstraint(
            "status IN ('pending', 'delivered', 'failed')",
            name=op.f("ck_webhook_deliveries_status_known"),
        ),
        sa.CheckConstraint(
            "octet_length(answer) <= 4096", name=op.f("ck_webhook_deliveries_answer_bounded")
        ),
        sa.ForeignKeyConstraint(
            ["endpoint_id"],
            ["webhook_endpoints.id"],
            name=op.f("fk_webhook_deliveries_endpoint_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
    )
    op.create_index(
        "uq_webhook_deliveries_endpoint_id_event_id",
        "webhook_deliveries",
        ["endpoint_id", "event_id"],
        unique=True,
    )
    op.create_index(
        "ix_webhook_deliveries_endpoint_id_id",
        "webhook_deliveries",
        ["endpoint_id", sa.text("id DESC")],
    )
    op.create_index(
        "ix_webhook_deliveries_pending",
        "webhook_deliveries",
        ["endpoint_id", "id"],
        postgresql_where=sa.text("status = 'pending'"),
    )
    op.create_index(
        "ix_webhook_deliveries_person_id",
        "webhook_deliveries",
        ["person_id"],
        postgresql_where=sa.text("answer IS NOT NULL"),
    )
    op.create_index(op.f("ix_webhook_deliveries_created_at"), "webhook_deliveries", ["created_at"])
    op.execute("ALTER TABLE webhook_deliveries SET (autovacuum_vacuum_scale_factor = 0.02)")
