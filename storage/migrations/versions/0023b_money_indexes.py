"""An index for what purges orders, and a rule for refunds that failed.

Built beside running code, so apart from the migration before it.
"""

from storage.migrations import online

revision = "0023b"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    online.create_index(
        "ix_payment_orders_abandoned",
        "payment_orders",
        "created_at",
        where="user_id IS NULL AND paid_at IS NULL AND mismatch IS NULL AND next_check_at IS NULL",
    )
    online.add_constraint(
        "payment_orders",
        "ck_payment_orders_refunds_failed_not_negative",
        "CHECK (refunds_failed_minor >= 0)",
    )


def downgrade() -> None:
    online.drop_index("ix_payment_orders_abandoned")
