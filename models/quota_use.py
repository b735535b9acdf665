"""What of the quotas is counted when it changes, since to count it anew would take too long.

Triggers on ``attachments``, ``imports`` and ``exports`` keep ``StorageUse``, so no path that
changes these rows can forget it.
"""

from datetime import date

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import Model


class StorageUse(Model):
    """The bytes that a user has in the object storage: images, unfinished imports, exports.

    An unfinished import has its file and its chunks.
    """

    __tablename__ = "storage_uses"

    user_id: Mapped[int] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True
    )
    bytes: Mapped[int]


class ComposerUse(Model):
    """How often a user called the composer on one day, in UTC; only the newest day is kept."""

    __tablename__ = "composer_uses"

    user_id: Mapped[int] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True
    )
    day: Mapped[date] = mapped_column(index=True)
    calls: Mapped[int]
