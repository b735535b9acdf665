"""Images that owners upload as attachments, and the queue of stored objects to remove."""

from datetime import datetime
from enum import IntEnum
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, SmallInteger, String, func, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import AccountId
from models.declarative import CreatedAt, Model, SerialId, UpdatedAt
from models.waiting_work import WaitingWork


class AttachmentStatus(IntEnum):
    CREATED = 0
    PROCESSING = 1
    READY = 2
    FAILED = 3


class Attachment(Model):
    __tablename__ = "attachments"
    __table_args__ = (
        CheckConstraint("status BETWEEN 0 AND 3", name="status_known"),
        CheckConstraint(
            "status <> 2 OR "
            "(size > 0 AND checksum ~ '^[0-9a-f]{64}$' AND width > 0 AND height > 0)",
            name="ready_is_whole",
        ),
        CheckConstraint("encrypted = (wrapped_key IS NOT NULL)", name="key_when_encrypted"),
        Index("ix_attachments_user_id_id", "user_id", text("id DESC")),
    )

    id: Mapped[SerialId]
    user_id: Mapped[AccountId] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    # `hash_id` is sorted by bytes, like the keys in the object storage, because
    # `services.attachments.strays` compares the two.
    hash_id: Mapped[str] = mapped_column(String(collation="C"), unique=True)
    status: Mapped[int] = mapped_column(SmallInteger, default=AttachmentStatus.PROCESSING)
    encrypted: Mapped[bool]
    # The data key of the attachment, encrypted with the encryption key named `wrapped_by`.
    wrapped_key: Mapped[bytes | None]
    wrapped_by: Mapped[str | None]

    mime_type: Mapped[str]
    filename: Mapped[str] = mapped_column(String(collation="C"), unique=True)
    size: Mapped[int] = mapped_column(default=0)
    checksum: Mapped[str] = mapped_column(default="")
    width: Mapped[int | None]
    height: Mapped[int | None]
    frames: Mapped[int | None]
    blurhash: Mapped[str | None]

    original_filename: Mapped[str]
    original_mime_type: Mapped[str]
    original_size: Mapped[int]
    original_checksum: Mapped[str]
    # The renditions (smaller versions) of the image, or NULL if the owner requested none. Each
    # rendition has a name, filename, MIME type, size, checksum, width and height. The list of
    # renditions is empty until the converter has finished.
    renditions: Mapped[list[dict[str, Any]] | None] = mapped_column(JSONB(none_as_null=True))
    alt_text: Mapped[str | None]
    title: Mapped[str | None]
    tags: Mapped[list[str]] = mapped_column(default=list, server_default=text("'{}'"))
    error: Mapped[dict[str, Any] | None]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]


class ObjectRemoval(WaitingWork, Model):
    """A transaction that no longer needs a stored object adds a row. A worker removes the object
    from the storage, and then deletes the row.
    """

    __tablename__ = "object_removals"
    __table_args__ = (Index(None, "try_at"),)

    # The key of the object to remove. A key that ends in a slash stands for all objects whose keys
    # begin with it.
    key: Mapped[str]
    # The first attempt to remove an object is delayed if readers may still need it.
    due_at: Mapped[datetime] = mapped_column("try_at", server_default=func.now())
    # A failed try counts as unfinished, because a part of the objects may be gone.
    unfinished_tries: Mapped[int] = mapped_column("tries", default=0, server_default="0")
    last_reason: Mapped[str | None]
    created_at: Mapped[CreatedAt]

    @property
    def is_folder(self) -> bool:
        return self.key.endswith("/")
