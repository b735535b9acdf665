"""Users, their credentials, account mails, and erasures."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, false, func, text, true
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import AccountId, PersonId, random_id
from core.plans import Plan
from models.declarative import CreatedAt, Model, SerialId, UpdatedAt, allow_values


class User(Model):
    """A person who only subscribed to a list or was imported has no password hash, and can't log
    in.
    """

    __tablename__ = "users"
    __table_args__ = (
        allow_values("plan", Plan),
        CheckConstraint("email = lower(email)", name="email_normalised"),
    )

    id: Mapped[PersonId] = mapped_column(primary_key=True, default=random_id, autoincrement=False)
    email: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str | None]
    password_hash: Mapped[str | None]
    plan: Mapped[str] = mapped_column(default=Plan.FREE, server_default=Plan.FREE)
    # True if the person operates this deployment. Only the command line can create an operator.
    # Operators need a second factor to log in.
    is_operator: Mapped[bool] = mapped_column(default=False, server_default=false())
    # True if the person wants to receive a mail whenever the import of a file ends.
    import_mails: Mapped[bool] = mapped_column(default=True, server_default=true())
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
    # The time at which the person last recovered the account (``services.recovery``).
    recovered_at: Mapped[datetime | None]
    # The time of the person's erasure. The row of an erased person contains no personal data, and
    # remains because foreign keys reference it.
    erased_at: Mapped[datetime | None]

    @property
    def account_id(self) -> AccountId:
        """The account of this row, which has the plan. It has the id of its first owner."""
        return AccountId(self.id)


class ApiKey(Model):
    __tablename__ = "api_keys"
    __table_args__ = (CheckConstraint("octet_length(secret_hmac) = 32", name="hmac_length"),)

    id: Mapped[SerialId]
    user_id: Mapped[AccountId] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), index=True
    )
    name: Mapped[str]
    # The database stores only the HMAC and the last four characters of an API key. People recognise
    # their API keys by the last characters.
    secret_hmac: Mapped[bytes] = mapped_column(unique=True)
    last_four: Mapped[str]
    # The scopes of the API key, or NULL for an unrestricted API key, which has all scopes of its
    # user except `delivery`.
    scopes: Mapped[list[str] | None]
    # The lists to which the scope `delivery` of a limited API key is limited. NULL for all other
    # API keys.
    list_ids: Mapped[list[int] | None]
    # True if an operator's command created the limited API key.
    by_operator: Mapped[bool] = mapped_column(default=False, server_default=false())
    # The API key with which a program created this API key. Revoking an API key also revokes all
    # API keys that were created with it.
    maker_id: Mapped[int | None] = mapped_column(ForeignKey("api_keys.id"), index=True)
    created_at: Mapped[CreatedAt]
    # The time at which the API key expires, or NULL for an API key that never expires.
    expires_at: Mapped[datetime | None]
    # When the owner was warned by mail that the API key of webhook endpoints expires soon.
    expiry_told_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class UserSession(Model):
    __tablename__ = "user_sessions"
    __table_args__ = (
        CheckConstraint("octet_length(secret_hmac) = 32", name="hmac_length"),
        Index(None, "ended_at", postgresql_where="ended_at IS NOT NULL"),
    )

    id: Mapped[SerialId]
    user_id: Mapped[PersonId] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), index=True
    )
    # An HMAC of the session's secret. Only the browser's cookie contains the secret.
    secret_hmac: Mapped[bytes] = mapped_column(unique=True)
    # A name that helps people recognize their sessions, such as "Firefox on Linux".
    browser: Mapped[str | None]
    created_at: Mapped[CreatedAt]
    # The time of the person's last authentication in the session. Sensitive actions require a
    # recent authentication.
    logged_in_at: Mapped[datetime] = mapped_column(server_default=func.now())
    last_used_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime] = mapped_column(index=True)
    ended_at: Mapped[datetime | None]


class LoginAttempts(Model):
    """Logins in progress count as failed until they succeed."""

    __tablename__ = "login_attempts"
    __table_args__ = (CheckConstraint("octet_length(subject) = 32", name="hmac_length"),)

    # Failed logins are counted per network, per e-mail address, and per e-mail address and client.
    # ``subject`` is an HMAC of the network, of the address, or of the address and client. Failed
    # logins are counted even if no account has the e-mail address.
    subject: Mapped[bytes] = mapped_column(primary_key=True)
    attempts: Mapped[int]
    paused_until: Mapped[datetime]
    tried_at: Mapped[datetime] = mapped_column(index=True)
    # An HMAC of the network from which the failed logins came. After a successful login, the
    # counter of this network no longer counts the account.
    source: Mapped[bytes | None]


class TotpSecret(Model):
    """The secret of a person's only authenticator app."""

    __tablename__ = "totp_secrets"

    user_id: Mapped[PersonId] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    # The secret of the authenticator app, encrypted with the encryption key named `wrapped_by`.
    wrapped_secret: Mapped[bytes]
    wrapped_by: Mapped[str]
    # The time step (RFC 6238) of the latest accepted code, so that no code is accepted twice.
    last_step: Mapped[int]
    created_at: Mapped[CreatedAt]


