"""What people show beside their password when they log in."""

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId


class TotpSecret(Model):
    """The secret that a person's authenticator app makes codes of; one app a person."""

    __tablename__ = "totp_secrets"

    user_id: Mapped[int] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    # Encrypted under one of the encryption keys, as the keys of attachments are.
    wrapped_secret: Mapped[bytes]
    wrapped_by: Mapped[str]
    # The time step (RFC 6238) of the newest code that was taken: no code counts twice.
    last_step: Mapped[int]
    created_at: Mapped[CreatedAt]


class RecoveryCode(Model):
    """A code that stands for a lost second factor, once."""

    __tablename__ = "recovery_codes"
    __table_args__ = (CheckConstraint("octet_length(code_hmac) = 32", name="hmac_length"),)

    id: Mapped[SerialId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    # Only the person has the code itself.
    code_hmac: Mapped[bytes] = mapped_column(unique=True)
    created_at: Mapped[CreatedAt]
    used_at: Mapped[datetime | None]


class Passkey(Model):
    """A credential of a person's device, by which they log in (WebAuthn)."""

    __tablename__ = "passkeys"

    id: Mapped[SerialId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    name: Mapped[str]
    credential_id: Mapped[bytes] = mapped_column(unique=True)
    public_key: Mapped[bytes]
    # How often the device used it, by its own count; 0 where the device doesn't count.
    sign_count: Mapped[int]
    created_at: Mapped[CreatedAt]
    last_used_at: Mapped[datetime | None]


class SpentProof(Model):
    """A short-lived signed value that was used, and so is refused until it expires."""

    __tablename__ = "spent_proofs"
    __table_args__ = (
        CheckConstraint("octet_length(proof_hash) = 32", name="hash_length"),
        Index("ix_spent_proofs_expires_at", "expires_at"),
    )

    proof_hash: Mapped[bytes] = mapped_column(primary_key=True)
    expires_at: Mapped[datetime]
