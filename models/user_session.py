from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index, func
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId


class UserSession(Model):
    """A browser in which a person is logged in."""

    __tablename__ = "user_sessions"
    __table_args__ = (
        CheckConstraint("octet_length(secret_hmac) = 32", name="hmac_length"),
        Index("ix_user_sessions_ended_at", "ended_at", postgresql_where="ended_at IS NOT NULL"),
    )

    id: Mapped[SerialId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    # Only the cookie has the secret itself.
    secret_hmac: Mapped[bytes] = mapped_column(unique=True)
    # What a person recognises a session by, such as "Firefox on Linux". The event of its login says
    # from where it came.
    browser: Mapped[str | None]
    created_at: Mapped[CreatedAt]
    # When the person last showed that it is they: acts that outlast a session ask for it anew.
    logged_in_at: Mapped[datetime] = mapped_column(server_default=func.now())
    last_used_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime] = mapped_column(index=True)
    ended_at: Mapped[datetime | None]


class LoginAttempts(Model):
    """Failed logins in a row, and logins that are being tried now."""

    __tablename__ = "login_attempts"
    __table_args__ = (CheckConstraint("octet_length(subject) = 32", name="hmac_length"),)

    # An HMAC of what is counted: an e-mail address, with or without an account, from one client or
    # from any; or a network.
    subject: Mapped[bytes] = mapped_column(primary_key=True)
    attempts: Mapped[int]
    paused_until: Mapped[datetime]
    tried_at: Mapped[datetime] = mapped_column(index=True)
    # The network's count that this one is part of, which a login that succeeds takes back.
    source: Mapped[bytes | None]
