from datetime import datetime

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId


class AccountMail(Model):
    """A mail about an account that is to be sent, or was lately, to whoever has the address."""

    __tablename__ = "account_mails"
    __table_args__ = (Index("ix_account_mails_email_kind", "email", "kind"),)

    id: Mapped[SerialId]
    kind: Mapped[str]
    # As it was then: a notice goes to an address that the person has given up.
    email: Mapped[str]
    user_id: Mapped[int | None] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), index=True
    )
    created_at: Mapped[CreatedAt] = mapped_column(index=True)
    sent_at: Mapped[datetime | None]
