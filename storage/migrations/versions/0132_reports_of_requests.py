"""Add import_chunks.report, which names the skipped rows and ignored values of an API request.

Release 1.1.0 ignores the column, so that it is NULL in the chunks of release 1.1.0.
"""

from alembic import op

revision = "0132"
down_revision = "0131"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE import_chunks ADD COLUMN report jsonb")
