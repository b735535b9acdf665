"""How many mails strangers had sent, and reports of lists that mail people unasked.

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012b"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "mail_counts",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("mails", sa.BigInteger(), nullable=False),
        sa.Column("ends_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_mail_counts")),
    )
    op.create_index(op.f("ix_mail_counts_ends_at"), "mail_counts", ["ends_at"])
    op.create_table(
        "list_reports",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("list_id", sa.BigInteger(), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", MOMENT, server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["list_id"], ["lists.id"], name=op.f("fk_list_reports_list_id")),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_list_reports_user_id"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_list_reports")),
        sa.UniqueConstraint("list_id", "user_id", name=op.f("uq_list_reports_list_id_user_id")),
    )
    op.create_index(op.f("ix_list_reports_user_id"), "list_reports", ["user_id"])
    op.create_index(op.f("ix_list_reports_created_at"), "list_reports", ["created_at"])
    # Rows of the release before have neither, and are sent as it sends them.
    op.add_column("account_mails", sa.Column("source_digest", sa.LargeBinary(), nullable=True))
    op.add_column("account_mails", sa.Column("admitted_at", MOMENT, nullable=True))


def downgrade() -> None:
    op.drop_column("account_mails", "admitted_at")
    op.drop_column("account_mails", "source_digest")
    op.drop_table("list_reports")
    op.drop_table("mail_counts")
