"""An index for the pages of a user's orders, newest first. It serves all that the one by the user
alone served.

Built beside running code.
"""

from storage.migrations import online

revision = "0032"
down_revision = "0030b"
branch_labels = None
depends_on = None


def upgrade() -> None:
    online.create_index(
        "ix_payment_orders_user_id_created_at",
        "payment_orders",
        "user_id, created_at DESC, id DESC",
    )
    online.drop_index("ix_payment_orders_user_id")


def downgrade() -> None:
    online.create_index("ix_payment_orders_user_id", "payment_orders", "user_id")
    online.drop_index("ix_payment_orders_user_id_created_at")
