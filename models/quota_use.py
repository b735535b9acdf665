"""Counts that are kept as they change, since to count anew for each quota would take too long.

Triggers on ``attachments``, ``imports``, ``exports``, ``segments``, ``bulk_actions`` and
``webhook_deliveries`` keep ``StorageUse``, so no path that changes these rows can forget it.
"""

from datetime import date, datetime

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import Model


class StorageUse(Model):
    """The bytes that a user has stored: images, unfinished imports, exports, and rows.

    An unfinished import has its file and its chunks. Rows are those that an owner can make in bulk:
    segments, bulk actions, exports, and deliveries of webhooks that are not about a member.
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


class MailCount(Model):
    """How many mails strangers had sent in a window of time, by what the digest stands for.

    It tells nothing about people: the digest is an HMAC, and the length of the window in seconds.
    """

    __tablename__ = "mail_counts"

    digest: Mapped[bytes] = mapped_column(primary_key=True)
    mails: Mapped[int]
    # The first mail after that begins another window.
    ends_at: Mapped[datetime] = mapped_column(index=True)
