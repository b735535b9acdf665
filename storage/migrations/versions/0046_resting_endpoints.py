"""Endpoints rest whose receivers keep calls waiting.

The columns are new and have defaults, so no row is rewritten, and the release before goes on
writing rows without them.
"""

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None

_TABLE = "webhook_endpoints"


def upgrade() -> None:
    silences = sa.Column("silences", sa.BigInteger(), server_default="0", nullable=False)
    op.add_column(_TABLE, silences)
    op.add_column(_TABLE, sa.Column("rests_until", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column(_TABLE, "rests_until")
    op.drop_column(_TABLE, "silences")
