"""The engagement of members, and the members' answers whether a list may record it.

Engagement means how often a member received, opened and clicked mailings.
"""

from datetime import date
from enum import StrEnum

from sqlalchemy import CheckConstraint, ForeignKey, Index, Integer, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import PersonId
from models.declarative import CreatedAt, Model, SerialId


class EngagementMode(StrEnum):
    """The members whose engagement a list records. A person who said no is never recorded."""

    OFF = "off"
    # Only people who said yes.
    CONSENT = "consent"
    # People who said yes, and people who haven't answered.
    ALL = "all"


class EngagementAnswer(Model):
    """A person's latest answer to the question whether a list may record their engagement.

    The yes of a member who leaves is deleted by a database trigger. A no stays, even after the
    person's erasure, which replaces the person's id with the HMAC of the address.
    """

    __tablename__ = "engagement_answers"
    __table_args__ = (
        CheckConstraint("octet_length(address_hmac) = 32", name="hmac_length"),
        CheckConstraint(
            "user_id IS NOT NULL OR NOT is_allowed AND address_hmac IS NOT NULL", name="has_person"
        ),
        UniqueConstraint("list_id", "user_id"),
        # An index for finding the refusals of an erased person who joins a list again.
        Index(
            "ix_engagement_answers_unclaimed",
            "list_id",
            "address_hmac",
            postgresql_where="user_id IS NULL",
        ),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    # NULL after the person's erasure.
    user_id: Mapped[PersonId | None] = mapped_column(ForeignKey("users.id"), index=True)
    # The HMAC of the person's address, calculated as in the table `opt_outs`. NULL for a yes.
    address_hmac: Mapped[bytes | None]
    is_allowed: Mapped[bool]
    created_at: Mapped[CreatedAt]


class MemberEngagement(Model):
    """How many mailings a member received, opened and clicked, and on which days in UTC last.

    A member whose engagement isn't recorded has no row. The table has no foreign keys, because a
    batch of reports changes thousands of rows. A database trigger deletes the rows of members who
    leave.
    """

    __tablename__ = "member_engagement"

    list_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    user_id: Mapped[PersonId] = mapped_column(primary_key=True, autoincrement=False)
    # The day of the earliest recorded event.
    measured_since: Mapped[date]
    delivered: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    opens: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    # Opens by machines, such as proxies of mail providers.
    machine_opens: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    clicks: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    last_delivered: Mapped[date | None]
    last_opened: Mapped[date | None]
    last_machine_opened: Mapped[date | None]
    last_clicked: Mapped[date | None]
