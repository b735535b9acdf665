"""An index of the imports that run.

An import looks for another one of its list, and read all that the list ever had. Built beside running
code.
"""

from storage.migrations import online

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None

_NAME = "ix_imports_running"


def upgrade() -> None:
    online.create_index(_NAME, "imports", "list_id", where="status = 'running'")


def downgrade() -> None:
    online.drop_index(_NAME)
