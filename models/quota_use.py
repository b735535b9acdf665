"""Stores counters for quotas and rate limits, because counting rows at each check would be slow.

Database triggers update ``storage_uses``, so that no code path can forget an update.
"""

from datetime import date, datetime

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import AccountId
from models.declarative import Model


class StorageUse(Model):
    """``bytes`` includes images, exports, and the files and chunks of unfinished imports.

    ``bytes`` also counts the database rows of segments, bulk actions and exports, and of webhook
    deliveries that aren't about a member.
    """

    __tablename__ = "storage_uses"

    user_id: Mapped[AccountId] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True
    )
    bytes: Mapped[int]


class ComposerUse(Model):
    """The number of a user's composer calls on the last day (UTC) on which the user made a call."""

    __tablename__ = "composer_uses"

    user_id: Mapped[AccountId] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True
    )
    day: Mapped[date] = mapped_column(index=True)
    calls: Mapped[int]


class MailCount(Model):
    """How many mails strangers requested in a time window, for one rate limit.

    ``digest`` is an HMAC of the mailbox, domain or network, so the row contains no personal data.
    """

    __tablename__ = "mail_counts"

    digest: Mapped[bytes] = mapped_column(primary_key=True)
    mails: Mapped[int]
    # The end of the time window. The first mail after ``ends_at`` starts a new time window.
    ends_at: Mapped[datetime] = mapped_column(index=True)
