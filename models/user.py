"""Users, their credentials, account mails, and erasures."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, false, func, text, true
from sqlalchemy.orm import Mapped, mapped_column

from core.plans import Plan
from models.declarative import CreatedAt, Model, RandomId, SerialId, UpdatedAt, allow_values


class User(Model):
    """A person.

    A person without a password hash only subscribed or was imported, and can't log in.
    """

    __tablename__ = "users"
    __table_args__ = (
        allow_values("plan", Plan),
        CheckConstraint("email = lower(email)", name="email_normalised"),
    )

    id: Mapped[RandomId]
    email: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str | None]
    password_hash: Mapped[str | None]
    plan: Mapped[str] = mapped_column(default=Plan.FREE, server_default=Plan.FREE)
    # True if the person operates this deployment. Only the command line can create an operator.
    # Operators need a second factor to log in.
    is_operator: Mapped[bool] = mapped_column(default=False, server_default=false())
    # True if the person gets a mail at the end of each file import.
    import_mails: Mapped[bool] = mapped_column(default=True, server_default=true())
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
    # The time at which the person last recovered the account (``services.recovery``).
    recovered_at: Mapped[datetime | None]
    # The time of the person's erasure. The row then contains no personal data, and remains because
    # of foreign keys.
    erased_at: Mapped[datetime | None]


class ApiKey(Model):
    __tablename__ = "api_keys"
    __table_args__ = (CheckConstraint("octet_length(secret_hmac) = 32", name="hmac_length"),)

    id: Mapped[SerialId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    name: Mapped[str]
    # The table stores only an HMAC of the key, and the last characters so that people recognize the
    # key.
    secret_hmac: Mapped[bytes] = mapped_column(unique=True)
    last_four: Mapped[str]
    # NULL for an unrestricted key, which has all scopes of its user except `delivery`.
    scopes: Mapped[list[str] | None]
    # The API key that created this key. Revoking the creating key also revokes this key.
    maker_id: Mapped[int | None] = mapped_column(ForeignKey("api_keys.id"), index=True)
    created_at: Mapped[CreatedAt]
    # NULL for a key that never expires.
    expires_at: Mapped[datetime | None]
    # The time of the mail that warned the owner of webhook endpoints about the key's expiry.
    expiry_told_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class UserSession(Model):
    """A browser in which a person is logged in."""

    __tablename__ = "user_sessions"
    __table_args__ = (
        CheckConstraint("octet_length(secret_hmac) = 32", name="hmac_length"),
        Index(None, "ended_at", postgresql_where="ended_at IS NOT NULL"),
    )

    id: Mapped[SerialId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    # Only the cookie contains the secret.
    secret_hmac: Mapped[bytes] = mapped_column(unique=True)
    # A name that helps people recognize their sessions, such as "Firefox on Linux".
    browser: Mapped[str | None]
    created_at: Mapped[CreatedAt]
    # The time of the person's last authentication. Sensitive actions need a recent authentication.
    logged_in_at: Mapped[datetime] = mapped_column(server_default=func.now())
    last_used_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime] = mapped_column(index=True)
    ended_at: Mapped[datetime | None]


class LoginAttempts(Model):
    """The number of consecutive failed logins, including logins in progress."""

    __tablename__ = "login_attempts"
    __table_args__ = (CheckConstraint("octet_length(subject) = 32", name="hmac_length"),)

    # An HMAC of the subject of the count. The subject is a network, an e-mail address, or an e-mail
    # address together with a client. The e-mail address may have no account.
    subject: Mapped[bytes] = mapped_column(primary_key=True)
    attempts: Mapped[int]
    paused_until: Mapped[datetime]
    tried_at: Mapped[datetime] = mapped_column(index=True)
    # The subject of the network's count, which includes this count. A successful login subtracts
    # this count from the network's count.
    source: Mapped[bytes | None]


class TotpSecret(Model):
    """The secret from which a person's authenticator app generates codes. A person has one app."""

    __tablename__ = "totp_secrets"

    user_id: Mapped[int] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    # The secret, encrypted with the encryption key named `wrapped_by`.
    wrapped_secret: Mapped[bytes]
    wrapped_by: Mapped[str]
    # The time step (RFC 6238) of the latest accepted code, so that no code is accepted twice.
    last_step: Mapped[int]
    created_at: Mapped[CreatedAt]


