"""Opt-outs of people, and the deny lists of owners."""

from enum import StrEnum

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId, allow_values


class OptOutKind(StrEnum):
    # The person left the list.
    LIST = "list"
    # The person stays on the list, but gets no mail.
    EMAIL = "email"


class OptOut(Model):
    """A person's opt-out from a list or its mail, which only the person can withdraw.

    The opt-out outlives the subscription. The HMAC of the address keeps the opt-out in force after
    the person's erasure. Code that activates a subscription or its mail must check for opt-outs.
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
    # NULL after the person's erasure. The HMAC still matches if the same address is added again.
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"), index=True)
    address_hmac: Mapped[bytes]
    kind: Mapped[str]
    # The origin of the opt-out: login, trace, one-click, page, import, transfer, bounce or
    # complaint. Bounces and complaints come from imported suppression files.
    source: Mapped[str]
    created_at: Mapped[CreatedAt]


class DeniedEntry(Model):
    """An address or a domain that can't join any list of one owner.

    An entry with an ``@`` is an address. An entry such as ``*.example.com`` covers all subdomains.
    """

    __tablename__ = "denied_entries"
    # The erasure of a person replaces the person's address in all deny lists by an HMAC.
    __table_args__ = (Index("ix_denied_entries_entry", "entry"),)

    user_id: Mapped[int] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True
    )
    entry: Mapped[str] = mapped_column(primary_key=True)


class ErasedDenial(Model):
    """A denied address of an erased person, stored as an HMAC instead of the address.

    An owner's denial stays in force after the erasure. Without the HMAC, people
    could remove the denial of their address by requesting their erasure.
    """

    __tablename__ = "erased_denials"
    __table_args__ = (CheckConstraint("octet_length(address_hmac) = 32", name="hmac_length"),)

    # The owner whose deny list contained the address.
    user_id: Mapped[int] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True
    )
    address_hmac: Mapped[bytes] = mapped_column(primary_key=True)


class DepartureKind(StrEnum):
    # The person opted out of a list.
    LIST = "list"
    # The person opted out of a list's mail.
    EMAIL = "email"
    # The person was erased. The row names no list.
    ERASED = "erased"


class Departure(Model):
    """An opt-out or an erasure that isn't in the journal next to the backups yet.

    A database trigger writes a row for each opt-out and each erasure. Within a minute, maintenance
    moves the row to the journal. Without backups, the rows of this table have no use.
    """

    __tablename__ = "departures"
    __table_args__ = (allow_values("kind", DepartureKind),)

    id: Mapped[SerialId]
    kind: Mapped[str]
    # The table has no foreign keys, because a row is a message that may outlive its subject.
    list_id: Mapped[int | None]
    user_id: Mapped[int | None]
    address_hmac: Mapped[bytes | None]
    source: Mapped[str | None]
    created_at: Mapped[CreatedAt]
