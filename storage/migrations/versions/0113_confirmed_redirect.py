"""Add the column lists.confirmed_redirect.

Release 1.0.0 ignores the column, and shows its own page after a confirmation.
"""

from alembic import op

revision = "0113"
down_revision = "0112"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE lists ADD COLUMN confirmed_redirect varchar")
