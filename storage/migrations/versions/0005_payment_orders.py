"""payment orders

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# From a state to those that may follow it. A payment may come late, so an expired order is not done.
TRANSITIONS = {
    "created": ("pending", "failed"),
    "pending": ("paid", "paid_unclaimed", "failed", "expired", "review"),
    "expired": ("paid", "paid_unclaimed", "review"),
    "paid_unclaimed": ("paid", "refunded", "disputed", "review"),
    "paid": ("refunded", "disputed"),
    "disputed": ("paid", "refunded"),
    "review": ("paid", "paid_unclaimed", "refunded"),
}

# Its states follow the table of transitions, its terms stay, and its facts only grow.
GUARD = """
CREATE FUNCTION guard_payment_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.status <> 'created' THEN
            RAISE EXCEPTION 'an order begins as created, not as %', NEW.status
                USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF NEW.status <> OLD.status AND NOT EXISTS (
        SELECT FROM payment_order_transitions
        WHERE from_status = OLD.status AND to_status = NEW.status
    ) THEN
        RAISE EXCEPTION 'an order never goes from % to %', OLD.status, NEW.status
            USING ERRCODE = 'check_violation';
    END IF;
    IF (NEW.id, NEW.channel, NEW.currency, NEW.amount, NEW.amount_minor, NEW.credit_amount,
            NEW.credits_per_usd, NEW.units_per_usd, NEW.expires_at, NEW.created_at)
        IS DISTINCT FROM (OLD.id, OLD.channel, OLD.currency, OLD.amount, OLD.amount_minor,
            OLD.credit_amount, OLD.credits_per_usd, OLD.units_per_usd, OLD.expires_at,
            OLD.created_at)
    THEN
        RAISE EXCEPTION 'the terms of an order stay as they were'
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF (OLD.user_id IS NOT NULL AND NEW.user_id IS DISTINCT FROM OLD.user_id)
        OR (OLD.claimed_at IS NOT NULL AND NEW.claimed_at IS DISTINCT FROM OLD.claimed_at)
        OR (OLD.session_id IS NOT NULL AND NEW.session_id IS DISTINCT FROM OLD.session_id)
        OR (OLD.payment_id IS NOT NULL AND NEW.payment_id IS DISTINCT FROM OLD.payment_id)
        OR (OLD.paid_at IS NOT NULL AND NEW.paid_at IS DISTINCT FROM OLD.paid_at)
        OR (OLD.mismatch IS NOT NULL AND NEW.mismatch IS DISTINCT FROM OLD.mismatch)
        OR (OLD.resolution IS NOT NULL AND NEW.resolution IS DISTINCT FROM OLD.resolution)
        OR (OLD.disputed_minor IS NOT NULL AND NEW.disputed_minor IS DISTINCT FROM OLD.disputed_minor)
        OR (OLD.dispute IS NOT NULL AND NEW.dispute IS NULL)
        OR (OLD.dispute IN ('won', 'lost') AND NEW.dispute <> OLD.dispute)
        OR (OLD.is_failed AND NOT NEW.is_failed) OR (OLD.is_expired AND NOT NEW.is_expired)
        OR NEW.refunded_minor < OLD.refunded_minor OR NEW.credited < OLD.credited
    THEN
        RAISE EXCEPTION 'what is known of an order only grows'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$
"""

HISTORY = """
CREATE FUNCTION note_payment_order_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO payment_order_changes (order_id, from_status, to_status, via)
        VALUES (NEW.id, NULL, NEW.status, NEW.changed_via);
    ELSIF NEW.status <> OLD.status THEN
        INSERT INTO payment_order_changes (order_id, from_status, to_status, via)
        VALUES (NEW.id, OLD.status, NEW.status, NEW.changed_via);
    END IF;
    RETURN NULL;
END
$$
"""

REFUSE = """
CREATE FUNCTION refuse_payment_history_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'what happened to orders is never changed or deleted'
        USING ERRCODE = 'restrict_violation';
