"""Counters for quotas and limits, because counting the rows for each check would take too long.

Database triggers update ``storage_uses``, so that no code path can forget an update. The triggers
belong to ``attachments``, ``imports``, ``exports``, ``segments``, ``bulk_actions`` and
``webhook_deliveries``.
"""

from datetime import date, datetime

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import Model


class StorageUse(Model):
    """The number of bytes that a user stores in files and rows.

    The sum includes images, exports, and the files and chunks of unfinished imports. The sum also
    includes the rows that an owner can create in large numbers: segments, bulk actions, exports,
    and webhook deliveries that aren't about a member.
    """

    __tablename__ = "storage_uses"

    user_id: Mapped[int] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True
    )
    bytes: Mapped[int]


class ComposerUse(Model):
    """The number of a user's composer calls on the user's latest day (UTC)."""

    __tablename__ = "composer_uses"

    user_id: Mapped[int] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True
    )
    day: Mapped[date] = mapped_column(index=True)
    calls: Mapped[int]


class MailCount(Model):
    """The number of mails that strangers caused during a time window, per subject of a limit.

    A subject is for example a mailbox, a domain or a network. The row contains no personal data,
    because the digest is an HMAC of the subject and the length of the window.
    """

    __tablename__ = "mail_counts"

    digest: Mapped[bytes] = mapped_column(primary_key=True)
    mails: Mapped[int]
    # The end of the time window. The first later mail starts a new window.
    ends_at: Mapped[datetime] = mapped_column(index=True)
