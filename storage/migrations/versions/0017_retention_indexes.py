"""Indexes by which upkeep finds what is past its time, and what refers to rows that it deletes."""

from storage.migrations import online

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

# Name, table, columns, and which rows it has.
INDEXES = (
    # What refers to a row that is deleted.
    ("ix_imports_undo_job_id", "imports", "undo_job_id", "undo_job_id IS NOT NULL"),
    ("ix_credit_entries_order_id", "credit_entries", "order_id", "order_id IS NOT NULL"),
    # What is past its time.
    (
        "ix_imports_finished_at",
        "imports",
        "finished_at",
        "(added = undone OR dry_run) AND files_removed_at IS NOT NULL",
    ),
    ("ix_exports_created_at", "exports", "created_at", "files_removed_at IS NOT NULL"),
    ("ix_user_sessions_ended_at", "user_sessions", "ended_at", "ended_at IS NOT NULL"),
    ("ix_composer_uses_day", "composer_uses", "day", None),
    (
        "ix_subscriptions_requested",
        "subscriptions",
        "coalesce(confirmation_asked_at, created_at)",
        "status = 'pending'",
    ),
)


def upgrade() -> None:
    for name, table, columns, where in INDEXES:
        online.create_index(name, table, columns, where=where)


def downgrade() -> None:
    for name, *_ in INDEXES:
        online.drop_index(name)
