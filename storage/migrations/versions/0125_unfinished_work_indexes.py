"""Add indexes of running bulk actions and unfinished exports, so that deleting a tag stays fast.

A list can have very many finished bulk actions and exports, but few unfinished ones.
"""

from storage.migrations import online

revision = "0125"
down_revision = "0124"
branch_labels = None
depends_on = None


def upgrade() -> None:
    online.create_index(
        "ix_bulk_actions_running", "bulk_actions", "list_id", where="status = 'running'"
    )
    online.create_index("ix_exports_unfinished", "exports", "list_id", where="finished_at IS NULL")
