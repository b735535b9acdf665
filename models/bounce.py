"""Bounces that senders have reported."""

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model

_COUNTS = "ended_at IS NULL AND lifted_at IS NULL"


class Bounce(Model):
    """A mail of a mailing that couldn't be delivered to an address.

    The row contains an HMAC of the address, so that the bounce remains when the member is removed
    or erased. A bounce is in effect until it ends or is lifted. Only soft bounces can end.
    """

    __tablename__ = "bounces"
    __table_args__ = (
        CheckConstraint("octet_length(address_hmac) = 32", name="hmac_length"),
        CheckConstraint("ended_at IS NULL OR NOT is_hard", name="hard_never_ends"),
        # Filters use this index, and so does the trigger that lifts a member's bounces.
        Index("ix_bounces_counting", "list_id", "user_id", postgresql_where=_COUNTS),
        # An erasure uses this index, and so does the foreign key when a row in `users` is deleted.
        Index("ix_bounces_user_id", "user_id"),
        Index("ix_bounces_created_at", "created_at"),
    )

    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"), primary_key=True)
    # An HMAC of the address. Bounces and opt-outs of the same address have the same HMAC.
    address_hmac: Mapped[bytes] = mapped_column(primary_key=True)
    # The id of the mailing. If the report contains no delivery id, the mailing is unknown. The
    # column then contains a negative number that is computed from the message id or the day.
    mailing_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # The person with the address, or NULL if the person was erased or has changed the address.
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    is_hard: Mapped[bool]
    # The enhanced status code of the bounce (RFC 3463), such as `5.1.1`.
    status: Mapped[str | None]
    # When the mailing began.
    mailing_at: Mapped[datetime]
    bounced_at: Mapped[datetime]
    # When this bounce turned the list's mail off. Each hard bounce has a time. If several soft
    # bounces together turned the mail off, only the bounce of the latest mailing has a time.
    stopped_at: Mapped[datetime | None]
    # A soft bounce ends when a mailing reaches the member. The column contains the time at which
    # this mailing began, or NULL if the bounce hasn't ended.
    ended_at: Mapped[datetime | None]
    # When the list's mail was turned on again, which lifted the bounce.
    lifted_at: Mapped[datetime | None]
    is_lifted_by_owner: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    created_at: Mapped[CreatedAt]
