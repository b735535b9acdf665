"""An index of three characters at a time, for any part of a name or an address.

Names are in folded case, as filters compare them. Built beside running code.
"""

from storage.migrations import extensions, online

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    extensions.require("pg_trgm")
    online.create_index(
        "ix_subscriptions_words",
        "subscriptions",
        "casefold(name COLLATE pg_unicode_fast) gin_trgm_ops, email gin_trgm_ops",
        method="gin",
    )


def downgrade() -> None:
    # The extension stays: another role may have made it, and another index may need it.
    online.drop_index("ix_subscriptions_words")
