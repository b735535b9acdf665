"""Imports and exports of a list's members."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from sqlalchemy import ForeignKey, Index, SmallInteger, text
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import AccountId, PersonId
from models.declarative import CreatedAt, Model, SerialId, allow_values


class ImportKind(StrEnum):
    """The kind of rows in an imported file."""

    MEMBERS = "members"
    # Addresses that must not receive mail, with a reason for each address.
    SUPPRESSIONS = "suppressions"
    # Addresses whose mail bounced.
    BOUNCES = "bounces"
    # Addresses whose owners complained about spam.
    COMPLAINTS = "complaints"


class MemberImport(Model):
    """Subscriptions of imported members reference the row of their import as an audit record."""

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
        # An index for finding old imports without members, which maintenance deletes.
        Index(
            "ix_imports_finished_at",
            "finished_at",
            postgresql_where="(added = undone OR dry_run) AND files_removed_at IS NOT NULL",
        ),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    user_id: Mapped[AccountId] = mapped_column(ForeignKey("users.id"))
    # The origin of the rows: `members` for the body of a request, or `file` for an uploaded file.
    source: Mapped[str]
    kind: Mapped[str] = mapped_column(default=ImportKind.MEMBERS, server_default=ImportKind.MEMBERS)
    filename: Mapped[str | None]
    # The uploaded file is stored in several objects, whose storage keys start with
    # ``object_prefix``. All objects that store the file have the same size.
    object_prefix: Mapped[str] = mapped_column(unique=True)
    # The data key of the file, encrypted with the encryption key named `wrapped_by`, or NULL after
    # the data key was deleted.
    wrapped_key: Mapped[bytes | None]
    wrapped_by: Mapped[str | None]
    size: Mapped[int]
    mapping: Mapped[dict[str, Any] | None]
    dry_run: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    on_existing: Mapped[str] = mapped_column(default="skip", server_default="skip")
    # True if the import creates a member field for each unknown column of the file.
    create_fields: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    # The order of day and month in ambiguous dates, either dmy or mdy.
    date_order: Mapped[str | None]
    # The character encoding of the file, which the owner set or Pressroom detected.
    encoding: Mapped[str | None]
    # The name of the sheet that the owner chose in a workbook.
    sheet: Mapped[str | None]
    # Maps the index of each column to the format of its dates and numbers.
    column_forms: Mapped[dict[str, Any] | None]
    # Maps the index of each column with an ambiguous name to true if its cells prove that it
    # contains consent.
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
    # (``services.subscriptions.imports.columns.column_plan``).
    columns: Mapped[dict[str, Any] | None]
    # Encrypted sample rows and cells that the owner sees, or NULL after the file was removed.
    samples: Mapped[bytes | None] = mapped_column(deferred=True)
    # The number of chunks of the file, or 0 until the file has been split.
    chunks: Mapped[int] = mapped_column(default=0, server_default="0")
    # The total size of the file's chunks in bytes.
    chunk_bytes: Mapped[int] = mapped_column(default=0, server_default="0")
    # True if the whole file has been split into chunks.
    is_split: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    # The number of chunks whose rows have been imported into the list.
    applied: Mapped[int] = mapped_column(default=0, server_default="0")
    # Chunks that contain opt-outs are imported before all other chunks. This column lists the
    # numbers that identify the chunks with opt-outs.
    opt_out_chunks: Mapped[list[int]] = mapped_column(default=list, server_default="{}")
    # True if several jobs import the file's chunks in parallel. At any time, at most one import per
    # list may use parallel jobs.
    side_by_side: Mapped[bool] = mapped_column(default=False, server_default=text("false"))

    # `received` counts all rows of the import. Each column with the name of a verdict counts the
    # rows with this verdict. Each row of the import has the verdict `added`, `already`,
    # `opted_out`, `invalid`, `duplicate`, `denied` or `over_quota`.
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
    # The number of values that the import skipped because they don't match the type of their field.
    left_out: Mapped[int] = mapped_column(default=0, server_default="0")
    # The number of rows that are invalid because of an unknown consent value.
    unknown_status: Mapped[int] = mapped_column(default=0, server_default="0")
    # The number of rows that exceed the owner's member quota. After the first row that exceeds the
    # quota, the import adds no new person.
    over_quota: Mapped[int] = mapped_column(default=0, server_default="0")

    # The id of the job that undoes the import. ``undo_job_id`` has no foreign key, because the job
    # may be deleted before the import.
    undo_job_id: Mapped[int | None]
    # The id of the last subscription that the undo restored.
    undo_restored: Mapped[int | None]
    # The id of the last subscription that the undo removed.
    undo_removed: Mapped[int | None]
    # The number of members that the undo removed or restored.
    undone: Mapped[int] = mapped_column(default=0, server_default="0")
    # The number of members that the undo skipped, because they changed after the import.
    kept: Mapped[int] = mapped_column(default=0, server_default="0")
    # The number of imported people who were no longer members when the import was undone. NULL
    # before the undo, and if release 1.1.0 began the undo.
    undo_left: Mapped[int | None]
    undone_at: Mapped[datetime | None]

    files_removed_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]
    # When the owner dismissed the warning that the import failed.
    dismissed_at: Mapped[datetime | None]


_ImportId = Annotated[
    int, mapped_column(ForeignKey("imports.id", ondelete="CASCADE"), primary_key=True)
]


class ImportChunk(Model):
    """The transaction that imports a chunk adds this row, so that no chunk is imported twice."""

    __tablename__ = "import_chunks"

    import_id: Mapped[_ImportId]
    number: Mapped[int] = mapped_column(primary_key=True)
    # The chunk's rows that were not added to the list, as CSV compressed with zlib.
    not_added: Mapped[bytes]
    # The rows and values of an API request that the result of its job names. NULL for a file, and
    # for a chunk that release 1.1.0 has imported.
    report: Mapped[dict[str, Any] | None]


class WaitingChunk(Model):
    """If a helper job ends before it has imported its chunk, another helper job can claim the
    chunk. The import fails if a chunk has failed too often.
    """

    __tablename__ = "waiting_chunks"

    import_id: Mapped[_ImportId]
    number: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[int | None]
    attempt: Mapped[int | None]
    tries: Mapped[int] = mapped_column(SmallInteger, server_default="0")


class NamedMember(Model):
    """A member with several e-mail addresses, one of which occurs in an import.

    If rows with different addresses refer to the same member, only the first row is imported.
    """

    __tablename__ = "named_members"

    import_id: Mapped[_ImportId]
    user_id: Mapped[PersonId] = mapped_column(primary_key=True, autoincrement=False)
    # True if the file contains an opt-out of the member.
    has_left: Mapped[bool]


class ImportChange(Model):
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
    # Maps the ids of changed fields to the member's new or old values, or NULL if no field changed.
    # A JSON null means that the member had no value for the field.
    fields_after: Mapped[dict[str, Any] | None]
    fields_before: Mapped[dict[str, Any] | None]
    tags_added: Mapped[list[int] | None]
    joined_at_before: Mapped[datetime | None]
    joined_at_after: Mapped[datetime | None]
    import_id_before: Mapped[int | None]
    imported_at_before: Mapped[datetime | None]
    updated_at_before: Mapped[datetime]


class MemberExport(Model):
    """Contains either the members, for the owner, or the roster, for the program that sends the
    list.
    """

    __tablename__ = "exports"
    __table_args__ = (
        allow_values("kind", ("members", "delivery")),
        # Before a tag is deleted, this index finds the unfinished exports that use the tag.
        Index("ix_exports_unfinished", "list_id", postgresql_where="finished_at IS NULL"),
        Index("ix_exports_with_files", "created_at", postgresql_where="files_removed_at IS NULL"),
        Index(
            "ix_exports_created_at", "created_at", postgresql_where="files_removed_at IS NOT NULL"
        ),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"), index=True)
    user_id: Mapped[AccountId] = mapped_column(ForeignKey("users.id"), index=True)
    kind: Mapped[str]
    # The filter for the members to export, in the format of a segment's filter, or NULL for the
    # default.
    filter: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    # The statuses of the exported members, or NULL for the default.
    statuses: Mapped[list[str] | None]
    format: Mapped[str] = mapped_column(default="csv", server_default="csv")
    # True if the CSV file begins with a byte-order mark.
    bom: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    # The owner's label for the mailing whose recipients the exported file contains.
    label: Mapped[str | None]
    # Exports don't use the columns `date_order` and `column_forms`.
    date_order: Mapped[str | None]
    column_forms: Mapped[dict[str, Any] | None]
    # True if an operator's command started the export. Quotas don't apply to operators.
    by_operator: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    # The exported file is stored in several objects, whose storage keys start with
    # ``object_prefix``.
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
