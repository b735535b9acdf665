"""Imports and exports of a list's members."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from sqlalchemy import ForeignKey, Index, SmallInteger, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId, allow_values


class ImportKind(StrEnum):
    """The meaning of a file's rows."""

    MEMBERS = "members"
    # Addresses that must not receive mail, with a reason for each address.
    SUPPRESSIONS = "suppressions"
    # Addresses that must not receive mail, because mail to these addresses bounced.
    BOUNCES = "bounces"
    # Addresses that must not receive mail, because the recipients complained about spam.
    COMPLAINTS = "complaints"


class MemberImport(Model):
    """An import of members into a list, with the options, progress and row counts of the import.

    The row of an import serves as the audit record of the imported members, whose subscriptions
    reference the row.
    """

    __tablename__ = "imports"
    __table_args__ = (
        allow_values("source", ("members", "file")),
        allow_values("kind", ImportKind),
        allow_values("on_existing", ("skip", "update")),
        allow_values("date_order", ("dmy", "mdy")),
        allow_values("status", ("running", "succeeded", "failed", "cancelled")),
        Index("ix_imports_user_id_id", "user_id", text("id DESC")),
        Index("ix_imports_list_id", "list_id"),
        Index("ix_imports_running", "list_id", postgresql_where="status = 'running'"),
        Index("ix_imports_with_files", "created_at", postgresql_where="files_removed_at IS NULL"),
        Index("ix_imports_undo_job_id", "undo_job_id", postgresql_where="undo_job_id IS NOT NULL"),
        # Maintenance uses this index to find and delete old imports that have no remaining members.
        Index(
            "ix_imports_finished_at",
            "finished_at",
            postgresql_where="(added = undone OR dry_run) AND files_removed_at IS NOT NULL",
        ),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    # The source of the imported members, which is `members` for the body of a request and `file`
    # for an uploaded file.
    source: Mapped[str]
    kind: Mapped[str] = mapped_column(default=ImportKind.MEMBERS, server_default=ImportKind.MEMBERS)
    filename: Mapped[str | None]
    # The storage key prefix of the numbered objects that store the file. All objects that store the
    # file have the same size.
    object_prefix: Mapped[str] = mapped_column(unique=True)
    # The data key of the file, encrypted with the encryption key named `wrapped_by`, or NULL after
    # the data key was deleted.
    wrapped_key: Mapped[bytes | None]
    wrapped_by: Mapped[str | None]
    size: Mapped[int]
    mapping: Mapped[dict[str, Any] | None]
    dry_run: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    on_existing: Mapped[str] = mapped_column(default="skip", server_default="skip")
    # True if the import creates a member field for each column of the file whose meaning is
    # unknown.
    create_fields: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    # The order of day and month in ambiguous dates, either dmy or mdy.
    date_order: Mapped[str | None]
    # The character encoding of the file, which the owner set or Pressroom detected.
    encoding: Mapped[str | None]
    # Maps the index of each column in the file to the format of the column's dates and numbers.
    column_forms: Mapped[dict[str, Any] | None]
    # Maps the index of each column with an ambiguous name to true if the column's cells prove that
    # the column contains consent.
    consent_columns: Mapped[dict[str, Any] | None]
    # Maps each consent value in the file to the status that the owner assigned.
    status_values: Mapped[dict[str, Any] | None]
    # True if an operator's command started the import. Quotas don't apply to operators.
    by_operator: Mapped[bool] = mapped_column(default=False, server_default=text("false"))

    status: Mapped[str] = mapped_column(default="running", server_default="running")
    error: Mapped[dict[str, Any] | None]
    # The detected format and the header row of the imported file.
    description: Mapped[dict[str, Any] | None]
    # The target of each column in the file, such as a member field
    # (``services.subscriptions.imports.column_plan``).
    columns: Mapped[dict[str, Any] | None]
    # Encrypted examples of the file's cells and rows for the owner, or NULL after the import's
    # files were removed.
    samples: Mapped[bytes | None] = mapped_column(deferred=True)
    # The number of chunks of the file, or 0 until the whole file has been split into chunks.
    chunks: Mapped[int] = mapped_column(default=0, server_default="0")
    # The total size of the file's chunks in bytes.
    chunk_bytes: Mapped[int] = mapped_column(default=0, server_default="0")
    # True if the whole file has been split into chunks.
    is_split: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    # The number of chunks that have been applied to the list.
    applied: Mapped[int] = mapped_column(default=0, server_default="0")
    # The numbers of the chunks that contain opt-outs. Chunks with opt-outs are applied before all
    # other chunks.
    opt_out_chunks: Mapped[list[int]] = mapped_column(default=list, server_default="{}")
    # True if the chunks of the import are applied in parallel. Only one import per list may apply
    # chunks in parallel.
    side_by_side: Mapped[bool] = mapped_column(default=False, server_default=text("false"))

    # `received` counts all rows of the import, and each column named after a verdict counts the
    # rows with the verdict. Each row of the import has the verdict `added`, `already`, `opted_out`,
    # `invalid`, `duplicate`, `denied` or `over_quota`.
    received: Mapped[int] = mapped_column(default=0, server_default="0")
    added: Mapped[int] = mapped_column(default=0, server_default="0")
    already: Mapped[int] = mapped_column(default=0, server_default="0")
    opted_out: Mapped[int] = mapped_column(default=0, server_default="0")
    invalid: Mapped[int] = mapped_column(default=0, server_default="0")
    duplicate: Mapped[int] = mapped_column(default=0, server_default="0")
    # The number of rows whose address is on a deny list.
    denied: Mapped[int] = mapped_column(default=0, server_default="0")
    # The number of existing members that the import changed. The rows of changed members have the
    # verdict `already`.
    updated: Mapped[int] = mapped_column(default=0, server_default="0")
    # The number of values that the import skipped because the values don't match the types of their
    # fields.
    left_out: Mapped[int] = mapped_column(default=0, server_default="0")
    # The number of rows that are invalid because Pressroom doesn't recognize their consent value.
    unknown_status: Mapped[int] = mapped_column(default=0, server_default="0")
    # The number of rows that were rejected because of the member quota of the owner's plan. After
    # the first row that exceeds the quota, the import adds no new person.
    over_quota: Mapped[int] = mapped_column(default=0, server_default="0")

    # The id of the job that undoes the import. ``undo_job_id`` has no foreign key, because the row
    # of the job may be deleted before the row of the import.
    undo_job_id: Mapped[int | None]
    # The id of the last subscription that the undo of the import restored.
    undo_restored: Mapped[int | None]
    # The id of the last subscription that the undo of the import removed.
    undo_removed: Mapped[int | None]
    # The number of members that the undo of the import removed or restored.
    undone: Mapped[int] = mapped_column(default=0, server_default="0")
    # The number of members that the undo of the import skipped, because the members changed after
    # the import.
    kept: Mapped[int] = mapped_column(default=0, server_default="0")
    undone_at: Mapped[datetime | None]

    files_removed_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]


