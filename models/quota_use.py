"""Stores counters for quotas and rate limits, because counting rows at each check would be slow.

Database triggers update ``storage_uses``, so that no code path can forget an update. The triggers
that update ``storage_uses`` belong to the tables ``attachments``, ``imports``, ``exports``,
``segments``, ``bulk_actions`` and ``webhook_deliveries``.
"""

from datetime import date, datetime

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import Model


class StorageUse(Model):
    """The number of bytes that a user stores in files and rows.

    Stored images, exports, and the files and chunks of unfinished imports count towards ``bytes``.
    The rows of segments, bulk actions and exports count towards ``bytes``, and so do webhook
    deliveries that aren't about a member.
    """

    __tablename__ = "storage_uses"

    user_id: Mapped[int] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True
    )
    bytes: Mapped[int]


class ComposerUse(Model):
    """The number of composer calls that a user made on the user's last active day (UTC)."""

    __tablename__ = "composer_uses"

    user_id: Mapped[int] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True
    )
    day: Mapped[date] = mapped_column(index=True)
    calls: Mapped[int]


class MailCount(Model):
    """The number of mails that strangers requested in a time window, counted for one rate limit.

    Rate limits for mails apply for example to a mailbox, a domain or a network. The table
    ``mail_counts`` contains no personal data, because ``digest`` is an HMAC of the mailbox, domain
    or network and of the window's length.
    """

    __tablename__ = "mail_counts"

    digest: Mapped[bytes] = mapped_column(primary_key=True)
    mails: Mapped[int]
    # The end of the time window in which mails are counted. The first mail after the end of the
    # time window starts a new time window.
    ends_at: Mapped[datetime] = mapped_column(index=True)
