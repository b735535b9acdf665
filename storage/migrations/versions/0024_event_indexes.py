"""Indexes by which an erasure goes through a person's events, built beside running code."""

from storage.migrations import online

revision = "0024"
down_revision = "0023b"
branch_labels = None
depends_on = None


def upgrade() -> None:
    online.create_index("ix_subscription_events_user_id_id", "subscription_events", "user_id, id")
    online.create_index(
        "ix_subscription_events_actor_id_id",
        "subscription_events",
        "actor_id, id",
        where="actor_id IS NOT NULL AND (ip IS NOT NULL OR request_id IS NOT NULL)",
    )
    # The first of them serves what this one did.
    online.drop_index("ix_subscription_events_user_id")


def downgrade() -> None:
    online.create_index("ix_subscription_events_user_id", "subscription_events", "user_id")
    online.drop_index("ix_subscription_events_actor_id_id")
    online.drop_index("ix_subscription_events_user_id_id")
