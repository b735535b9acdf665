"""An index of the fields of members, for filters: one for fields of all types.

It has the whole document in folded case, so that it finds a text without regard to case. Members
without fields are not in it. Built beside running code.
"""

from storage.migrations import online

revision = "0034b"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    online.create_index(
        "ix_subscriptions_fields",
        "subscriptions",
        "(casefold(fields::text COLLATE pg_unicode_fast)::jsonb) jsonb_path_ops",
        where="fields <> '{}'",
        method="gin",
    )


def downgrade() -> None:
    online.drop_index("ix_subscriptions_fields")
