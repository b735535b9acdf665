"""Opt-outs of people, and the deny lists of owners."""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, func, text
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import AccountId, PersonId
from models.declarative import CreatedAt, Model, SerialId, allow_values


class OptOutKind(StrEnum):
    # The person unsubscribed from the list.
    LIST = "list"
    # The person stays on the list, but receives no mail from the list.
    EMAIL = "email"


class OptOut(Model):
    """A person's opt-out from a list or from a list's mail, which only the person can withdraw.

    An opt-out outlives the person's subscription. An opt-out contains an HMAC of the address, so
    that it applies even after the person's erasure. Code that activates a subscription or enables
    its mail must check for opt-outs.
    """

    __tablename__ = "opt_outs"
    __table_args__ = (
        allow_values("kind", OptOutKind),
        CheckConstraint("octet_length(address_hmac) = 32", name="hmac_length"),
        UniqueConstraint("list_id", "address_hmac", "kind"),
        UniqueConstraint("list_id", "user_id", "kind"),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    # The person who opted out, or NULL after the person's erasure.
    user_id: Mapped[PersonId | None] = mapped_column(ForeignKey("users.id"), index=True)
    address_hmac: Mapped[bytes]
    kind: Mapped[str]
    # How Pressroom learned of the opt-out: login, trace, one-click, page, import, transfer, bounce,
    # complaint, sender-complaint or sender-unsubscribe. The value `bounce` or `complaint` means
    # that the opt-out is from a suppression file that the owner imported. The value
    # `sender-complaint` or `sender-unsubscribe` means that a sender, such as a mail provider,
    # reported the opt-out.
    source: Mapped[str]
    # The mailing whose mail caused the opt-out. A job that updates the subscription later copies
    # the mailing to the member's history.
    mailing_id: Mapped[int | None]
    # The reason that the person chose, or NULL. The same job copies it to the history. The erasure
    # of the person deletes it.
    reason: Mapped[str | None]
    created_at: Mapped[CreatedAt]


class AddressOptOut(Model):
    """An opt-out of an address that belongs to no member, from several lists of one owner.

    A sender reports a complaint or an unsubscription of the address. The sender may cover a
    thousand lists, so the lists are stored in one row. An ``AddressOptOut`` applies to the same
    code as an ``OptOut`` of the kind ``list``.
    """

    __tablename__ = "address_opt_outs"
    __table_args__ = (
        CheckConstraint("octet_length(address_hmac) = 32", name="hmac_length"),
        # Maintenance uses this index to find the rows that it must write to the journal.
        Index(
            "ix_address_opt_outs_unjournaled",
            "updated_at",
            postgresql_where=text("NOT is_journaled"),
        ),
    )

    # The owner of the lists.
    user_id: Mapped[AccountId] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True
    )
    address_hmac: Mapped[bytes] = mapped_column(primary_key=True)
    # The ids in ascending order.
    list_ids: Mapped[list[int]]
    # A value of `opt_outs.source`.
    source: Mapped[str]
    created_at: Mapped[CreatedAt]
    # When lists were last added.
    updated_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    # True if the journal next to the backups contains the row. A copy of the row in `departures`
    # would be unsafe, because release 1.1.0 would write it to the journal without its lists.
    is_journaled: Mapped[bool] = mapped_column(server_default=text("false"))


class DeniedEntry(Model):
    """An e-mail address or a domain that an owner excludes from all of the owner's lists.

    A deny list entry such as ``*.example.com`` covers all subdomains of ``example.com``.
    """

    __tablename__ = "denied_entries"
    # The erasure of a person uses this index to find the person's address in all deny lists.
    __table_args__ = (Index("ix_denied_entries_entry", "entry"),)

    user_id: Mapped[AccountId] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True
    )
    entry: Mapped[str] = mapped_column(primary_key=True)


class ErasedDenial(Model):
    """An HMAC of a denied address that belonged to an erased person.

    Without the HMAC, people could get off a deny list by requesting an erasure.
    """

    __tablename__ = "erased_denials"
    __table_args__ = (CheckConstraint("octet_length(address_hmac) = 32", name="hmac_length"),)

    # The owner whose deny list contained the denied address.
    user_id: Mapped[AccountId] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True
    )
    address_hmac: Mapped[bytes] = mapped_column(primary_key=True)


class DepartureKind(StrEnum):
    # The person opted out of a list.
    LIST = "list"
    # The person opted out of a list's mail.
    EMAIL = "email"
    # The person was erased from all lists, so the departure has no `list_id`.
    ERASED = "erased"


class Departure(Model):
    """An opt-out or an erasure that hasn't been written to the journal next to the backups yet.

    A database trigger adds each row, and maintenance moves it to the journal within a minute. If
    backups are disabled, maintenance deletes the rows of ``departures`` after 30 days.
    """

    __tablename__ = "departures"
    __table_args__ = (allow_values("kind", DepartureKind),)

    id: Mapped[SerialId]
    kind: Mapped[str]
    # Departures have no foreign keys, because a departure may outlive the list and the user.
    list_id: Mapped[int | None]
    user_id: Mapped[PersonId | None]
    address_hmac: Mapped[bytes | None]
    source: Mapped[str | None]
    created_at: Mapped[CreatedAt]
