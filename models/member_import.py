from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId


class MemberImport(Model):
    """Many members brought to a list at once: what was asked, how far it is and what came of it.

    It is also the one audit record of all its rows: a member's own record points here.
    """

    __tablename__ = "imports"
    __table_args__ = (
        CheckConstraint("source IN ('members', 'file')", name="source_known"),
        CheckConstraint("on_existing IN ('skip', 'update')", name="on_existing_known"),
        CheckConstraint(
            "status IN ('running', 'succeeded', 'failed', 'cancelled')", name="status_known"
        ),
        Index("ix_imports_user_id_id", "user_id", text("id DESC")),
        Index("ix_imports_list_id", "list_id"),
        Index(
            "ix_imports_with_files", "created_at", postgresql_where=text("files_removed_at IS NULL")
        ),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    # Members of one request, or a file of them.
    source: Mapped[str]
    filename: Mapped[str | None]
    # Where its bytes are: numbered objects under this prefix, in pieces of one size.
    object_prefix: Mapped[str] = mapped_column(unique=True)
    size: Mapped[int]
    mapping: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    dry_run: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    on_existing: Mapped[str] = mapped_column(default="skip", server_default="skip")

    status: Mapped[str] = mapped_column(default="running", server_default="running")
    error: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    # What the file was taken for, and its header.
    description: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    # Numbered pieces of rows: how many there are, whether those are all, how many are applied.
    chunks: Mapped[int] = mapped_column(default=0, server_default="0")
    is_split: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    applied: Mapped[int] = mapped_column(default=0, server_default="0")

    # Every row has one of five verdicts; `updated` is how many of the already ones were changed.
    received: Mapped[int] = mapped_column(default=0, server_default="0")
    added: Mapped[int] = mapped_column(default=0, server_default="0")
    already: Mapped[int] = mapped_column(default=0, server_default="0")
    opted_out: Mapped[int] = mapped_column(default=0, server_default="0")
    invalid: Mapped[int] = mapped_column(default=0, server_default="0")
    duplicate: Mapped[int] = mapped_column(default=0, server_default="0")
    updated: Mapped[int] = mapped_column(default=0, server_default="0")

    # Taking it back: the job that does, and what came of it.
    undo_job_id: Mapped[int | None] = mapped_column(ForeignKey("jobs.id", ondelete="SET NULL"))
    undone: Mapped[int] = mapped_column(default=0, server_default="0")
    kept: Mapped[int] = mapped_column(default=0, server_default="0")
    undone_at: Mapped[datetime | None]

    files_removed_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]


class ImportChunk(Model):
    """The verdicts on one chunk, written in the transaction that applied it: it happens once."""

    __tablename__ = "import_chunks"

    import_id: Mapped[int] = mapped_column(
        ForeignKey("imports.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # CSV lines of the rows that were not added, compressed by zlib.
    not_added: Mapped[bytes]


class ImportChange(Model):
    """What an import changed of a record that was there before: how it was, and what it became."""

    __tablename__ = "import_changes"
    # For later imports of the same member, and for whoever erases a person.
    __table_args__ = (Index("ix_import_changes_subscription_id", "subscription_id"),)

    import_id: Mapped[int] = mapped_column(
        ForeignKey("imports.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    subscription_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # Whether it was made active; otherwise only its name and tier changed.
    activated: Mapped[bool]
    applied_at: Mapped[datetime]
    status_before: Mapped[str]
    name_before: Mapped[str | None]
    name_after: Mapped[str | None]
    type_before: Mapped[str]
    type_after: Mapped[str]
    paid_expiry_before: Mapped[datetime | None]
    paid_expiry_after: Mapped[datetime | None]
    import_id_before: Mapped[int | None]
    imported_at_before: Mapped[datetime | None]
    updated_at_before: Mapped[datetime]
