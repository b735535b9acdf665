"""The table ``subscription_events`` becomes its own first partition."""

from storage.migrations import partitioning

revision = "0026d"
down_revision = "0026c"
branch_labels = None
depends_on = None


def upgrade() -> None:
    partitioning.partition("subscription_events", "id")


def downgrade() -> None:
    raise NotImplementedError(
        "the rows would be copied under a lock; the release before works with partitions too"
    )
