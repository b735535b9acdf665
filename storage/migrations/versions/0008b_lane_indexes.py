"""Indexes by which each lane's jobs are found, built beside running code."""

from storage.migrations import online

revision = "0008b"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    online.create_index(
        "ix_jobs_lane_send_after",
        "jobs",
        "lane, send_after",
        where="status = 'queued' AND sends > 0",
    )
    online.create_index(
        "ix_jobs_lane_on_behalf_of_sends_send_after",
        "jobs",
        "lane, on_behalf_of, sends, send_after",
        where="status = 'queued'",
    )
    online.drop_index("ix_jobs_send_after")


def downgrade() -> None:
    online.create_index("ix_jobs_send_after", "jobs", "send_after", where="status = 'queued'")
    online.drop_index("ix_jobs_lane_on_behalf_of_sends_send_after")
    online.drop_index("ix_jobs_lane_send_after")
