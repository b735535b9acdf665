"""closed checkouts, refunds that failed, checkpoints of the ledger

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock.
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0021"
branch_labels = None
depends_on = None

# Each fact that only grows, as a condition that refuses its change: before, and since.
_FACTS_BEFORE = "OR NEW.refunded_minor < OLD.refunded_minor OR NEW.credited < OLD.credited"
_FACTS = f"""{_FACTS_BEFORE}
        OR NEW.refunds_failed_minor < OLD.refunds_failed_minor
        OR (OLD.closed_at IS NOT NULL AND NEW.closed_at IS DISTINCT FROM OLD.closed_at)"""

_RETENTION_BEFORE, _RETENTION = "interval '30 days'", "interval '90 days'"


def upgrade() -> None:
    op.add_column(
        "payment_orders",
        sa.Column(
            "refunds_failed_minor", sa.BigInteger(), server_default=sa.text("0"), nullable=False
        ),
    )
    op.add_column("payment_orders", sa.Column("closed_at", sa.DateTime(timezone=True)))
    _rewrite("guard_payment_order()", _FACTS_BEFORE, _FACTS)
    _rewrite("is_abandoned_order(bigint)", _RETENTION_BEFORE, _RETENTION)
    # A refund that failed leaves the money with the seller, so the order counts as paid again.
    op.execute(
        "INSERT INTO payment_order_transitions"
        " VALUES ('refunded', 'paid'), ('refunded', 'paid_unclaimed')"
    )
    op.create_table(
        "credit_checkpoints",
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("balance", sa.Numeric(precision=15, scale=4), nullable=False),
        sa.Column("debt", sa.Numeric(precision=15, scale=4), nullable=False),
        sa.Column("is_suspect", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("signature", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_credit_checkpoints_user_id")
        ),
        sa.PrimaryKeyConstraint("user_id", name=op.f("pk_credit_checkpoints")),
    )
    op.create_table(
        "payment_order_checkpoints",
        sa.Column("change_id", sa.BigInteger(), nullable=False),
        sa.Column("signature", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("change_id", name=op.f("pk_payment_order_checkpoints")),
    )


def downgrade() -> None:
    op.drop_table("payment_order_checkpoints")
    op.drop_table("credit_checkpoints")
    op.execute("ALTER TABLE payment_order_transitions DISABLE TRIGGER USER")
    op.execute("DELETE FROM payment_order_transitions WHERE from_status = 'refunded'")
    op.execute("ALTER TABLE payment_order_transitions ENABLE TRIGGER USER")
    _rewrite("is_abandoned_order(bigint)", _RETENTION, _RETENTION_BEFORE)
    _rewrite("guard_payment_order()", _FACTS, _FACTS_BEFORE)
    op.drop_column("payment_orders", "closed_at")
    op.drop_column("payment_orders", "refunds_failed_minor")


def _rewrite(function: str, before: str, after: str) -> None:
    """Replace a part of a function that an earlier migration made."""
    source = op.get_bind().scalar(
        sa.text("SELECT pg_get_functiondef(CAST(:name AS regprocedure))"), {"name": function}
    )
    if before not in source:
        raise RuntimeError(f"{function} is not as the migrations before this one made it")
    op.execute(source.replace(before, after))
