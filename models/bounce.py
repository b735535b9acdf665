"""Bounces: mails that couldn't be delivered, as reported by senders such as mail providers."""

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model

_IS_IN_EFFECT = "ended_at IS NULL AND lifted_at IS NULL"


class Bounce(Model):
    """A mail that couldn't be delivered to an address.

    The row contains an HMAC instead of the address, so that the bounce remains after the member is
    removed or erased. A bounce is in effect until it is lifted or ends. Turning on the list's mail
    for the member lifts the bounce. Only a soft (temporary) bounce can end: a later mail that
    reaches the member ends it.
    """

    __tablename__ = "bounces"
    __table_args__ = (
        CheckConstraint("octet_length(address_hmac) = 32", name="hmac_length"),
        CheckConstraint("ended_at IS NULL OR NOT is_hard", name="hard_never_ends"),
        # Filters use this index, and so does the trigger that lifts a member's bounces.
        Index("ix_bounces_counting", "list_id", "user_id", postgresql_where=_IS_IN_EFFECT),
        # Filters use this index to find the few soft bounces among many hard bounces.
        Index(
            "ix_bounces_soft",
            "list_id",
            "user_id",
            postgresql_where=f"{_IS_IN_EFFECT} AND NOT is_hard",
        ),
        # An erasure uses this index, and so does the foreign key when a row in `users` is deleted.
        Index("ix_bounces_user_id", "user_id"),
        Index("ix_bounces_created_at", "created_at"),
    )

    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"), primary_key=True)
    # The HMAC of the address, which is the same as in the table `opt_outs`.
    address_hmac: Mapped[bytes] = mapped_column(primary_key=True)
    # The id of the job that exported the mailing's roster or sent the single mail. If the report
    # contains no delivery id, the column contains a negative hash of the provider's message id or,
    # without a message id, of the day.
    mailing_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # The person with the address, or NULL if the person was erased or has changed the address.
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    is_hard: Mapped[bool]
    # The enhanced status code of the bounce (RFC 3463), such as `5.1.1`.
    status: Mapped[str | None]
    # When the mailing began.
    mailing_at: Mapped[datetime]
    bounced_at: Mapped[datetime]
    # When this bounce turned off the list's mail to the member. The time is always set for a hard
    # bounce. If a series of soft bounces turned mail off, the time is set only for the bounce of
    # the latest mailing.
    stopped_at: Mapped[datetime | None]
    # The start of the mailing that ended this soft bounce by reaching the member, or NULL if the
    # bounce hasn't ended.
    ended_at: Mapped[datetime | None]
    # When the bounce was lifted, because the list's mail to the member was turned on again.
    lifted_at: Mapped[datetime | None]
    is_lifted_by_owner: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    created_at: Mapped[CreatedAt]
