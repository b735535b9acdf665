from enum import StrEnum

from sqlalchemy import CheckConstraint, ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId, known


class OptOutKind(StrEnum):
    LIST = "list"  # the person left the list
    EMAIL = "email"  # the person stays on the list and wants no mail


class OptOut(Model):
    """A person's refusal of a list or its mail. It outlives the subscription and, as an HMAC of the
    address, the erasure of the person.

    Only the person lifts it. Code that makes a subscription active, or switches its mail on, checks
    here first.
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