_ImportId = Annotated[
    int, mapped_column(ForeignKey("imports.id", ondelete="CASCADE"), primary_key=True)
]


class ImportChunk(Model):
    """The result of a chunk that an import has applied to the list.

    The transaction that applies a chunk also stores the chunk's result, so that no chunk is applied
    twice.
    """

    __tablename__ = "import_chunks"

    import_id: Mapped[_ImportId]
    number: Mapped[int] = mapped_column(primary_key=True)
    # The rows of the chunk that were not added to the list, as CSV lines compressed with zlib.
    not_added: Mapped[bytes]


class WaitingChunk(Model):
    """A chunk of an import that waits for a helper job, or that a helper job currently applies.

    If a helper job ends before it has applied its chunk, another helper job can claim the chunk.
    The import fails if one of its chunks has failed too often.
    """

    __tablename__ = "waiting_chunks"

    import_id: Mapped[_ImportId]
    number: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int | None]
    attempt: Mapped[int | None]
    tries: Mapped[int] = mapped_column(SmallInteger, server_default="0")


class NamedMember(Model):
    """A member with several e-mail addresses, one of which occurs in a row of an import.

    If several rows of an import refer to the same member by different addresses, only the first of
    these rows is applied.
    """

    __tablename__ = "named_members"

    import_id: Mapped[_ImportId]
    user_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # True if the file contains an opt-out of the member.
    has_left: Mapped[bool]


class ImportChange(Model):
    """The change that an import made to a subscription, with the values before and after it."""

    __tablename__ = "import_changes"
    # Imports and erasures use this index to find the changes that imports made to a subscription.
    __table_args__ = (Index("ix_import_changes_subscription_id", "subscription_id"),)

    import_id: Mapped[_ImportId]
    subscription_id: Mapped[int] = mapped_column(primary_key=True)
    # True if the import activated the subscription.
    activated: Mapped[bool]
    applied_at: Mapped[datetime]
    status_before: Mapped[str]
    name_before: Mapped[str | None]
    name_after: Mapped[str | None]
    type_before: Mapped[str]
    type_after: Mapped[str]
    paid_expiry_before: Mapped[datetime | None]
    paid_expiry_after: Mapped[datetime | None]
    # Maps the id of each changed field to the member's value after or before the import, or NULL if
    # no field changed. A JSON null means that the member had no value for the field.
    fields_after: Mapped[dict[str, Any] | None]
    fields_before: Mapped[dict[str, Any] | None]
    tags_added: Mapped[list[int] | None]
    joined_at_before: Mapped[datetime | None]
    joined_at_after: Mapped[datetime | None]
    import_id_before: Mapped[int | None]
    imported_at_before: Mapped[datetime | None]
    updated_at_before: Mapped[datetime]


class MemberExport(Model):
    """An export of a list's members to a file.

    The exported file contains either the members for the owner, or the roster for the program that
    sends the list.
    """

    __tablename__ = "exports"
    __table_args__ = (
        allow_values("kind", ("members", "delivery")),
        Index("ix_exports_with_files", "created_at", postgresql_where="files_removed_at IS NULL"),
        Index(
            "ix_exports_created_at", "created_at", postgresql_where="files_removed_at IS NOT NULL"
        ),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"), index=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    kind: Mapped[str]
    # The filter that selects the members to export, in the format of a segment's filter, or NULL
    # for the default filter of the export's kind.
    filter: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    # The statuses of the exported members, or NULL for the default statuses of the export's kind.
    statuses: Mapped[list[str] | None]
    format: Mapped[str] = mapped_column(default="csv", server_default="csv")
    # True if the CSV file begins with a byte-order mark.
    bom: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    # Exports don't use the columns `date_order` and `column_forms`.
    date_order: Mapped[str | None]
    column_forms: Mapped[dict[str, Any] | None]
    # True if an operator's command started the export. Quotas don't apply to operators.
    by_operator: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    # The storage key prefix of the numbered objects that store the file.
    object_prefix: Mapped[str] = mapped_column(unique=True)
    # The data key of the file, encrypted with the encryption key named `wrapped_by`, or NULL after
    # the data key was deleted.
    wrapped_key: Mapped[bytes | None]
    wrapped_by: Mapped[str | None]
    size: Mapped[int | None]
    rows: Mapped[int | None]
    files_removed_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]
