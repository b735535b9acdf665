"""Add the columns exports.bom and imports.encoding.

Release 1.0.0 can still insert rows, because each new column is nullable or has a default.
"""

from alembic import op

revision = "0108"
down_revision = "0107"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE exports ADD COLUMN bom boolean DEFAULT false NOT NULL")
    op.execute("ALTER TABLE imports ADD COLUMN encoding varchar")
