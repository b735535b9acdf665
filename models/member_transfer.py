from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from sqlalchemy import ForeignKey, Index, SmallInteger, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId, known


class ImportKind(StrEnum):
    """The meaning of a file's rows."""

    MEMBERS = "members"
    # Addresses that get no mail: for the reasons that the rows name, or for one.
    SUPPRESSIONS = "suppressions"
    BOUNCES = "bounces"
    COMPLAINTS = "complaints"


class MemberImport(Model):
    """An import of members into a list: its options, its progress and its counts.

    It is also the audit record of all its rows: subscriptions point here.
    """

    __tablename__ = "imports"
    __table_args__ = (
        known("source", ("members", "file")),
        known("kind", ImportKind),
        known("on_existing", ("skip", "update")),
        known("date_order", ("dmy", "mdy")),
        known("status", ("running", "succeeded", "failed", "cancelled")),
        Index("ix_imports_user_id_id", "user_id", text("id DESC")),
        Index("ix_imports_list_id", "list_id"),
        Index("ix_imports_running", "list_id", postgresql_where="status = 'running'"),
        Index("ix_imports_with_files", "created_at", postgresql_where="files_removed_at IS NULL"),
        Index("ix_imports_undo_job_id", "undo_job_id", postgresql_where="undo_job_id IS NOT NULL"),
        # Finds imports by which no member came, which are kept for a time.
        Index(
            "ix_imports_finished_at",
            "finished_at",
            postgresql_where="(added = undone OR dry_run) AND files_removed_at IS NOT NULL",
        ),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    # `members`: the body of one request. `file`: an uploaded file.
    source: Mapped[str]
    kind: Mapped[str] = mapped_column(default=ImportKind.MEMBERS, server_default=ImportKind.MEMBERS)
    filename: Mapped[str | None]
    # The bytes are numbered objects of one size under this prefix.
    object_prefix: Mapped[str] = mapped_column(unique=True)
    # The file's own data key, wrapped under the one of ENCRYPTION_KEYS named `wrapped_by`; it
    # is null once the key is removed.
    wrapped_key: Mapped[bytes | None]
    wrapped_by: Mapped[str | None]
    size: Mapped[int]
    mapping: Mapped[dict[str, Any] | None]
    dry_run: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    on_existing: Mapped[str] = mapped_column(default="skip", server_default="skip")
    # True if columns that nothing else is known of become fields of the owner.
    create_fields: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    # dmy or mdy, for columns of dates that don't show it.
    date_order: Mapped[str | None]
    # The encoding that the owner set, or that was detected in the whole file.
    encoding: Mapped[str | None]
    # How columns write dates and numbers, by their indexes, as the whole file shows it.
    column_forms: Mapped[dict[str, Any] | None]
    # For columns whose names don't reveal whether they state consent. Maps the index of such a
    # column to true if its cells prove that the column states consent.
    consent_columns: Mapped[dict[str, Any] | None]
    # Maps each consent value in the file to the status that the owner assigned.
    status_values: Mapped[dict[str, Any] | None]
    # Made by a command of the operator, which no quota bounds.
    by_operator: Mapped[bool] = mapped_column(default=False, server_default=text("false"))

    status: Mapped[str] = mapped_column(default="running", server_default="running")
    error: Mapped[dict[str, Any] | None]
    # The detected format of the file, and its header.
    description: Mapped[dict[str, Any] | None]
    # The targets of its columns (``services.subscriptions.imports.column_plan``).
    columns: Mapped[dict[str, Any] | None]
    # Cells and rows that the owner is shown, sealed; gone with the files.
    samples: Mapped[bytes | None] = mapped_column(deferred=True)
    # The number of chunks of rows, their total size, whether the whole file has been split into
    # chunks, and the number of applied chunks. ``chunks`` is 0 until the whole file has been split.
    chunks: Mapped[int] = mapped_column(default=0, server_default="0")
    chunk_bytes: Mapped[int] = mapped_column(default=0, server_default="0")
    is_split: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    applied: Mapped[int] = mapped_column(default=0, server_default="0")
    # The numbers of the chunks with opt-outs. These chunks are applied before all others.
    opt_out_chunks: Mapped[list[int]] = mapped_column(default=list, server_default="{}")
    # Its chunks are applied at the same time, as those of one import into a list may be.
    side_by_side: Mapped[bool] = mapped_column(default=False, server_default=text("false"))

    # Every row has one of seven verdicts, the last being `over_quota`. `updated` counts the rows of
    # `already` that were changed, `denied` those that a deny list keeps out.
    received: Mapped[int] = mapped_column(default=0, server_default="0")
    added: Mapped[int] = mapped_column(default=0, server_default="0")
    already: Mapped[int] = mapped_column(default=0, server_default="0")
    opted_out: Mapped[int] = mapped_column(default=0, server_default="0")
    invalid: Mapped[int] = mapped_column(default=0, server_default="0")
    duplicate: Mapped[int] = mapped_column(default=0, server_default="0")
    denied: Mapped[int] = mapped_column(default=0, server_default="0")
    updated: Mapped[int] = mapped_column(default=0, server_default="0")
    # Values of rows that were taken over without them, since they don't fit their fields.
    left_out: Mapped[int] = mapped_column(default=0, server_default="0")
    # Rows that are invalid because their consent value isn't recognised.
    unknown_status: Mapped[int] = mapped_column(default=0, server_default="0")
    # Rows that the plan had no room for: once there is one, the import adds no person.
    over_quota: Mapped[int] = mapped_column(default=0, server_default="0")

    # The undo: its job, which may be past its time, and its counts.
    undo_job_id: Mapped[int | None]
    # How far the undo has come: the last subscription that it restored, and the last one that it
    # removed. NULL: none.
    undo_restored: Mapped[int | None]
    undo_removed: Mapped[int | None]
    undone: Mapped[int] = mapped_column(default=0, server_default="0")
    kept: Mapped[int] = mapped_column(default=0, server_default="0")
    undone_at: Mapped[datetime | None]

    files_removed_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]


