"""Add the column imports.sheet."""

from alembic import op

revision = "0114"
down_revision = "0113"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE imports ADD COLUMN sheet character varying")
