"""Deny lists of owners, and the rows of imports that one of them kept out.

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock.
"""

import sqlalchemy as sa
from alembic import op

revision = "0038c"
down_revision = "0038b"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "denied_entries",
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("entry", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_denied_entries_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("user_id", "entry", name=op.f("pk_denied_entries")),
    )
    op.create_index("ix_denied_entries_entry", "denied_entries", ["entry"])
    op.add_column(
        "imports", sa.Column("denied", sa.BigInteger(), server_default="0", nullable=False)
    )


def downgrade() -> None:
    op.drop_column("imports", "denied")
    op.drop_table("denied_entries")
