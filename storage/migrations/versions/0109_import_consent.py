"""Add the columns imports.status_values, imports.consent_columns and imports.unknown_status."""

from alembic import op

revision = "0109"
down_revision = "0108"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE imports"
        " ADD COLUMN status_values jsonb,"
        " ADD COLUMN consent_columns jsonb,"
        " ADD COLUMN unknown_status bigint DEFAULT '0' NOT NULL"
    )
