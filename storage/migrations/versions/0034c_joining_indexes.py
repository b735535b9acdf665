"""Indexes of the days on which members joined, for filters.

The day of most is that of their record, so the other index has few rows. Built beside running code.
"""

from storage.migrations import online

revision = "0034c"
down_revision = "0034b"
branch_labels = None
depends_on = None


def upgrade() -> None:
    online.create_index("ix_subscriptions_created_at", "subscriptions", "list_id, created_at")
    online.create_index(
        "ix_subscriptions_joined_at",
        "subscriptions",
        "list_id, joined_at",
        where="joined_at IS NOT NULL",
    )


def downgrade() -> None:
    online.drop_index("ix_subscriptions_joined_at")
    online.drop_index("ix_subscriptions_created_at")
