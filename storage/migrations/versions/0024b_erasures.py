"""Erasures as jobs, and how far the undo of an import has come.

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0024b"
down_revision = "0024"
branch_labels = None
depends_on = None

_UNDO = ("undo_restored", "undo_removed")


def upgrade() -> None:
    op.create_table(
        "erasures",
        sa.Column("user_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("address_hmac", sa.LargeBinary(), nullable=True),
        sa.Column("stage", sa.String(), nullable=True),
        sa.Column("bookmark", sa.BigInteger(), nullable=True),
        sa.Column(
            "counts", JSONB(none_as_null=True), server_default=sa.text("'{}'"), nullable=False
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("octet_length(address_hmac) = 32", name=op.f("ck_erasures_hmac_length")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_erasures_user_id")),
        sa.PrimaryKeyConstraint("user_id", name=op.f("pk_erasures")),
    )
    op.create_index(
        "ix_erasures_address_hmac",
        "erasures",
        ["address_hmac"],
        postgresql_where="address_hmac IS NOT NULL",
    )
    for name in _UNDO:
        op.add_column("imports", sa.Column(name, sa.BigInteger(), nullable=True))


def downgrade() -> None:
    for name in _UNDO:
        op.drop_column("imports", name)
    op.drop_table("erasures")
