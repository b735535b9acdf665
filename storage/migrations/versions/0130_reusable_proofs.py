"""Add spent_proofs.event_hash, so that a signature of Mailgun serves for only one event.

Release 1.1.0 ignores the column.
"""

from alembic import op

revision = "0130"
down_revision = "0129"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE spent_proofs ADD COLUMN event_hash bytea")
