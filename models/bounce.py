"""Bounces: mails that couldn't be delivered, as reported by senders such as mail providers."""

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import PersonId
from models.declarative import CreatedAt, Model

_IS_IN_EFFECT = "ended_at IS NULL AND lifted_at IS NULL"


class Bounce(Model):
    """A bounce is in effect until `lifted_at` or `ended_at` is set.

    The row contains an HMAC instead of the address, so that the bounce remains after the member is
    removed or erased.
    """

    __tablename__ = "bounces"
    __table_args__ = (
        CheckConstraint("octet_length(address_hmac) = 32", name="hmac_length"),
        CheckConstraint("ended_at IS NULL OR NOT is_hard", name="hard_never_ends"),
        # Filters use this index, and so does the trigger that sets `lifted_at`.
        Index("ix_bounces_counting", "list_id", "user_id", postgresql_where=_IS_IN_EFFECT),
        # Filters use this index to find the few soft bounces among many hard bounces.
        Index(
            "ix_bounces_soft",
            "list_id",
            "user_id",
            postgresql_where=f"{_IS_IN_EFFECT} AND NOT is_hard",
        ),
        # The erasure of a person uses this index, and so does the foreign key when a row in `users`
        # is deleted.
        Index("ix_bounces_user_id", "user_id"),
        Index("ix_bounces_created_at", "created_at"),
        # An index for finding the members whose mail of a mailing bounced.
        Index("ix_bounces_mailing_id", "mailing_id", "list_id", "user_id"),
    )

    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"), primary_key=True)
    # The HMAC of the person's address, calculated as in the table `opt_outs`.
    address_hmac: Mapped[bytes] = mapped_column(primary_key=True)
    # The id of the mailing. For a mail that Pressroom itself sent, such as a confirmation mail, the
    # id of the job that sent the mail. If the report contains no delivery id, the column contains a
    # negative hash of the provider's message id, or of the bounce's date if the report contains no
    # message id either.
    mailing_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # The person who has the address. NULL if the person was erased or has changed the address.
    user_id: Mapped[PersonId | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    is_hard: Mapped[bool]
    # The enhanced status code of the bounce (RFC 3463), such as `5.1.1`.
    status: Mapped[str | None]
    # When the mailing began.
    mailing_at: Mapped[datetime]
    bounced_at: Mapped[datetime]
    # When this bounce turned off the list's mail to the member, or NULL if this bounce didn't turn
    # off mail. Every hard bounce turns off the list's mail to the member. If several soft bounces
    # together turned off mail, `stopped_at` is set only for the bounce of the latest mailing.
    stopped_at: Mapped[datetime | None]
    # The start of the mailing whose mail reached the member after this soft bounce. NULL if no mail
    # has reached the member after this bounce, if this bounce turned off mail, or if this bounce is
    # hard.
    ended_at: Mapped[datetime | None]
    # When the list's mail to the member was turned on again after this bounce.
    lifted_at: Mapped[datetime | None]
    is_lifted_by_owner: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    created_at: Mapped[CreatedAt]
