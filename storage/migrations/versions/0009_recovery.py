"""When a session's login was, keys that expire and end with their maker, and what a mail names.

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008b"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    # The sessions of before don't count as logged in lately: their people are asked once more.
    login = sa.Column("logged_in_at", MOMENT, server_default=sa.text("'epoch'"), nullable=False)
    op.add_column("user_sessions", login)
    op.alter_column("user_sessions", "logged_in_at", server_default=sa.text("now()"))
    op.add_column("api_keys", sa.Column("expires_at", MOMENT, nullable=True))
    op.add_column("api_keys", sa.Column("maker_id", sa.BigInteger(), nullable=True))
    op.create_foreign_key(
        op.f("fk_api_keys_maker_id"), "api_keys", "api_keys", ["maker_id"], ["id"]
    )
    op.create_index(op.f("ix_api_keys_maker_id"), "api_keys", ["maker_id"])
    op.add_column("account_mails", sa.Column("detail", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("account_mails", "detail")
    op.drop_column("api_keys", "maker_id")
    op.drop_column("api_keys", "expires_at")
    op.drop_column("user_sessions", "logged_in_at")
