"""The index of the days on which members joined, by their status too.

A filter means the active members, and a list may have as many who never confirmed. Built beside
running code, which is served by the new index as by the old one.
"""

from storage.migrations import online

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None

_NAME = "ix_subscriptions_status_created_at"
_BEFORE = "ix_subscriptions_created_at"


def upgrade() -> None:
    online.create_index(_NAME, "subscriptions", "list_id, status, created_at")
    online.drop_index(_BEFORE)


def downgrade() -> None:
    online.create_index(_BEFORE, "subscriptions", "list_id, created_at")
    online.drop_index(_NAME)
