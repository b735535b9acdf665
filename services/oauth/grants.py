"""Grants: what people let clients do.

A request that issues a code or token under a grant, or revokes its tokens, locks the grant first.
These requests therefore take turns, and no secret is issued after the grant was revoked.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, any_, bindparam, func, select
from sqlalchemy.orm import join

from core import clock
from core.errors.access import AUTH_INVALID_ACCESS_TOKEN, GRANT_NOT_FOUND
from core.keyring import Keyring
from core.scopes import GRANTABLE, Scope, effective
from core.secret_form import ACCESS_TOKEN, REFRESH_TOKEN
from models import OAuthClient, OAuthGrant, OAuthToken, TokenKind, User
from services import paging
from services.access import sessions
from services.access.caller import Caller
from services.accounts import account_mails, accounts
from services.accounts.account_mails import MailKind
from services.paging import WHOLE, PageOfRows, PageRequest
from services.security_events import EventType, record
from storage.database import Database, Statement
from storage.unit_of_work import UnitOfWork, record_moment_once


@dataclass(frozen=True)
class GrantSummary:
    """A grant, as the person who gave it sees it."""

    id: int
    client_id: str
    client_name: str
    scopes: list[str]
    created_at: datetime
    updated_at: datetime


def grant_scopes(
    uow: UnitOfWork, *, user_id: int, client: OAuthClient, scopes: Collection[Scope]
) -> OAuthGrant:
    """The person's grant for the client, with these scopes added; a mail tells of new ones."""
    # A person consents once at a time, and none from a page that was open when they were erased.
    sessions.lock_person(uow, user_id)
    in_force = OAuthGrant.user_id == user_id, OAuthGrant.revoked_at.is_(None)
    query = select(OAuthGrant).where(*in_force, OAuthGrant.client_id == client.client_id)
    grant = uow.session.scalar(query)
    if grant is None:
        grant = OAuthGrant(user_id=user_id, client_id=client.client_id, scopes=[])
        uow.session.add(grant)
    has_new = not set(scopes) <= set(grant.scopes)
    if has_new:
        person = accounts.get_user(uow, user_id)
        kind = MailKind.NEW_PROGRAM
        account_mails.request_mail_to(uow, kind, person, client.name)
    grant.scopes = sorted({*grant.scopes, *scopes})
    grant.updated_at = clock.now()
    uow.session.flush()
    if has_new:
        record(uow, user_id, EventType.GRANT_CREATED, grant_id=grant.id, scopes=grant.scopes)
    return grant


def lock_grant(uow: UnitOfWork, grant_id: int) -> OAuthGrant | None:
    """The grant, locked until the transaction ends; ``None`` once it was revoked."""
    query = select(OAuthGrant).where(OAuthGrant.id == grant_id, OAuthGrant.revoked_at.is_(None))
    return uow.session.scalar(
        query.with_for_update(key_share=True), execution_options={"populate_existing": True}
    )


def list_of(uow: UnitOfWork, user_id: int, wanted: PageRequest = WHOLE) -> PageOfRows[GrantSummary]:
    """The person's grants that are in force, newest first. Raises ``cursor.invalid``."""
    row = OAuthGrant
    client = OAuthClient
    columns = row.id, row.client_id, client.name, row.scopes, row.created_at, row.updated_at
    in_force = row.revoked_at.is_(None), client.revoked_at.is_(None)
    query = select(*columns).join(client, client.client_id == row.client_id)
    query = query.where(row.user_id == user_id, *in_force)
    query = paging.by_moment(query, row.updated_at, row.id, wanted)
    summaries = [GrantSummary(*each) for each in uow.session.execute(query)]
    return paging.cut(
        summaries, wanted.limit, lambda each: paging.moment_cursor(each.updated_at, each.id)
    )


def revoke(uow: UnitOfWork, *, grant_id: int, user_id: int) -> int:
    """Revoke the user's grant and its tokens: 1, or 0 if it was. Raises ``grant.not_found``."""
    grant = uow.session.get(OAuthGrant, grant_id)
    if grant is None or grant.user_id != user_id:
        raise GRANT_NOT_FOUND()
    revoked = record_moment_once(uow, OAuthGrant.revoked_at, OAuthGrant.id == grant_id)
    if revoked:
        record(uow, user_id, EventType.GRANT_ENDED, grant_id=grant_id)
    return revoked


def revoke_all(uow: UnitOfWork, user_id: int) -> None:
    """Revoke the grants of a person whom the caller has locked."""
    revoked = record_moment_once(uow, OAuthGrant.revoked_at, OAuthGrant.user_id == user_id)
    if revoked:
        record(uow, user_id, EventType.GRANT_ENDED, grants=revoked)


OAUTH_TOKEN_LIFETIMES = {
    TokenKind.ACCESS: timedelta(hours=1),
    TokenKind.REFRESH: timedelta(days=30),
}
_PURPOSE = "oauth-token"

