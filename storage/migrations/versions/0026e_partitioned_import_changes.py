"""The table ``import_changes`` becomes its own first partition."""

from storage.migrations import partitioning

revision = "0026e"
down_revision = "0026d"
branch_labels = None
depends_on = None


def upgrade() -> None:
    partitioning.partition("import_changes", "import_id")
