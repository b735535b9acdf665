"""Add the label with which programs request deliveries, so that one label makes one mailing per day.

Release 1.1.0 creates no deliveries, and leaves the label of its rosters NULL.
"""

from alembic import op

revision = "0147"
down_revision = "0146"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE mailings ADD COLUMN requested_label character varying")
    op.execute("""
    CREATE UNIQUE INDEX ix_mailings_deliveries
        ON mailings (list_id, requested_label, ((created_at AT TIME ZONE 'UTC')::date))
        WHERE requested_label IS NOT NULL
    """)
