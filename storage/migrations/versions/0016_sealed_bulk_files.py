"""The wrapped keys of the files of imports and exports.

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0014"
branch_labels = None
depends_on = None

TABLES = ("imports", "exports")


def upgrade() -> None:
    # A row without a key has its file in plain, as the release before wrote it.
    for table in TABLES:
        op.add_column(table, sa.Column("wrapped_key", sa.LargeBinary(), nullable=True))
        op.add_column(table, sa.Column("wrapped_by", sa.String(), nullable=True))


def downgrade() -> None:
    for table in TABLES:
        op.drop_column(table, "wrapped_by")
        op.drop_column(table, "wrapped_key")
