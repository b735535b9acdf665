"""Imports know which of their chunks have opt-outs, because these are applied first."""

from alembic import op

revision = "0108"
down_revision = "0107"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE imports ADD COLUMN opt_out_chunks bigint[] DEFAULT '{}' NOT NULL")
