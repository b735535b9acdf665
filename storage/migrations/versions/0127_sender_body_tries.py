"""Add the columns of sender_bodies that count tries and the reports that were already processed.

Release 1.1.0 ignores these columns, and skips the bodies that a newer worker is processing, because
these aren't due. If it processes the rest of a body, it processes the whole body again. This
changes nothing, because each report takes effect once, but the earlier reports are shown twice.
"""

from alembic import op

revision = "0127"
down_revision = "0126"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
    ALTER TABLE sender_bodies
        ADD COLUMN unfinished_tries smallint DEFAULT '0' NOT NULL,
        ADD COLUMN has_opt_outs_applied boolean DEFAULT false NOT NULL,
        ADD COLUMN applied_reports integer DEFAULT '0' NOT NULL
    """)
