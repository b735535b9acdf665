"""An index of the queued jobs that were not sent, by the time at which they are due.

It is built beside running code, so nothing else is here.
"""

from storage.migrations import online

revision = "0019"
down_revision = "0017b"
branch_labels = None
depends_on = None


def upgrade() -> None:
    online.create_index(
        "ix_jobs_lane_send_after_unsent",
        "jobs",
        "lane, send_after",
        where="status = 'queued' AND sends = 0",
    )


def downgrade() -> None:
    online.drop_index("ix_jobs_lane_send_after_unsent")
