"""Add jobs.slow_attempts and jobs.crashed_attempts, so that a busy machine fails no job.

Release 1.1.0 ignores both columns.
"""

from alembic import op

revision = "0128"
down_revision = "0127"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        ALTER TABLE jobs
        ADD COLUMN crashed_attempts integer[] DEFAULT '{}' NOT NULL,
        ADD COLUMN slow_attempts bigint DEFAULT '0' NOT NULL
    """)
