"""subscriptions

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


# Whatever statement changes subscriptions, one row or a million, notes the difference that it makes
# to each list's active subscribers in rows of its own: nobody waits for a counter.
COUNT_SUBSCRIBERS = """
CREATE FUNCTION count_subscribers() RETURNS trigger LANGUAGE plpgsql AS $$
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
TRANSITION_TABLES = {
    "INSERT": "NEW TABLE AS after_it",
    "UPDATE": "OLD TABLE AS before_it NEW TABLE AS after_it",
    "DELETE": "OLD TABLE AS before_it",
}


def upgrade() -> None:
    op.create_table(
        "subscriber_deltas",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("list_id", sa.BigInteger(), nullable=False),
        sa.Column("active", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_subscriber_deltas")),
    )
    op.create_index(
        "ix_subscriber_deltas_list_id",
        "subscriber_deltas",
        ["list_id"],
        unique=False,
        postgresql_include=["active"],
    )
    op.create_table(
        "mailed_links",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("list_id", sa.BigInteger(), nullable=True),
        sa.Column("secret_hmac", sa.LargeBinary(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "octet_length(secret_hmac) = 32", name=op.f("ck_mailed_links_hmac_length")
        ),
        sa.ForeignKeyConstraint(["list_id"], ["lists.id"], name=op.f("fk_mailed_links_list_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_mailed_links_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mailed_links")),
        sa.UniqueConstraint("secret_hmac", name=op.f("uq_mailed_links_secret_hmac")),
    )
    op.create_index("ix_mailed_links_expires_at", "mailed_links", ["expires_at"], unique=False)
    op.create_index(
        "ix_mailed_links_user_id_list_id", "mailed_links", ["user_id", "list_id"], unique=False
    )
    op.create_table(
        "opt_outs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("list_id", sa.BigInteger(), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=True),
        sa.Column("address_hmac", sa.LargeBinary(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint("kind IN ('list', 'email')", name=op.f("ck_opt_outs_kind_known")),
        sa.CheckConstraint("octet_length(address_hmac) = 32", name=op.f("ck_opt_outs_hmac_length")),
        sa.ForeignKeyConstraint(["list_id"], ["lists.id"], name=op.f("fk_opt_outs_list_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_opt_outs_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_opt_outs")),
        sa.UniqueConstraint(
            "list_id", "address_hmac", "kind", name=op.f("uq_opt_outs_list_id_address_hmac_kind")
        ),
        sa.UniqueConstraint(
            "list_id", "user_id", "kind", name=op.f("uq_opt_outs_list_id_user_id_kind")
        ),
    )
    op.create_index(op.f("ix_opt_outs_user_id"), "opt_outs", ["user_id"], unique=False)
    op.create_table(
        "subscriber_counts",
        sa.Column("list_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("active", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["list_id"], ["lists.id"], name=op.f("fk_subscriber_counts_list_id")
        ),
        sa.PrimaryKeyConstraint("list_id", name=op.f("pk_subscriber_counts")),
    )
    op.create_table(
        "subscription_events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("list_id", sa.BigInteger(), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("actor_id", sa.BigInteger(), nullable=True),
        sa.Column("via", sa.String(), nullable=False),
        sa.Column("status_before", sa.String(), nullable=True),
        sa.Column("status_after", sa.String(), nullable=True),
        sa.Column("email_enabled_before", sa.Boolean(), nullable=True),
        sa.Column("email_enabled_after", sa.Boolean(), nullable=True),
        sa.Column("ip", sa.String(), nullable=True),
        sa.Column("request_id", sa.String(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["list_id"], ["lists.id"], name=op.f("fk_subscription_events_list_id")
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_subscription_events_user_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_subscription_events")),
    )
    op.create_index(
        "ix_subscription_events_member",
        "subscription_events",
        ["list_id", "user_id", sa.literal_column("id DESC")],
        unique=False,
    )
    op.create_index(
        "ix_subscription_events_user_id", "subscription_events", ["user_id"], unique=False
    )
    op.create_table(
        "subscriptions",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("list_id", sa.BigInteger(), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("type", sa.String(), server_default="free", nullable=False),
        sa.Column("paid_expiry", sa.DateTime(timezone=True), nullable=True),
        sa.Column("email_enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("name", sa.String(), nullable=True),
        sa.Column("email", sa.String(), nullable=True),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("confirmation_asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "status IN ('pending', 'active', 'unsubscribed', 'removed')",
            name=op.f("ck_subscriptions_status_known"),
        ),
        sa.CheckConstraint(
            "type IN ('free', 'silver', 'gold')", name=op.f("ck_subscriptions_type_known")
        ),
        sa.ForeignKeyConstraint(["list_id"], ["lists.id"], name=op.f("fk_subscriptions_list_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_subscriptions_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_subscriptions")),
        sa.UniqueConstraint("user_id", "list_id", name=op.f("uq_subscriptions_user_id_list_id")),
    )
    op.create_index(
        "ix_subscriptions_active",
        "subscriptions",
        ["list_id", "id"],
        unique=False,
        postgresql_where=sa.text("status = 'active'"),
    )
    op.create_index(
        "ix_subscriptions_active_email",
        "subscriptions",
        ["list_id", "email"],
        unique=False,
        postgresql_include=["id"],
        postgresql_ops={"email": "text_pattern_ops"},
        postgresql_where=sa.text("status = 'active'"),
    )
    op.create_index(
        "ix_subscriptions_active_premium",
        "subscriptions",
        ["list_id", "id"],
        unique=False,
        postgresql_include=["type", "paid_expiry"],
        postgresql_where=sa.text("status = 'active' AND type <> 'free'"),
    )
    op.create_index(
        "ix_subscriptions_inactive",
        "subscriptions",
        ["list_id", "status", "id"],
        unique=False,
        postgresql_include=["email"],
        postgresql_where=sa.text("status <> 'active'"),
    )
    op.add_column("lists", sa.Column("tagline", sa.String(), nullable=True))
    op.add_column("lists", sa.Column("description", sa.String(), nullable=True))
    op.add_column("lists", sa.Column("avatar_image_url", sa.String(), nullable=True))
    op.add_column("lists", sa.Column("favicon_image_url", sa.String(), nullable=True))
    op.add_column(
        "lists",
        sa.Column(
            "email_channel_enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False
        ),
    )
    op.add_column(
        "lists",
        sa.Column(
            "challenge_enabled", sa.Boolean(), server_default=sa.text("false"), nullable=False
        ),
    )
    op.add_column("lists", sa.Column("challenge_provider", sa.String(), nullable=True))
    op.add_column(
        "lists",
        sa.Column(
            "confirm_required", sa.Boolean(), server_default=sa.text("false"), nullable=False
        ),
    )
    op.drop_index(op.f("ix_lists_user_id"), table_name="lists")
    op.create_index(
        "ix_lists_user_id_created_at",
        "lists",
        ["user_id", sa.literal_column("created_at DESC"), sa.literal_column("id DESC")],
        unique=False,
    )
    op.add_column("users", sa.Column("erased_at", sa.DateTime(timezone=True), nullable=True))
    op.create_check_constraint(
        "provider_known",
        "lists",
        "challenge_provider IN ('turnstile', 'hcaptcha', 'recaptcha')",
    )
    op.create_check_constraint(
        "challenge_has_provider", "lists", "NOT challenge_enabled OR challenge_provider IS NOT NULL"
    )
    op.execute(COUNT_SUBSCRIBERS)
    for event, tables in TRANSITION_TABLES.items():
        op.execute(
            f"CREATE TRIGGER subscriptions_count_{event.lower()} AFTER {event} ON subscriptions "
            f"REFERENCING {tables} FOR EACH STATEMENT EXECUTE FUNCTION count_subscribers()"
        )
