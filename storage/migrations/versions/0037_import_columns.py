"""What the columns of an import's file become, and what an undo needs of fields and tags.

The new columns have constants as defaults or none, so no row is rewritten.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for column in (
        sa.Column("create_fields", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("columns", _document(), nullable=True),
        sa.Column("samples", sa.LargeBinary(), nullable=True),
        sa.Column("left_out", sa.BigInteger(), server_default="0", nullable=False),
    ):
        op.add_column("imports", column)
    moment = sa.DateTime(timezone=True)
    added: tuple[sa.Column[object], ...] = (
        sa.Column("fields_after", _document(), nullable=True),
        sa.Column("fields_before", _document(), nullable=True),
        sa.Column("tags_added", sa.ARRAY(sa.BigInteger()), nullable=True),
        sa.Column("joined_at_before", moment, nullable=True),
        sa.Column("joined_at_after", moment, nullable=True),
    )
    for column in added:
        op.add_column("import_changes", column)
    op.add_column(
        "users",
        sa.Column("import_mails", sa.Boolean(), server_default=sa.text("true"), nullable=False),
    )


def downgrade() -> None:
    op.drop_column("users", "import_mails")
    changes = ("joined_at_after", "joined_at_before", "tags_added", "fields_before", "fields_after")
    for name in changes:
        op.drop_column("import_changes", name)
    for name in ("left_out", "samples", "columns", "create_fields"):
        op.drop_column("imports", name)


def _document() -> postgresql.JSONB[object]:
    return postgresql.JSONB(none_as_null=True, astext_type=sa.Text())
