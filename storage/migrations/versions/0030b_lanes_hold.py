"""The rule of lanes holds for the jobs of before too, so that Postgres may rely on it.

Checked beside running code.
"""

from storage.migrations import online

revision = "0030b"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    online.validate_constraint("jobs", "ck_jobs_lane_known")


def downgrade() -> None:
    pass
