"""In which trace a job was asked for.

The release before writes jobs without it, and does not look at it. Without a value or a default
nothing is rewritten: partitions that are there and those to come have the column with their table.
"""

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0040c"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("traceparent", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("jobs", "traceparent")
