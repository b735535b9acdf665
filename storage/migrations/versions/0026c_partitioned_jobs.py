"""The table ``jobs`` becomes its own first partition."""

from storage.migrations import partitioning

revision = "0026c"
down_revision = "0026b"
branch_labels = None
depends_on = None


def upgrade() -> None:
    partitioning.partition("jobs", "id")
