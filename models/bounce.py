"""Bounces of the mails that senders have sent to members."""

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model

_COUNTS = "ended_at IS NULL AND lifted_at IS NULL"


class Bounce(Model):
    """A bounce of one mailing to one address of a list.

    The row contains an HMAC of the address, so that the bounce outlives the removal and the erasure
    of the member. A bounce counts until it has ended or is lifted. A hard bounce ends only by
    lifting.
    """

    __tablename__ = "bounces"
    __table_args__ = (
        CheckConstraint("octet_length(address_hmac) = 32", name="hmac_length"),
        CheckConstraint("ended_at IS NULL OR NOT is_hard", name="hard_never_ends"),
        # An index for filters, and for the bounces of the members whose mail is turned on.
        Index("ix_bounces_counting", "list_id", "user_id", postgresql_where=_COUNTS),
        # The erasure of a person, and the deletion of a row in `users`, use this index.
        Index("ix_bounces_user_id", "user_id"),
        Index("ix_bounces_created_at", "created_at"),
    )

    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"), primary_key=True)
    # An HMAC of the address, under the same keys as the HMACs of opt-outs.
    address_hmac: Mapped[bytes] = mapped_column(primary_key=True)
    # The id of the mailing, or a negative number that a sender's message id or a day yields.
    mailing_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # The member with the address, or NULL if the member was erased or has changed the address.
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    is_hard: Mapped[bool]
    # The enhanced status code of the bounce (RFC 3463), such as `5.1.1`.
    status: Mapped[str | None]
    # The time at which the mailing began.
    mailing_at: Mapped[datetime]
    bounced_at: Mapped[datetime]
    # The time at which this bounce turned the list's mail off. Every hard bounce has a time, and of
    # soft bounces only the last bounce in the row that turned the mail off.
    stopped_at: Mapped[datetime | None]
    # The beginning of the mailing that reached the member and so ended a row of soft bounces.
    ended_at: Mapped[datetime | None]
    # The time at which the list's mail was turned on again.
    lifted_at: Mapped[datetime | None]
    is_lifted_by_owner: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    created_at: Mapped[CreatedAt]
