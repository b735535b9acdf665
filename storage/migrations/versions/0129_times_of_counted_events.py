"""Add the times of counted events of mailings.

A delivery takes a soft bounce back if the bounce happened earlier. Release 1.1.0 ignores the
column, so that it is NULL in the rows of release 1.1.0.
"""

from alembic import op

revision = "0129"
down_revision = "0128"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE mailing_marks ADD COLUMN occurred_at timestamp with time zone")