class RecoveryCode(Model):
    """A code that replaces a lost second factor once."""

    __tablename__ = "recovery_codes"
    __table_args__ = (CheckConstraint("octet_length(code_hmac) = 32", name="hmac_length"),)

    id: Mapped[SerialId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    # Only the person has the code.
    code_hmac: Mapped[bytes] = mapped_column(unique=True)
    created_at: Mapped[CreatedAt]
    used_at: Mapped[datetime | None]


class Passkey(Model):
    """A credential on a person's device, with which the person logs in (WebAuthn)."""

    __tablename__ = "passkeys"

    id: Mapped[SerialId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    name: Mapped[str]
    credential_id: Mapped[bytes] = mapped_column(unique=True)
    public_key: Mapped[bytes]
    # The device's count of the passkey's uses, or 0 if the device doesn't count.
    sign_count: Mapped[int]
    created_at: Mapped[CreatedAt]
    last_used_at: Mapped[datetime | None]


class SpentProof(Model):
    """A short-lived signed value that was used. The value can't be used again until it expires."""

    __tablename__ = "spent_proofs"
    __table_args__ = (
        CheckConstraint("octet_length(proof_hash) = 32", name="hash_length"),
        Index(None, "expires_at"),
    )

    proof_hash: Mapped[bytes] = mapped_column(primary_key=True)
    expires_at: Mapped[datetime]


class FormerAddress(Model):
    """A former address of a person, which lists may still use.

    Imported files may name the person by the former address, and opt-outs also apply to the former
    address. Several people may have had the same address. If the address belongs to a user now,
    only this user counts.
    """

    __tablename__ = "former_addresses"

    email: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
        index=True,
    )
    left_at: Mapped[datetime] = mapped_column(server_default=func.now())
    # The person's next address, if the person wants the owners of the lists to see the address.
    shown: Mapped[str | None]


class AccountMail(Model):
    """A mail about an account that is waiting or was sent recently.

    The address may have no account.
    """

    __tablename__ = "account_mails"
    __table_args__ = (Index(None, "email", "kind"),)

    id: Mapped[SerialId]
    kind: Mapped[str]
    # A copy of the address, because the notice of an address change goes to the former address.
    email: Mapped[str]
    user_id: Mapped[int | None] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), index=True
    )
    # The subject of the mail, such as the last characters of a key, a program or a browser.
    detail: Mapped[str | None]
    # The list in a mail to a reader. A foreign key would have to lock the list.
    list_id: Mapped[int | None]
    # The language of the page on which a reader requested the mail.
    language: Mapped[str | None]
    # An HMAC of the network of the stranger who caused the mail. The limit per network counts mails
    # by this digest.
    source_digest: Mapped[bytes | None]
    created_at: Mapped[CreatedAt] = mapped_column(index=True)
    # The time at which the limits for strangers' mails admitted the mail.
    admitted_at: Mapped[datetime | None]
    sent_at: Mapped[datetime | None]


class Erasure(Model):
    """The erasure of one person, with the progress and the results of its job.

    The row remains as a proof of the erasure. After the erasure, the row contains only ids, counts
    and times.
    """

    __tablename__ = "erasures"
    __table_args__ = (
        CheckConstraint("octet_length(address_hmac) = 32", name="hmac_length"),
        Index(None, "address_hmac", postgresql_where="address_hmac IS NOT NULL"),
        Index("ix_erasures_unfinished", "user_id", postgresql_where="finished_at IS NULL"),
    )

    user_id: Mapped[int] = mapped_column(
        ForeignKey("users.id"), primary_key=True, autoincrement=False
    )
    # The column has no foreign key, because the job is deleted before the erasure.
    job_id: Mapped[int]
    # Identifies an unfinished erasure. NULL after the erasure.
    address_hmac: Mapped[bytes | None]
    # The next stage (`services.privacy.stages`). NULL for the first stage.
    stage: Mapped[str | None]
    # The position in the table of the next stage. NULL at the start of the table.
    bookmark: Mapped[int | None]
    # The number of rows that each stage has erased so far.
    counts: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    created_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]
