"""The look of a list, the language of a subscriber, and mails that lead to preferences.

All columns are new and may be NULL, so no row is rewritten, and the release before goes on writing
rows without them.
"""

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None

_LOOK = (
    *("colour", "logo_hash_id", "sender_name"),
    *("sign_up_text", "thanks_text", "confirmation_text"),
)


def upgrade() -> None:
    for name in _LOOK:
        op.add_column("lists", sa.Column(name, sa.String(), nullable=True))
    op.add_column("subscriptions", sa.Column("language", sa.String(), nullable=True))
    op.add_column("subscription_events", sa.Column("reason", sa.String(), nullable=True))
    op.add_column("account_mails", sa.Column("list_id", sa.BigInteger(), nullable=True))
    op.add_column("account_mails", sa.Column("language", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("account_mails", "language")
    op.drop_column("account_mails", "list_id")
    op.drop_column("subscription_events", "reason")
    op.drop_column("subscriptions", "language")
    for name in reversed(_LOOK):
        op.drop_column("lists", name)
