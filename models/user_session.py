from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, func
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId


class UserSession(Model):
    """A browser in which a person is logged in."""

    __tablename__ = "user_sessions"
    __table_args__ = (CheckConstraint("octet_length(secret_hmac) = 32", name="hmac_length"),)

    id: Mapped[SerialId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    # What the cookie says is stored nowhere else.
    secret_hmac: Mapped[bytes] = mapped_column(unique=True)
    # Enough for a person to know it by, such as "Firefox on Linux"; addresses are not collected.
    browser: Mapped[str | None]
    created_at: Mapped[CreatedAt]
    last_used_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime] = mapped_column(index=True)
    ended_at: Mapped[datetime | None]


class LoginAttempts(Model):
    """Logins that failed one after the other, or are being tried now."""

    __tablename__ = "login_attempts"
    __table_args__ = (CheckConstraint("octet_length(subject) = 32", name="hmac_length"),)

    # An HMAC of the address that was tried, of an account or not, and of who tried.
    subject: Mapped[bytes] = mapped_column(primary_key=True)
    attempts: Mapped[int]
    paused_until: Mapped[datetime]
    tried_at: Mapped[datetime] = mapped_column(index=True)
