"""Add the columns exports.bom and imports.encoding.

The new columns have a default or are nullable, so that release 1.0.0 can still insert rows.
"""

from alembic import op

revision = "0108"
down_revision = "0107"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE exports ADD COLUMN bom boolean DEFAULT false NOT NULL")
    op.execute("ALTER TABLE imports ADD COLUMN encoding varchar")
