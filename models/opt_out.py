from enum import StrEnum

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId, known


class OptOutKind(StrEnum):
    LIST = "list"  # the person left the list
    EMAIL = "email"  # the person stays on the list and wants no mail


class OptOut(Model):
    """A person's no to a list or its mail, which only they lift.

    It outlives the subscription and, as an HMAC of the address, the erasure of the person. Code
    that makes a subscription active, or switches its mail on, checks here first.
    """

    __tablename__ = "opt_outs"
    __table_args__ = (
        known("kind", OptOutKind),
        CheckConstraint("octet_length(address_hmac) = 32", name="hmac_length"),
        UniqueConstraint("list_id", "address_hmac", "kind"),
        UniqueConstraint("list_id", "user_id", "kind"),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    # NULL after the person was erased. The HMAC still matches their address if it comes back.
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"), index=True)
    address_hmac: Mapped[bytes]
    kind: Mapped[str]
    # Where the opt-out came from: login, trace, one-click, page, import, transfer; of a file that
    # tells that mail came back, or that the person took it for spam: bounce, complaint.
    source: Mapped[str]
    created_at: Mapped[CreatedAt]


class DeniedEntry(Model):
    """An address or a domain of which an owner wants no new member, on any of their lists.

    An entry with an ``@`` is an address; ``*.example.com`` stands for all subdomains.
    """

    __tablename__ = "denied_entries"
    # For the erasure of a person, whose address no owner keeps.
    __table_args__ = (Index("ix_denied_entries_entry", "entry"),)

    user_id: Mapped[int] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True
    )
    entry: Mapped[str] = mapped_column(primary_key=True)


class ErasedDenial(Model):
    """A denied address of an erased person, stored as an HMAC instead of the address.

    An owner's denial stays in force after the erasure. Otherwise people could remove the denial of
    their address by having themselves erased.
    """

    __tablename__ = "erased_denials"
    __table_args__ = (CheckConstraint("octet_length(address_hmac) = 32", name="hmac_length"),)

    # The owner whose deny list contained the address.
    user_id: Mapped[int] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True
    )
    address_hmac: Mapped[bytes] = mapped_column(primary_key=True)


class DepartureKind(StrEnum):
    LIST = "list"  # an opt-out of a list
    EMAIL = "email"  # an opt-out of a list's mail
    ERASED = "erased"  # the person was erased, and the row names the person alone


class Departure(Model):
    """An opt-out or an erasure that isn't in the journal next to the backups yet.

    A database trigger writes a row for each opt-out and each erasure. Within a minute, maintenance
    moves the row to the journal. Without backups, the rows of this table have no use.
    """

    __tablename__ = "departures"
    __table_args__ = (known("kind", DepartureKind),)

    id: Mapped[SerialId]
    kind: Mapped[str]
    # Without foreign keys: the row is a message, and no part of what it tells of.
    list_id: Mapped[int | None]
    user_id: Mapped[int | None]
    address_hmac: Mapped[bytes | None]
    source: Mapped[str | None]
    created_at: Mapped[CreatedAt]
