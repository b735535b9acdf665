"""Add columns for API keys that export the rosters of certain lists.

Release 1.1.0 ignores the columns. It can't authenticate a limited API key, because the HMAC of a
limited API key has its own purpose.
"""

from alembic import op

revision = "0140"
down_revision = "0139"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE api_keys ADD COLUMN list_ids bigint[],"
        " ADD COLUMN by_operator boolean NOT NULL DEFAULT false"
    )
    op.execute("ALTER TABLE jobs ADD COLUMN key_id bigint")