_ImportId = Annotated[
    int, mapped_column(ForeignKey("imports.id", ondelete="CASCADE"), primary_key=True)
]


class ImportChunk(Model):
    """The verdicts on one chunk, in the transaction that applied it: a chunk is applied once."""

    __tablename__ = "import_chunks"

    import_id: Mapped[_ImportId]
    number: Mapped[int] = mapped_column(primary_key=True)
    # The rows that were not added, as CSV lines compressed by zlib.
    not_added: Mapped[bytes]


class WaitingChunk(Model):
    """A stored chunk that the helpers of an import are to apply, and which of them has taken it.

    A helper that does not run any more, or runs in another attempt, has lost it. A chunk that was
    tried often enough waits for the end of its import, which it fails.
    """

    __tablename__ = "waiting_chunks"

    import_id: Mapped[_ImportId]
    number: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int | None]
    attempt: Mapped[int | None]
    tries: Mapped[int] = mapped_column(SmallInteger, server_default="0")


class NamedMember(Model):
    """A member of several addresses whom an import named: what names them again is a duplicate."""

    __tablename__ = "named_members"

    import_id: Mapped[_ImportId]
    user_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # The file says that they get no mail.
    has_left: Mapped[bool]


class ImportChange(Model):
    """The change of an existing subscription by an import: the values before and after."""

    __tablename__ = "import_changes"
    # Found by later imports of the same member, and by the erasure of a person.
    __table_args__ = (Index("ix_import_changes_subscription_id", "subscription_id"),)

    import_id: Mapped[_ImportId]
    subscription_id: Mapped[int] = mapped_column(primary_key=True)
    # True if the import made it active; otherwise it changed only name and tier.
    activated: Mapped[bool]
    applied_at: Mapped[datetime]
    status_before: Mapped[str]
    name_before: Mapped[str | None]
    name_after: Mapped[str | None]
    type_before: Mapped[str]
    type_after: Mapped[str]
    paid_expiry_before: Mapped[datetime | None]
    paid_expiry_after: Mapped[datetime | None]
    # The changed fields, by their ids: the values after, and before, where null stands for none.
    # NULL: it changed none.
    fields_after: Mapped[dict[str, Any] | None]
    fields_before: Mapped[dict[str, Any] | None]
    tags_added: Mapped[list[int] | None]
    joined_at_before: Mapped[datetime | None]
    joined_at_after: Mapped[datetime | None]
    import_id_before: Mapped[int | None]
    imported_at_before: Mapped[datetime | None]
    updated_at_before: Mapped[datetime]


class MemberExport(Model):
    """A file of a list: its members for the owner, or the roster for the program that mails it."""

    __tablename__ = "exports"
    __table_args__ = (
        known("kind", ("members", "delivery")),
        Index("ix_exports_with_files", "created_at", postgresql_where="files_removed_at IS NULL"),
        Index(
            "ix_exports_created_at", "created_at", postgresql_where="files_removed_at IS NOT NULL"
        ),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"), index=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    kind: Mapped[str]
    # The filter, stored as that of a segment, and the statuses that choose members. NULL: as the
    # kind has it by itself.
    filter: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    statuses: Mapped[list[str] | None]
    format: Mapped[str] = mapped_column(default="csv", server_default="csv")
    # True if the CSV file begins with a byte-order mark.
    bom: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    # dmy or mdy, for columns of dates that don't show it.
    date_order: Mapped[str | None]
    # How columns write dates and numbers, by their indexes, as the whole file shows it.
    column_forms: Mapped[dict[str, Any] | None]
    # Made by a command of the operator, which no quota bounds.
    by_operator: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    # The file is numbered objects under this prefix.
    object_prefix: Mapped[str] = mapped_column(unique=True)
    # The file's own data key, wrapped under the one of ENCRYPTION_KEYS named `wrapped_by`; it
    # is null once the key is removed.
    wrapped_key: Mapped[bytes | None]
    wrapped_by: Mapped[str | None]
    size: Mapped[int | None]
    rows: Mapped[int | None]
    files_removed_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]
