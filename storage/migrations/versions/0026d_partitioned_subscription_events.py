"""The table ``subscription_events`` becomes its own first partition."""

from storage.migrations import partitioning

revision = "0026d"
down_revision = "0026c"
branch_labels = None
depends_on = None


def upgrade() -> None:
    partitioning.partition("subscription_events", "id")
