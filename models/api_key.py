from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId


class ApiKey(Model):
    __tablename__ = "api_keys"
    __table_args__ = (CheckConstraint("octet_length(secret_hmac) = 32", name="hmac_length"),)

    id: Mapped[SerialId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    name: Mapped[str]
    # The key itself is not stored: only its HMAC, and its last characters to recognise it by.
    secret_hmac: Mapped[bytes] = mapped_column(unique=True)
    last_four: Mapped[str]
    # NULL: the key is unrestricted. It has all of its user's scopes but `delivery`.
    scopes: Mapped[list[str] | None]
    # The key that made this one, and with which it ends.
    maker_id: Mapped[int | None] = mapped_column(ForeignKey("api_keys.id"), index=True)
    created_at: Mapped[CreatedAt]
    # NULL: the key lasts until it is revoked.
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
