"""Add the mailing by which a person left, to the history and to opt-outs.

Release 1.1.0 ignores the columns, so that they are NULL in the rows of release 1.1.0.
"""

from alembic import op

revision = "0136"
down_revision = "0135"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE subscription_events ADD COLUMN mailing_id bigint")
    op.execute("ALTER TABLE opt_outs ADD COLUMN mailing_id bigint")
