"""A type that an endpoint gets later begins at the moment of that change.

The column is new and has a default, so no row is rewritten. The release before does not know it: it
sends of such a type what happened before too, as it always did.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None


def upgrade() -> None:
    starts = sa.Column(
        "starts", postgresql.JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False
    )
    op.add_column("webhook_endpoints", starts)


def downgrade() -> None:
    op.drop_column("webhook_endpoints", "starts")