class RecoveryCode(Model):
    """A code that a person can use once in place of a lost second factor."""

    __tablename__ = "recovery_codes"
    __table_args__ = (CheckConstraint("octet_length(code_hmac) = 32", name="hmac_length"),)

    id: Mapped[SerialId]
    user_id: Mapped[PersonId] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), index=True
    )
    # The HMAC of a recovery code. Only the person knows the recovery code.
    code_hmac: Mapped[bytes] = mapped_column(unique=True)
    created_at: Mapped[CreatedAt]
    used_at: Mapped[datetime | None]


class Passkey(Model):
    __tablename__ = "passkeys"

    id: Mapped[SerialId]
    user_id: Mapped[PersonId] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), index=True
    )
    name: Mapped[str]
    credential_id: Mapped[bytes] = mapped_column(unique=True)
    public_key: Mapped[bytes]
    # The device's counter of passkey uses, or 0 if the device doesn't count them.
    sign_count: Mapped[int]
    created_at: Mapped[CreatedAt]
    last_used_at: Mapped[datetime | None]


class SpentProof(Model):
    """The hash of a signed value that was used once and can't be used again."""

    __tablename__ = "spent_proofs"
    __table_args__ = (
        CheckConstraint("octet_length(proof_hash) = 32", name="hash_length"),
        Index(None, "expires_at"),
    )

    proof_hash: Mapped[bytes] = mapped_column(primary_key=True)
    # The hash of the only event that may still be sent with the value. NULL if the value can't be
    # used again at all.
    event_hash: Mapped[bytes | None]
    expires_at: Mapped[datetime]


class FormerAddress(Model):
    """A person's former e-mail address, which imported files may still contain.

    A person's opt-outs apply to all of the person's former addresses. Several people may have the
    same former address. An address identifies its current user, even if it is also another user's
    former address.
    """

    __tablename__ = "former_addresses"

    email: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[PersonId] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
        index=True,
    )
    left_at: Mapped[datetime] = mapped_column(server_default=func.now())
    # The new address that owners of lists may see, or NULL if the person hides it from them.
    shown: Mapped[str | None]


class AccountMail(Model):
    """A mail about an account. The row of a mail is deleted soon after the mail has been sent.

    The recipient of an account mail doesn't always have an account.
    """

    __tablename__ = "account_mails"
    __table_args__ = (Index(None, "email", "kind"),)

    id: Mapped[SerialId]
    kind: Mapped[str]
    # The recipient's address. The notice of a changed address is sent to the former address.
    email: Mapped[str]
    user_id: Mapped[PersonId | None] = mapped_column(
        ForeignKey("users.id", ondelete="CASCADE"), index=True
    )
    # A text to insert into the mail, such as the name of a program or browser, or the time at which
    # an API key expires.
    detail: Mapped[str | None]
    # The list that a mail to a reader is about. ``list_id`` has no foreign key, because adding a
    # mail would lock the list's row.
    list_id: Mapped[int | None]
    # The language of the page on which a reader requested the mail.
    language: Mapped[str | None]
    # An HMAC of the network from which a stranger requested the mail. The rate limit per network
    # counts the mails with the same `source_digest`.
    source_digest: Mapped[bytes | None]
    created_at: Mapped[CreatedAt] = mapped_column(index=True)
    # The time at which the mail passed the rate limits for strangers.
    admitted_at: Mapped[datetime | None]
    sent_at: Mapped[datetime | None]


class Erasure(Model):
    """A finished erasure is kept as proof, and contains only ids, counts and times."""

    __tablename__ = "erasures"
    __table_args__ = (
        CheckConstraint("octet_length(address_hmac) = 32", name="hmac_length"),
        Index(None, "address_hmac", postgresql_where="address_hmac IS NOT NULL"),
        Index("ix_erasures_unfinished", "user_id", postgresql_where="finished_at IS NULL"),
    )

    user_id: Mapped[PersonId] = mapped_column(
        ForeignKey("users.id"), primary_key=True, autoincrement=False
    )
    # ``job_id`` has no foreign key, because the row of the job is deleted earlier than this row.
    job_id: Mapped[int]
    # An HMAC of the person's address while the erasure is unfinished, or NULL afterwards.
    address_hmac: Mapped[bytes | None]
    # The next stage of the erasure (`services.privacy.stages`), or NULL before the first stage.
    stage: Mapped[str | None]
    # The position in a table at which the next stage resumes, or NULL for the start of the table.
    bookmark: Mapped[int | None]
    # The number of rows that each stage of the erasure has erased so far.
    counts: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
    created_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]
