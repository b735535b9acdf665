"""OAuth clients, and the scopes that people grant to OAuth clients.

The database stores only HMACs of OAuth secrets.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from sqlalchemy import CheckConstraint, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import PersonId
from models.declarative import CreatedAt, Model, SerialId, UpdatedAt, allow_values

# Only an operator can grant the delivery scope. A database constraint refuses the delivery scope
# for OAuth clients, in case the code has a bug.
_NEVER_DELIVERY = "NOT 'delivery' = ANY (scopes)"


class OAuthClient(Model):
    """A public client, such as a phone app, has no secret, because users could extract it."""

    __tablename__ = "oauth_clients"
    __table_args__ = (
        CheckConstraint("octet_length(secret_hmac) = 32", name="hmac_length"),
        CheckConstraint(_NEVER_DELIVERY, name="never_delivery"),
    )

    client_id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    secret_hmac: Mapped[bytes | None]
    redirect_uris: Mapped[list[str]]
    scopes: Mapped[list[str]]
    created_at: Mapped[CreatedAt]
    revoked_at: Mapped[datetime | None]


class OAuthGrant(Model):
    """When a person revokes a grant, all its tokens become invalid."""

    __tablename__ = "oauth_grants"
    __table_args__ = (
        CheckConstraint(_NEVER_DELIVERY, name="never_delivery"),
        Index(
            "uq_oauth_grants_user_id_client_id_live",
            "user_id",
            "client_id",
            unique=True,
            postgresql_where="revoked_at IS NULL",
        ),
        Index(None, "user_id"),
        Index(None, "client_id"),
    )

    id: Mapped[SerialId]
    user_id: Mapped[PersonId] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    client_id: Mapped[str] = mapped_column(ForeignKey("oauth_clients.client_id"))
    # All scopes that the person has granted to the OAuth client. A token has only the scopes that
    # the person granted when the client obtained the token.
    scopes: Mapped[list[str]]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
    revoked_at: Mapped[datetime | None]


_GrantId = Annotated[
    int, mapped_column(ForeignKey("oauth_grants.id", ondelete="CASCADE"), index=True)
]


class OAuthCode(Model):
    """An authorization code, which a client receives through the browser and can use once."""

    __tablename__ = "oauth_codes"
    __table_args__ = (
        CheckConstraint("octet_length(secret_hmac) = 32", name="hmac_length"),
        CheckConstraint("challenge ~ '^[A-Za-z0-9_-]{43}$'", name="challenge_form"),
        CheckConstraint(_NEVER_DELIVERY, name="never_delivery"),
    )

    id: Mapped[SerialId]
    grant_id: Mapped[_GrantId]
    secret_hmac: Mapped[bytes] = mapped_column(unique=True)
    redirect_uri: Mapped[str]
    scopes: Mapped[list[str]]
    # The PKCE code challenge (RFC 7636) of the authorization request, derived with the method S256.
    challenge: Mapped[str]
    created_at: Mapped[CreatedAt]
    expires_at: Mapped[datetime] = mapped_column(index=True)
    used_at: Mapped[datetime | None]


class TokenKind(StrEnum):
    ACCESS = "access"
    REFRESH = "refresh"


class OAuthToken(Model):
    __tablename__ = "oauth_tokens"
    __table_args__ = (
        CheckConstraint("octet_length(secret_hmac) = 32", name="hmac_length"),
        allow_values("kind", TokenKind),
        CheckConstraint("rotated_at IS NULL OR kind = 'refresh'", name="only_refresh_rotates"),
        CheckConstraint(_NEVER_DELIVERY, name="never_delivery"),
    )

    id: Mapped[SerialId]
    kind: Mapped[str]
    grant_id: Mapped[_GrantId]
    # The id of the authorization code from which the token descends. All tokens that descend from
    # the same authorization code form a family.
    family: Mapped[int] = mapped_column(index=True)
    secret_hmac: Mapped[bytes] = mapped_column(unique=True)
    scopes: Mapped[list[str]]
    created_at: Mapped[CreatedAt]
    expires_at: Mapped[datetime] = mapped_column(index=True)
    # The time at which the refresh token was exchanged for new tokens. A second exchange of a
    # refresh token indicates that the token was stolen.
    rotated_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
