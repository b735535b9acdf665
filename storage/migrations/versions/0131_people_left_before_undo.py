"""Add imports.undo_left, the number of people who had left before the undo of an import.

Release 1.1.0 ignores the column, and counts these people as kept. The column is NULL if release
1.1.0 began or made the undo.
"""

from alembic import op

revision = "0131"
down_revision = "0130"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE imports ADD COLUMN undo_left bigint")
