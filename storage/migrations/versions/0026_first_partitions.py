"""Rules by which the rows of three tables belong to their first partitions.

Beside running code; the partitions come after it.
"""

from storage.migrations import partitioning

revision = "0026"
down_revision = "0024b"
branch_labels = None
depends_on = None


def upgrade() -> None:
    partitioning.bound("jobs", "id", "jobs_id_seq", ids_each=10**9)
    partitioning.bound("subscription_events", "id", "subscription_events_id_seq", ids_each=10**10)
    partitioning.bound("import_changes", "import_id", "imports_id_seq", ids_each=10**7)