END
$$
"""

# Credits that come in pay the account's debt at once.
GIVE = """
CREATE FUNCTION credit_give(
    p_user_id bigint, p_action text, p_amount numeric, p_source_type text, p_order_id bigint,
    p_rate numeric, p_currency text
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    paid numeric;
BEGIN
    PERFORM credit_append(p_user_id, p_action, p_amount, p_amount, p_source_type,
        p_order_id::text, NULL, p_order_id, p_rate, p_currency);
    SELECT least(debt, p_amount) INTO paid FROM credit_accounts WHERE user_id = p_user_id;
    IF paid > 0 THEN
        PERFORM credit_append(p_user_id, 'debt_payment', paid, -paid, p_source_type,
            p_order_id::text, NULL, p_order_id, p_rate, p_currency);
        UPDATE credit_accounts SET debt = debt - paid WHERE user_id = p_user_id;
    END IF;
END
$$
"""

# Take credits back: what the balance has, and the rest as debt. The rest is an entry too, which
# moves nothing (its delta is 0): a debt is the sum of these less what was paid of it.
TAKE = """
CREATE FUNCTION credit_take(
    p_user_id bigint, p_amount numeric, p_source_type text, p_order_id bigint,
    p_rate numeric, p_currency text
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    part numeric;
BEGIN
    SELECT least(balance, p_amount) INTO STRICT part FROM credit_accounts
    WHERE user_id = p_user_id FOR NO KEY UPDATE;
    IF part > 0 THEN
        PERFORM credit_append(p_user_id, 'topup_refund', part, -part, p_source_type,
            p_order_id::text, NULL, p_order_id, p_rate, p_currency);
    END IF;
    IF part < p_amount THEN
        PERFORM credit_append(p_user_id, 'topup_refund', p_amount - part, 0, p_source_type,
            p_order_id::text, NULL, p_order_id, p_rate, p_currency);
        UPDATE credit_accounts SET debt = debt + p_amount - part WHERE user_id = p_user_id;
    END IF;
END
$$
"""


def upgrade() -> None:
    op.create_table(
        "payment_order_transitions",
        sa.Column("from_status", sa.String(), nullable=False),
        sa.Column("to_status", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint(
            "from_status", "to_status", name=op.f("pk_payment_order_transitions")
        ),
    )
    op.create_table(
        "payment_orders",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("changed_via", sa.String(), nullable=False),
        sa.Column("channel", sa.String(), nullable=False),
        sa.Column("currency", sa.String(), nullable=False),
        sa.Column("amount", sa.Numeric(precision=15, scale=4), nullable=False),
        sa.Column("amount_minor", sa.BigInteger(), nullable=False),
        sa.Column("credit_amount", sa.Numeric(precision=15, scale=4), nullable=False),
        sa.Column("credits_per_usd", sa.Numeric(precision=15, scale=4), nullable=False),
        sa.Column("units_per_usd", sa.Numeric(precision=15, scale=4), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("session_id", sa.String(), nullable=True),
        sa.Column("payment_id", sa.String(), nullable=True),
        sa.Column("payment_url", sa.String(), nullable=True),
        sa.Column("redirect_url", sa.String(), nullable=True),
        sa.Column("claim_token_hmac", sa.LargeBinary(), nullable=True),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("paid_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("is_failed", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("is_expired", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("refunded_minor", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("dispute", sa.String(), nullable=True),
        sa.Column("disputed_minor", sa.BigInteger(), nullable=True),
        sa.Column("mismatch", sa.String(), nullable=True),
        sa.Column("resolution", sa.String(), nullable=True),
        sa.Column(
            "error", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
        sa.Column(
            "credited",
            sa.Numeric(precision=15, scale=4),
            server_default=sa.text("0"),
            nullable=False,
        ),
        sa.Column(
            "taken", sa.Numeric(precision=15, scale=4), server_default=sa.text("0"), nullable=False
        ),
        sa.Column("next_check_at", sa.DateTime(timezone=True), nullable=True),
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
            "dispute IN ('open', 'won', 'lost')", name=op.f("ck_payment_orders_dispute_known")
        ),
        sa.CheckConstraint(
            "resolution IN ('credit', 'refunded')", name=op.f("ck_payment_orders_resolution_known")
        ),
        sa.CheckConstraint(
            "status IN ('created', 'pending', 'paid', 'paid_unclaimed', 'failed', 'expired', 'review', 'disputed', 'refunded')",
            name=op.f("ck_payment_orders_status_known"),
        ),
        sa.CheckConstraint(
            "amount > 0 AND amount_minor > 0", name=op.f("ck_payment_orders_amount_positive")
        ),
        sa.CheckConstraint(
            "credit_amount > 0", name=op.f("ck_payment_orders_credit_amount_positive")
        ),
        sa.CheckConstraint(
            "credited IN (0, credit_amount)", name=op.f("ck_payment_orders_credited_once")
        ),
        sa.CheckConstraint(
            "credits_per_usd > 0 AND units_per_usd > 0",
            name=op.f("ck_payment_orders_rates_positive"),
        ),
        sa.CheckConstraint(
            "octet_length(claim_token_hmac) = 32", name=op.f("ck_payment_orders_hmac_length")
        ),
        sa.CheckConstraint(
            "refunded_minor >= 0", name=op.f("ck_payment_orders_refunded_not_negative")
        ),
        sa.CheckConstraint(
            "taken BETWEEN 0 AND credited", name=op.f("ck_payment_orders_taken_of_credited")
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_payment_orders_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_payment_orders")),
        sa.UniqueConstraint("claim_token_hmac", name=op.f("uq_payment_orders_claim_token_hmac")),
    )
    op.create_index(
        "ix_payment_orders_channel_payment_id",
        "payment_orders",
        ["channel", "payment_id"],
        unique=False,
    )
    op.create_index(
        "ix_payment_orders_channel_session_id",
        "payment_orders",
        ["channel", "session_id"],
        unique=False,
    )
    op.create_index(
        "ix_payment_orders_next_check_at",
        "payment_orders",
        ["next_check_at"],
        unique=False,
        postgresql_where=sa.text("next_check_at IS NOT NULL"),
    )
    op.create_index(
        "ix_payment_orders_status_created_at",
        "payment_orders",
        ["status", "created_at"],
        unique=False,
    )
    op.create_index("ix_payment_orders_user_id", "payment_orders", ["user_id"], unique=False)
    op.create_table(
        "payment_order_changes",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("order_id", sa.BigInteger(), nullable=False),
        sa.Column("from_status", sa.String(), nullable=True),
        sa.Column("to_status", sa.String(), nullable=False),
        sa.Column("via", sa.String(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["order_id"], ["payment_orders.id"], name=op.f("fk_payment_order_changes_order_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_payment_order_changes")),
    )
    op.create_index(
        "ix_payment_order_changes_order_id_id",
        "payment_order_changes",
        ["order_id", "id"],
        unique=False,
    )
    op.create_table(
        "payment_events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("channel", sa.String(), nullable=False),
        sa.Column("event_id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("order_id", sa.BigInteger(), nullable=False),
        sa.Column("facts", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("happened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["order_id"], ["payment_orders.id"], name=op.f("fk_payment_events_order_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_payment_events")),
        sa.UniqueConstraint("channel", "event_id", name=op.f("uq_payment_events_channel_event_id")),
    )
    op.create_index("ix_payment_events_order_id", "payment_events", ["order_id"], unique=False)
    # No entry has named an order so far: there is nothing to scan, and new ones are held to it.
    op.create_foreign_key(
        op.f("fk_credit_entries_order_id"),
        "credit_entries",
        "payment_orders",
        ["order_id"],
        ["id"],
        postgresql_not_valid=True,
    )
    transitions = sa.table(
        "payment_order_transitions",
        sa.column("from_status", sa.String()),
        sa.column("to_status", sa.String()),
    )
    op.bulk_insert(
        transitions,
        [
            {"from_status": before, "to_status": after}
            for before, allowed in TRANSITIONS.items()
            for after in allowed
        ],
    )
    for statement in (GUARD, HISTORY, REFUSE, GIVE, TAKE):
        op.execute(statement)
    op.execute(
        "CREATE TRIGGER payment_orders_guarded BEFORE INSERT OR UPDATE ON payment_orders "
        "FOR EACH ROW EXECUTE FUNCTION guard_payment_order()"
    )
    op.execute(
        "CREATE TRIGGER payment_orders_noted AFTER INSERT OR UPDATE ON payment_orders "
        "FOR EACH ROW EXECUTE FUNCTION note_payment_order_change()"
    )
    op.execute(
        "CREATE TRIGGER payment_orders_stay BEFORE DELETE OR TRUNCATE ON payment_orders "
        "FOR EACH STATEMENT EXECUTE FUNCTION refuse_payment_history_changes()"
    )
    for table in ("payment_order_changes", "payment_events", "payment_order_transitions"):
        op.execute(
            f"CREATE TRIGGER {table}_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION refuse_payment_history_changes()"
        )
