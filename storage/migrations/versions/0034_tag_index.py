"""An index of the tags of members, for filters: the id of a tag belongs to one list.

Members without tags are not in it. Built beside running code.
"""

from storage.migrations import online

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    online.create_index(
        "ix_subscriptions_tag_ids",
        "subscriptions",
        "tag_ids",
        where="tag_ids <> '{}'",
        method="gin",
    )


def downgrade() -> None:
    online.drop_index("ix_subscriptions_tag_ids")
