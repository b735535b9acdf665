"""Stores OAuth tokens and grants. With a grant, a person gives a client access to their data.

A request locks the grant before it issues or revokes tokens, so that no token is issued after a
grant has been revoked.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, any_, bindparam, func, select
from sqlalchemy.orm import join

from core import clock
from core.errors.access import AUTH_INVALID_ACCESS_TOKEN, GRANT_NOT_FOUND
from core.ids import AccountId, PersonId
from core.keyring import Keyring
from core.permissions import Role
from core.scopes import GRANTABLE_SCOPES, Scope, expand_scopes, list_known_scopes
from core.secret_form import ACCESS_TOKEN, REFRESH_TOKEN
from models import OAuthClient, OAuthGrant, OAuthToken, TokenKind, User
from services import paging
from services.access import sessions
from services.access.caller import Caller
from services.accounts import account_mails, accounts
from services.accounts.account_mails import MailKind
from services.paging import UNPAGED, PageOfRows, PageRequest
from services.security_events import EventType, record_event
from storage.database import Database, Statement
from storage.unit_of_work import UnitOfWork, record_moment_once

OAUTH_TOKEN_LIFETIMES = {
    TokenKind.ACCESS: timedelta(hours=1),
    TokenKind.REFRESH: timedelta(days=30),
}
_PURPOSE = "oauth-token"
# SQL conditions that select OAuth tokens that are neither expired nor revoked.
_IS_ACTIVE_TOKEN = (OAuthToken.expires_at > func.now(), OAuthToken.revoked_at.is_(None))
# Joins OAuth tokens with their grants, their clients and the people who gave the grants.
_TOKEN_JOIN = (
    join(OAuthToken, OAuthGrant, OAuthGrant.id == OAuthToken.grant_id)
    .join(OAuthClient, OAuthClient.client_id == OAuthGrant.client_id)
    .join(User, User.id == OAuthGrant.user_id)
)
# SQL conditions that select OAuth tokens of active grants. A grant is active if the grant and its
# client are not revoked, and its person isn't erased.
_IS_ACTIVE_GRANT = (
    OAuthGrant.revoked_at.is_(None),
    OAuthClient.revoked_at.is_(None),
    User.erased_at.is_(None),
)


@dataclass(frozen=True)
class GrantSummary:
    id: int
    client_id: str
    client_name: str
    scopes: list[str]
    created_at: datetime
    updated_at: datetime


def grant_scopes(
    uow: UnitOfWork,
    *,
    account_id: AccountId,
    person_id: PersonId,
    client: OAuthClient,
    scopes: Collection[Scope],
) -> OAuthGrant:
    """Record a person's grant in an account.

    The person is notified by mail if the client gets a new scope.
    """
    # Lock the person, so that two simultaneous consents don't create two grants.
    sessions.lock_person(uow, person_id)
    query = select(OAuthGrant).where(
        OAuthGrant.user_id == person_id,
        OAuthGrant.revoked_at.is_(None),
        OAuthGrant.client_id == client.client_id,
    )
    grant = uow.session.scalar(query)
    if grant is None:
        grant = OAuthGrant(user_id=person_id, client_id=client.client_id, scopes=[])
        uow.session.add(grant)
    has_new_scopes = not set(scopes) <= set(grant.scopes)
    if has_new_scopes:
        person = accounts.get_user(uow, person_id)
        limit = account_mails.HOURLY_LIMIT
        account_mails.enqueue_mail(uow, MailKind.NEW_PROGRAM, person, client.name, limit=limit)
    grant.scopes = sorted({*grant.scopes, *scopes})
    grant.updated_at = clock.now()
    uow.session.flush()
    if has_new_scopes:
        record_event(
            uow, account_id, EventType.GRANT_CREATED, grant_id=grant.id, scopes=grant.scopes
        )
    return grant


def lock_grant(uow: UnitOfWork, grant_id: int) -> OAuthGrant | None:
    """Lock an OAuth grant, or return ``None`` for a revoked grant."""
    query = select(OAuthGrant).where(OAuthGrant.id == grant_id, OAuthGrant.revoked_at.is_(None))
    return uow.session.scalar(
        query.with_for_update(key_share=True), execution_options={"populate_existing": True}
    )


def list_grants(
    uow: UnitOfWork, caller: Caller, page_request: PageRequest = UNPAGED
) -> PageOfRows[GrantSummary]:
    """Return the person's grants, which are in the account with the person's id."""
    if not caller.is_in_own_account:
        return PageOfRows([], None)
    grant = OAuthGrant
    client = OAuthClient
    columns = (
        grant.id,
        grant.client_id,
        client.name,
        grant.scopes,
        grant.created_at,
        grant.updated_at,
    )
    query = select(*columns).join(client, client.client_id == grant.client_id)
    query = query.where(
        grant.user_id == caller.person_id, grant.revoked_at.is_(None), client.revoked_at.is_(None)
    )
    query = paging.select_page_by_moment(query, grant.updated_at, grant.id, page_request)
    summaries = [GrantSummary(*row) for row in uow.session.execute(query)]
    return paging.cut_page(
        summaries,
        page_request.limit,
        lambda summary: paging.build_moment_cursor(summary.updated_at, summary.id),
    )


def revoke_grant(uow: UnitOfWork, caller: Caller, grant_id: int) -> int:
    """Return 1 if this call revoked the grant, or 0 if the grant was already revoked."""
    grant = uow.session.get(OAuthGrant, grant_id)
    is_own = grant is not None and grant.user_id == caller.person_id
    if not (is_own and caller.is_in_own_account):
        raise GRANT_NOT_FOUND()
    revoked_grants = record_moment_once(uow, OAuthGrant.revoked_at, OAuthGrant.id == grant_id)
    if revoked_grants:
        record_event(uow, caller.account_id, EventType.GRANT_ENDED, grant_id=grant_id)
    return revoked_grants


def revoke_grants(uow: UnitOfWork, account_id: AccountId, person_id: PersonId) -> None:
    """Revoke all grants of a locked person in an account."""
    revoked_grants = record_moment_once(uow, OAuthGrant.revoked_at, OAuthGrant.user_id == person_id)
    if revoked_grants:
        record_event(uow, account_id, EventType.GRANT_ENDED, grants=revoked_grants)


@dataclass(frozen=True)
class TokenOrigin:
    """The grant, the token family and the scopes of new OAuth tokens.

    Attributes:
        family: the id of the authorization code from which all tokens of the family descend.
        scopes: the scopes of the new refresh token. The new access token may have fewer scopes.
    """

    grant_id: int
    family: int
    scopes: list[str]


@dataclass(frozen=True)
class IssuedToken:
    token: OAuthToken
    client_id: str
    person_id: PersonId
    is_active: bool


def authenticate_token(database: Database, keyring: Keyring, secret: str) -> Caller:
    if not ACCESS_TOKEN.matches(secret):
        raise AUTH_INVALID_ACCESS_TOKEN()
    digests = keyring.signer(_PURPOSE).digests(secret.encode())
    rows = database.rows(_ACTIVE_ACCESS_TOKEN, digests=digests)
    if not rows:
        raise AUTH_INVALID_ACCESS_TOKEN()
    [(grant_id, person_id, token_scopes)] = rows
    scopes = expand_scopes(list_known_scopes(token_scopes)) & GRANTABLE_SCOPES
    return Caller(
        AccountId(person_id),
        PersonId(person_id),
        scopes,
        unrestricted=False,
        grant_id=grant_id,
        role=Role.OWNER,
    )


def store_tokens(uow: UnitOfWork, origin: TokenOrigin, tokens: Mapping[str, Any]) -> None:
    """Store the HMACs of a locked grant's new tokens. The token response contains their secrets."""
    for kind, secret, scopes in (
        (TokenKind.ACCESS, tokens["access_token"], tokens["scope"].split()),
        (TokenKind.REFRESH, tokens["refresh_token"], origin.scopes),
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


def lock_refresh_token(uow: UnitOfWork, secret: str, *, client_id: str) -> OAuthToken | None:
    """Return a client's refresh token, and lock its grant.

    If a client sends a refresh token again after it was replaced, the token counts as stolen, and
    all tokens of its family are revoked.
    """
    issued = find_token(uow, secret, client_id=client_id)
    if issued is None or issued.token.kind != TokenKind.REFRESH:
        return None
    if lock_grant(uow, issued.token.grant_id) is None:
        return None
    uow.session.refresh(issued.token)
    if issued.token.rotated_at is not None:
        revoke_family(uow, issued.token.family)
        return None
    query = select(OAuthToken.id).where(OAuthToken.id == issued.token.id, *_IS_ACTIVE_TOKEN)
    return None if uow.session.scalar(query) is None else issued.token


def mark_rotated(uow: UnitOfWork, token: OAuthToken) -> None:
    """Mark a refresh token of a locked grant as replaced by a new token."""
    token.rotated_at = uow.session.scalar(select(func.clock_timestamp()))
    uow.session.flush()


def find_token(uow: UnitOfWork, secret: str, *, client_id: str) -> IssuedToken | None:
    """Return a client's OAuth token, even if it is expired or revoked."""
    if not (ACCESS_TOKEN.matches(secret) or REFRESH_TOKEN.matches(secret)):
        return None
    is_active = and_(*_IS_ACTIVE_TOKEN, *_IS_ACTIVE_GRANT, OAuthToken.rotated_at.is_(None))
    query = select(OAuthToken, OAuthGrant.user_id, is_active).select_from(_TOKEN_JOIN)
    query = query.where(
        OAuthToken.secret_hmac.in_(uow.settings.keyring.signer(_PURPOSE).digests(secret.encode())),
        OAuthGrant.client_id == client_id,
    )
    row = uow.session.execute(query).one_or_none()
    return None if row is None else IssuedToken(row[0], client_id, row[1], row[2])


def revoke_token(uow: UnitOfWork, token: OAuthToken) -> None:
    if token.kind == TokenKind.REFRESH:
        lock_grant(uow, token.grant_id)
        revoke_family(uow, token.family)
    else:
        record_moment_once(uow, OAuthToken.revoked_at, OAuthToken.id == token.id)


def revoke_family(uow: UnitOfWork, family: int) -> None:
    """Revoke all tokens of a locked grant that descend from an authorization code."""
    record_moment_once(uow, OAuthToken.revoked_at, OAuthToken.family == family)


_ACTIVE_ACCESS_TOKEN = Statement(
    select(OAuthGrant.id, OAuthGrant.user_id, OAuthToken.scopes)
    .select_from(_TOKEN_JOIN)
    .where(
        OAuthToken.secret_hmac == any_(bindparam("digests")),
        OAuthToken.kind == TokenKind.ACCESS,
        *_IS_ACTIVE_TOKEN,
        *_IS_ACTIVE_GRANT,
    )
)
