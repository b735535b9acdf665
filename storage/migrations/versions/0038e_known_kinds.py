"""The kinds of imports are a closed set.

Checked beside running code, so apart from the migration before it.
"""

from alembic import op

from storage.migrations import online

revision = "0038e"
down_revision = "0038d"
branch_labels = None
depends_on = None

NAME = "ck_imports_kind_known"


def upgrade() -> None:
    kinds = "'members', 'suppressions', 'bounces', 'complaints'"
    online.add_constraint("imports", NAME, f"CHECK (kind IN ({kinds}))")


def downgrade() -> None:
    op.drop_constraint(op.f(NAME), "imports")
