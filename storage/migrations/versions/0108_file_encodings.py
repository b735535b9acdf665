"""Add exports.bom and imports.encoding.

Both are added with a default or as NULL, so that release 1.0.0 goes on inserting rows.
"""

from alembic import op

revision = "0108"
down_revision = "0107"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE exports ADD COLUMN bom boolean DEFAULT false NOT NULL")
    op.execute("ALTER TABLE imports ADD COLUMN encoding varchar")
