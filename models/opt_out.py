from datetime import datetime
from enum import StrEnum

from sqlalchemy import CheckConstraint, ForeignKey, UniqueConstraint, func
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import Model, SerialId


class OptOutKind(StrEnum):
    LIST = "list"  # not a subscriber any more
    EMAIL = "email"  # a subscriber who wants no mail


class OptOut(Model):
    """A person's own no, which outlives their subscription and, as an HMAC, themselves.

    Only that person lifts it. Whatever makes a subscription active, or switches its mail on, looks
    here first.
    """

    __tablename__ = "opt_outs"
    __table_args__ = (
        CheckConstraint("kind IN ('list', 'email')", name="kind_known"),
        CheckConstraint("octet_length(address_hmac) = 32", name="hmac_length"),
        UniqueConstraint("list_id", "address_hmac", "kind"),
        UniqueConstraint("list_id", "user_id", "kind"),
    )

    id: Mapped[SerialId]
    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id"))
    # NULL once the person was erased: their address, should it come back, still matches.
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"), index=True)
    address_hmac: Mapped[bytes]
    kind: Mapped[str]
    # How it was said: login, trace, one-click, page, import, transfer.
    source: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
