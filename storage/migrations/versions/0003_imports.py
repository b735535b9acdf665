"""imports

Safe under running code: add before you use, stop using before you remove, and never rewrite or
scan a large table under a lock.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "exports",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("list_id", sa.BigInteger(), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("object_prefix", sa.String(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("files_removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("kind IN ('members', 'delivery')", name=op.f("ck_exports_kind_known")),
        sa.ForeignKeyConstraint(["list_id"], ["lists.id"], name=op.f("fk_exports_list_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_exports_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_exports")),
        sa.UniqueConstraint("object_prefix", name=op.f("uq_exports_object_prefix")),
    )
    op.create_index(op.f("ix_exports_list_id"), "exports", ["list_id"], unique=False)
    op.create_index(
        "ix_exports_with_files",
        "exports",
        ["created_at"],
        unique=False,
        postgresql_where=sa.text("files_removed_at IS NULL"),
    )
    op.create_table(
        "imports",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("list_id", sa.BigInteger(), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("filename", sa.String(), nullable=True),
        sa.Column("object_prefix", sa.String(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column(
            "mapping", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
        sa.Column("dry_run", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("on_existing", sa.String(), server_default="skip", nullable=False),
        sa.Column("status", sa.String(), server_default="running", nullable=False),
        sa.Column(
            "error", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
        sa.Column(
            "description", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True
        ),
        sa.Column("chunks", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("is_split", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("applied", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("received", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("added", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("already", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("opted_out", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("invalid", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("duplicate", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("updated", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("undo_job_id", sa.BigInteger(), nullable=True),
        sa.Column("undone", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("kept", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("undone_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("files_removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "on_existing IN ('skip', 'update')", name=op.f("ck_imports_on_existing_known")
        ),
        sa.CheckConstraint("source IN ('members', 'file')", name=op.f("ck_imports_source_known")),
        sa.CheckConstraint(
            "status IN ('running', 'succeeded', 'failed', 'cancelled')",
            name=op.f("ck_imports_status_known"),
        ),
        sa.ForeignKeyConstraint(["list_id"], ["lists.id"], name=op.f("fk_imports_list_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_imports_user_id")),
        sa.ForeignKeyConstraint(
            ["undo_job_id"],
            ["jobs.id"],
            name=op.f("fk_imports_undo_job_id"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_imports")),
        sa.UniqueConstraint("object_prefix", name=op.f("uq_imports_object_prefix")),
    )
    op.create_index("ix_imports_list_id", "imports", ["list_id"], unique=False)
    op.create_index(
        "ix_imports_user_id_id", "imports", ["user_id", sa.literal_column("id DESC")], unique=False
    )
    op.create_index(
        "ix_imports_with_files",
        "imports",
        ["created_at"],
        unique=False,
        postgresql_where=sa.text("files_removed_at IS NULL"),
    )
    op.create_table(
        "import_changes",
        sa.Column("import_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("subscription_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("activated", sa.Boolean(), nullable=False),
        sa.Column("applied_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("status_before", sa.String(), nullable=False),
        sa.Column("name_before", sa.String(), nullable=True),
        sa.Column("name_after", sa.String(), nullable=True),
        sa.Column("type_before", sa.String(), nullable=False),
        sa.Column("type_after", sa.String(), nullable=False),
        sa.Column("paid_expiry_before", sa.DateTime(timezone=True), nullable=True),
        sa.Column("paid_expiry_after", sa.DateTime(timezone=True), nullable=True),
        sa.Column("import_id_before", sa.BigInteger(), nullable=True),
        sa.Column("imported_at_before", sa.DateTime(timezone=True), nullable=True),
        sa.Column("updated_at_before", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["import_id"],
            ["imports.id"],
            name=op.f("fk_import_changes_import_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("import_id", "subscription_id", name=op.f("pk_import_changes")),
    )
    op.create_index(
        "ix_import_changes_subscription_id", "import_changes", ["subscription_id"], unique=False
    )
    op.create_table(
        "import_chunks",
        sa.Column("import_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("not_added", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["import_id"],
            ["imports.id"],
            name=op.f("fk_import_chunks_import_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("import_id", "number", name=op.f("pk_import_chunks")),
    )
    op.add_column("subscriptions", sa.Column("import_id", sa.BigInteger(), nullable=True))
    op.add_column(
        "subscriptions", sa.Column("imported_at", sa.DateTime(timezone=True), nullable=True)
    )
    op.create_index(
        "ix_subscriptions_import_id",
        "subscriptions",
        ["import_id", "id"],
        unique=False,
        postgresql_where=sa.text("import_id IS NOT NULL"),
    )
    op.create_foreign_key(
        op.f("fk_subscriptions_import_id"), "subscriptions", "imports", ["import_id"], ["id"]
    )