_IS_LIVE = (OAuthToken.expires_at > func.now(), OAuthToken.revoked_at.is_(None))
# A token's grant, the grant's client and its person.
_SURROUNDINGS = (
    join(OAuthToken, OAuthGrant, OAuthGrant.id == OAuthToken.grant_id)
    .join(OAuthClient, OAuthClient.client_id == OAuthGrant.client_id)
    .join(User, User.id == OAuthGrant.user_id)
)
_HAS_LIVE_SURROUNDINGS = (
    OAuthGrant.revoked_at.is_(None),
    OAuthClient.revoked_at.is_(None),
    User.erased_at.is_(None),
)


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
    rows = database.rows(_LIVE_ACCESS, digests=keyring.signer(_PURPOSE).digests(secret.encode()))
    if not rows:
        raise AUTH_INVALID_ACCESS_TOKEN()
    [(grant_id, user_id, granted)] = rows
    scopes = effective(map(Scope, granted)) & GRANTABLE
    return Caller(user_id, scopes, unrestricted=False, grant_id=grant_id)


def store_tokens(uow: UnitOfWork, origin: TokenOrigin, made: Mapping[str, Any]) -> None:
    """Store new tokens by the HMACs of their secrets. The caller has locked the grant."""
    for kind, secret, scopes in (
        (TokenKind.ACCESS, made["access_token"], made["scope"].split()),
        (TokenKind.REFRESH, made["refresh_token"], origin.scopes),
    ):
        token = OAuthToken(
            kind=kind,
            grant_id=origin.grant_id,
            family=origin.family,
            secret_hmac=uow.settings.keyring.signer(_PURPOSE).digest(secret.encode()),
            scopes=scopes,
            expires_at=func.now() + OAUTH_TOKEN_LIFETIMES[kind],
        )
        uow.session.add(token)
    uow.session.flush()


def lock_refresh(uow: UnitOfWork, secret: str, *, client_id: str) -> OAuthToken | None:
    """Return the client's refresh token, its grant locked; ``None`` when the token is not valid.

    A token that was rotated already counts as stolen, and its whole family is revoked: the sender
    may be the client or the thief.
    """
    grant = find(uow, secret, client_id=client_id)
    if grant is None or grant.token.kind != TokenKind.REFRESH:
        return None
    if lock_grant(uow, grant.token.grant_id) is None:
        return None
    uow.session.refresh(grant.token)
    if grant.token.rotated_at is not None:
        revoke_family(uow, grant.token.family)
        return None
    is_live = select(OAuthToken.id).where(OAuthToken.id == grant.token.id, *_IS_LIVE)
    return None if uow.session.scalar(is_live) is None else grant.token


def rotate(uow: UnitOfWork, token: OAuthToken) -> None:
    """Use up a refresh token whose grant is locked."""
    token.rotated_at = uow.session.scalar(select(func.clock_timestamp()))
    uow.session.flush()


def find(uow: UnitOfWork, secret: str, *, client_id: str) -> FoundToken | None:
    """A token of either kind that was issued to this client, and whether it is still valid."""
    if not (ACCESS_TOKEN.matches(secret) or REFRESH_TOKEN.matches(secret)):
        return None
    is_active = and_(*_IS_LIVE, *_HAS_LIVE_SURROUNDINGS, OAuthToken.rotated_at.is_(None))
    query = select(OAuthToken, OAuthGrant.user_id, is_active).select_from(_SURROUNDINGS)
    query = query.where(
        OAuthToken.secret_hmac.in_(uow.settings.keyring.signer(_PURPOSE).digests(secret.encode())),
        OAuthGrant.client_id == client_id,
    )
    row = uow.session.execute(query).one_or_none()
    return None if row is None else FoundToken(row[0], client_id, row[1], row[2])


def revoke_token(uow: UnitOfWork, token: OAuthToken) -> None:
    """Revoke an access token, or a refresh token with all tokens that came from its code."""
    if token.kind == TokenKind.REFRESH:
        lock_grant(uow, token.grant_id)
        revoke_family(uow, token.family)
    else:
        record_moment_once(uow, OAuthToken.revoked_at, OAuthToken.id == token.id)


def revoke_family(uow: UnitOfWork, family: int) -> None:
    """Revoke all tokens that came from one code. The caller has locked the grant."""
    record_moment_once(uow, OAuthToken.revoked_at, OAuthToken.family == family)


_LIVE_ACCESS = Statement(
    select(OAuthGrant.id, OAuthGrant.user_id, OAuthToken.scopes)
    .select_from(_SURROUNDINGS)
    .where(
        OAuthToken.secret_hmac == any_(bindparam("digests")),
        OAuthToken.kind == TokenKind.ACCESS,
        *_IS_LIVE,
        *_HAS_LIVE_SURROUNDINGS,
    )
)
