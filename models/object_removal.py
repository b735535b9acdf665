"""An object, or a folder of objects, that must go from the object storage.

The row is written in the transaction that forgets the object. A worker removes the object, and
tries until it is gone; only then the row goes.
"""

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId


class ObjectRemoval(Model):
    __tablename__ = "object_removals"
    __table_args__ = (Index("ix_object_removals_try_at", "try_at"),)

    id: Mapped[SerialId]
    # The object's key. With a final slash: every object whose key begins so.
    key: Mapped[str]
    # Not before this time. A later time keeps an object for a while that may still be needed.
    try_at: Mapped[CreatedAt]
    tries: Mapped[int] = mapped_column(default=0, server_default="0")
    last_reason: Mapped[str | None]
    created_at: Mapped[CreatedAt]

    @property
    def is_folder(self) -> bool:
        return self.key.endswith("/")
