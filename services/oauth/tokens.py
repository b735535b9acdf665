"""Access and refresh tokens. They are opaque, so a revoked token fails on the next request."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVarTuple

from sqlalchemy import ColumnElement, Select, and_, any_, bindparam, func, select

from core.keyring import Keyring
from core.refusals.access import AUTH_INVALID_ACCESS_TOKEN
from core.scopes import GRANTABLE, Scope, effective
from core.secret_form import ACCESS_TOKEN, REFRESH_TOKEN
from models import OAuthClient, OAuthGrant, OAuthToken, TokenKind, User
from services.access.caller import Caller
from services.oauth import grants
from storage.database import Database, Statement
from storage.moments import note_once
from storage.unit_of_work import UnitOfWork

Columns = TypeVarTuple("Columns")

OAUTH_TOKEN_LIFETIMES = {
    TokenKind.ACCESS: timedelta(hours=1),
    TokenKind.REFRESH: timedelta(days=30),
}
_PURPOSE = "oauth-token"


@dataclass(frozen=True)
class TokenOrigin:
    """The grant and the code that a new pair of tokens comes from."""

    grant_id: int
    family: int
    # The most that its tokens may have; an access token may have fewer.
    scopes: list[str]


@dataclass(frozen=True)
class FoundToken:
    """A token that its client refreshes, revokes or introspects."""

    token: OAuthToken
    client_id: str
    user_id: int
    is_active: bool


def authenticate(database: Database, keyring: Keyring, secret: str) -> Caller:
    """The caller behind an access token; raises ``auth.invalid_credentials``."""
    if not ACCESS_TOKEN.matches(secret):
        raise AUTH_INVALID_ACCESS_TOKEN()
    found = database.rows(_LIVE_ACCESS, digests=keyring.signer(_PURPOSE).digests(secret.encode()))
    if not found:
        raise AUTH_INVALID_ACCESS_TOKEN()
    [(grant_id, user_id, granted)] = found
    scopes = effective(map(Scope, granted)) & GRANTABLE
    return Caller(user_id, scopes, unrestricted=False, grant_id=grant_id)


def store_tokens(
    uow: UnitOfWork,
    keyring: Keyring,
    origin: TokenOrigin,
    *,
    access: str,
    access_scopes: list[str],
    refresh: str,
) -> None:
    """Store new tokens by the HMACs of their secrets. The caller has locked the grant."""
    for kind, secret, scopes in (
        (TokenKind.ACCESS, access, access_scopes),
        (TokenKind.REFRESH, refresh, origin.scopes),
    ):
        token = OAuthToken(
            kind=kind,
            grant_id=origin.grant_id,
            family=origin.family,
            secret_hmac=keyring.signer(_PURPOSE).digest(secret.encode()),
            scopes=scopes,
            expires_at=func.now() + OAUTH_TOKEN_LIFETIMES[kind],
        )
        uow.session.add(token)
    uow.session.flush()


def lock_refresh(
    uow: UnitOfWork, keyring: Keyring, secret: str, *, client_id: str
) -> OAuthToken | None:
    """The client's refresh token, its grant locked; ``None`` when the token is not valid.

    A token that was rotated already counts as stolen. Whether the client or the thief sends it now
    can't be told, so the whole family is revoked.
    """
    found = find(uow, keyring, secret, client_id=client_id)
    if found is None or found.token.kind != TokenKind.REFRESH:
        return None
    if grants.lock_grant(uow, found.token.grant_id) is None:
        return None
    uow.session.refresh(found.token)
    if found.token.rotated_at is not None:
        revoke_family(uow, found.token.family)
        return None
    is_live = select(OAuthToken.id).where(OAuthToken.id == found.token.id, *_live_token())
    return None if uow.session.scalar(is_live) is None else found.token


def rotate(uow: UnitOfWork, token: OAuthToken) -> None:
    """Use up a refresh token whose grant is locked."""
    token.rotated_at = uow.session.scalar(select(func.clock_timestamp()))
    uow.session.flush()


def find(uow: UnitOfWork, keyring: Keyring, secret: str, *, client_id: str) -> FoundToken | None:
    """A token of either kind that was issued to this client, and whether it is still valid."""
    if not (ACCESS_TOKEN.matches(secret) or REFRESH_TOKEN.matches(secret)):
        return None
    is_active = and_(*_live_token(), *_live_surroundings(), OAuthToken.rotated_at.is_(None))
    query = _with_surroundings(select(OAuthToken, OAuthGrant.user_id, is_active)).where(
        OAuthToken.secret_hmac.in_(keyring.signer(_PURPOSE).digests(secret.encode())),
        OAuthGrant.client_id == client_id,
    )
    row = uow.session.execute(query).one_or_none()
    return None if row is None else FoundToken(row[0], client_id, row[1], row[2])


def revoke(uow: UnitOfWork, token: OAuthToken) -> None:
    """Revoke an access token, or a refresh token with all tokens that came from its code."""
    if token.kind == TokenKind.REFRESH:
        grants.lock_grant(uow, token.grant_id)
        revoke_family(uow, token.family)
    else:
        note_once(uow, OAuthToken.revoked_at, OAuthToken.id == token.id)


def revoke_family(uow: UnitOfWork, family: int) -> None:
    """Revoke all tokens that came from one code. The caller has locked the grant."""
    note_once(uow, OAuthToken.revoked_at, OAuthToken.family == family)


def _live_token() -> tuple[ColumnElement[bool], ...]:
    return OAuthToken.expires_at > func.now(), OAuthToken.revoked_at.is_(None)


def _live_surroundings() -> tuple[ColumnElement[bool], ...]:
    return (
        OAuthGrant.revoked_at.is_(None),
        OAuthClient.revoked_at.is_(None),
        User.erased_at.is_(None),
    )


def _with_surroundings(query: Select[*Columns]) -> Select[*Columns]:
    return (
        query.join(OAuthGrant, OAuthGrant.id == OAuthToken.grant_id)
        .join(OAuthClient, OAuthClient.client_id == OAuthGrant.client_id)
        .join(User, User.id == OAuthGrant.user_id)
    )


_LIVE_ACCESS = Statement(
    _with_surroundings(select(OAuthGrant.id, OAuthGrant.user_id, OAuthToken.scopes)).where(
        OAuthToken.secret_hmac == any_(bindparam("digests")),
        OAuthToken.kind == TokenKind.ACCESS,
        *_live_token(),
        *_live_surroundings(),
    )
)
