"""Add ix_bounces_soft, so that filters find soft bounces without reading the hard bounces."""

from storage.migrations import online

revision = "0124"
down_revision = "0123"
branch_labels = None
depends_on = None


def upgrade() -> None:
    online.create_index(
        "ix_bounces_soft",
        "bounces",
        "list_id, user_id",
        where="ended_at IS NULL AND lifted_at IS NULL AND NOT is_hard",
    )
