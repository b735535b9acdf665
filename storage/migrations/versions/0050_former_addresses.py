"""The addresses that people had, by which lists know them.

Filled with what the lists' records tell of accounts that moved before, and of records that wait to
be merged: those are few. The release before goes on without the table.
"""

import sqlalchemy as sa
from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None

_TABLE = "former_addresses"
_FILL = """
INSERT INTO former_addresses (email, user_id)
SELECT DISTINCT s.email, s.user_id
FROM (
    SELECT user_id FROM moved_accounts
    UNION SELECT merged_id FROM account_merges WHERE finished_at IS NULL AND merged_id IS NOT NULL
) AS m
JOIN users AS u ON u.id = m.user_id AND u.erased_at IS NULL
JOIN subscriptions AS s ON s.user_id = m.user_id AND s.email <> u.email
"""


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("email", sa.String(), nullable=False),
        sa.Column("user_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column(
            "left_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_former_addresses_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("email", "user_id", name=op.f("pk_former_addresses")),
    )
    op.create_index(op.f("ix_former_addresses_user_id"), _TABLE, ["user_id"])
    op.execute(_FILL)


def downgrade() -> None:
    op.drop_table(_TABLE)
