"""Add ix_sign_up_views_day, which retention uses to find the oldest page views."""

from storage.migrations import online

revision = "0121"
down_revision = "0119"
branch_labels = None
depends_on = None


def upgrade() -> None:
    online.create_index("ix_sign_up_views_day", "sign_up_views", "day")
