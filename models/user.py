from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, false, func, text, true
from sqlalchemy.orm import Mapped, mapped_column

from core.plans import Plan
from models.declarative import CreatedAt, Model, RandomId, SerialId, UpdatedAt, known


class User(Model):
    """A person. Without a password hash they only subscribed or were imported, and can't log in."""

    __tablename__ = "users"
    __table_args__ = (
        known("plan", Plan),
        CheckConstraint("email = lower(email)", name="email_normalised"),
    )

    id: Mapped[RandomId]
    email: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str | None]
    password_hash: Mapped[str | None]
    plan: Mapped[str] = mapped_column(default=Plan.FREE, server_default=Plan.FREE)
    # Runs this deployment. Only the command line makes one, and a login needs a second factor.
    is_operator: Mapped[bool] = mapped_column(default=False, server_default=false())
    # True if a mail tells of the end of each import of a file.
    import_mails: Mapped[bool] = mapped_column(default=True, server_default=true())
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
    # When the person last took their account back (``services.recovery``).
    recovered_at: Mapped[datetime | None]
    # When the person was erased. The row holds nothing personal then; it stays for foreign keys.
    erased_at: Mapped[datetime | None]


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
    # When the owner of its webhook endpoints was told that it expires soon.
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
    # Only the cookie has the secret itself.
    secret_hmac: Mapped[bytes] = mapped_column(unique=True)
    # The name by which a person recognises a session, such as "Firefox on Linux". The event of its
    # login says from where it came.
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
        Index(None, "expires_at"),
    )

    proof_hash: Mapped[bytes] = mapped_column(primary_key=True)
    expires_at: Mapped[datetime]


class FormerAddress(Model):
    """An address that a person had, and by which lists may still know them.

    Files name the person by it, and opt-outs are kept under it too. Several people may have had the
    same one, and somebody may have it now: then it is that person's.
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
    # The next address, if the person wants the owners of their lists to see it.
    shown: Mapped[str | None]


class AccountMail(Model):
    """A mail about an account, to be sent or sent lately. The address may have no account."""

    __tablename__ = "account_mails"
    __table_args__ = (Index(None, "email", "kind"),)

    id: Mapped[SerialId]
    kind: Mapped[str]
    # A copy: the notice of a change goes to the address that the person gave up.
    email: Mapped[str]
    user_id: Mapped[int | None] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), index=True
    )
    # The thing that the mail names: the end of a key, a program, a browser.
    detail: Mapped[str | None]
    # For a mail to a reader: the list that they asked about, and the language of the page. Without
    # a foreign key, for which the lists would have to be locked.
    list_id: Mapped[int | None]
    language: Mapped[str | None]
    # An HMAC of the network of the stranger who had it sent, under which it is counted.
    source_digest: Mapped[bytes | None]
    created_at: Mapped[CreatedAt] = mapped_column(index=True)
    # When it was counted among the mails of strangers, within their bounds.
    admitted_at: Mapped[datetime | None]
    sent_at: Mapped[datetime | None]


class Erasure(Model):
    """The erasure of one person: how far its job has come, and what it did.

    The row stays, as a proof. Once the erasure has ended it holds ids, counts and times alone.
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
    # Without a foreign key: the job is purged some time after its end.
    job_id: Mapped[int]
    # By which an erasure that has not ended is found again. NULL once it has ended.
    address_hmac: Mapped[bytes | None]
    # The next stage (`services.privacy.stages`), and where in its table it goes on. NULL: the
    # first one, and at the beginning.
    stage: Mapped[str | None]
    bookmark: Mapped[int | None]
    # The number of rows that each stage has erased so far.
    counts: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    created_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]
