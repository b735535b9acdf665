from datetime import datetime

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId


class AccountMail(Model):
    """A mail about an account, to be sent or sent lately. The address may have no account."""

    __tablename__ = "account_mails"
    __table_args__ = (Index("ix_account_mails_email_kind", "email", "kind"),)

    id: Mapped[SerialId]
    kind: Mapped[str]
    # A copy: the notice of a change goes to the address that the person gave up.
    email: Mapped[str]
    user_id: Mapped[int | None] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), index=True
    )
    # What the mail names: the end of a key, a program, a browser.
    detail: Mapped[str | None]
    # Of a mail to a reader: the list that they asked about, and the language of the page. Without a
    # foreign key, for which the lists would have to be locked.
    list_id: Mapped[int | None]
    language: Mapped[str | None]
    # An HMAC of the network of the stranger who had it sent, under which it is counted.
    source_digest: Mapped[bytes | None]
    created_at: Mapped[CreatedAt] = mapped_column(index=True)
    # When it was counted among the mails of strangers, within their bounds.
    admitted_at: Mapped[datetime | None]
    sent_at: Mapped[datetime | None]
