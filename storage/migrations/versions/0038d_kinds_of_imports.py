"""What the rows of an import are: members, or suppressed addresses.

The release before knows members alone, and makes no import of another kind.
"""

import sqlalchemy as sa
from alembic import op

revision = "0038d"
down_revision = "0038c"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "imports", sa.Column("kind", sa.String(), server_default="members", nullable=False)
    )


def downgrade() -> None:
    op.drop_column("imports", "kind")
