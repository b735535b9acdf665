"""Add an index for sorting the active members of a list by the time at which they joined."""

from storage.migrations import online

revision = "0141"
down_revision = "0140"
branch_labels = None
depends_on = None


def upgrade() -> None:
    online.create_index(
        "ix_subscriptions_active_joined",
        "subscriptions",
        "list_id, coalesce(joined_at, created_at), id",
        where="status = 'active'",
    )
