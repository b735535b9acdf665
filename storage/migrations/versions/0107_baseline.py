"""The whole database of release 1.0.0: tables, functions, triggers and first rows.

The SQL of this migration is in a file next to this module, and must never change. Each later change
to the database is a separate migration.
"""

from pathlib import Path

from alembic import op

from storage.migrations import extensions

revision = "0107"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("pg_trgm", "btree_gin"):
        extensions.require(name)
    statements = Path(__file__).with_suffix(".sql").read_text()
    op.get_bind().exec_driver_sql(statements, execution_options={"no_parameters": True})
