"""Add the column imports.opt_out_chunks.

An import applies the chunks that contain opt-outs before all other chunks.
"""

from alembic import op

revision = "0110"
down_revision = "0109"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE imports ADD COLUMN opt_out_chunks bigint[] DEFAULT '{}' NOT NULL")
