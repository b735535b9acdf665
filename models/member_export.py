from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId, known


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
    # Which members, as a filter is kept for a segment, and of which statuses. NULL: as the kind has
    # it by itself.
    filter: Mapped[dict[str, Any] | None]
    statuses: Mapped[list[str] | None]
    format: Mapped[str] = mapped_column(default="csv", server_default="csv")
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
