"""The origins to which a list's sign-up form may lead back.

The release before knows nothing of the column, which is empty in the rows that it adds.
"""

import sqlalchemy as sa
from alembic import op

revision = "0032b"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "lists",
        sa.Column(
            "redirect_origins", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False
        ),
    )


def downgrade() -> None:
    op.drop_column("lists", "redirect_origins")
