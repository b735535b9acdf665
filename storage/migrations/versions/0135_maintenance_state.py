"""Add maintenance.state, so that the operator gets one mail per change of the failing checks.

Release 1.1.0 ignores the column.
"""

from alembic import op

revision = "0135"
down_revision = "0132"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE maintenance ADD COLUMN state jsonb")
