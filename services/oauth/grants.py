"""Grants: what people let clients do.

A request that issues a code or token under a grant, or revokes its tokens, locks the grant first.
So these requests take turns, and no secret is issued after the grant was revoked.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select

from core import clock
from core.refusals.oauth import GRANT_NOT_FOUND
from core.scopes import Scope
from models import OAuthClient, OAuthGrant
from services import paging
from services.access import recent_logins
from services.events.catalogue import EventType
from services.events.recording import record
from services.paging import WHOLE, PageOfRows, PageRequest
from services.people import account_mails, accounts
from services.people.account_mails import MailKind
from storage.moments import note_once
from storage.unit_of_work import UnitOfWork


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
    uow: UnitOfWork,
    *,
    user_id: int,
    client: OAuthClient,
    scopes: Collection[Scope],
    request_id: str | None,
) -> OAuthGrant:
    """The person's grant for the client, with these scopes added; a mail tells of new ones."""
    # One consent of a person at a time, and none from a page that was open when they were erased.
    recent_logins.lock_person(uow, user_id)
    grant = uow.session.scalar(
        select(OAuthGrant).where(
            OAuthGrant.user_id == user_id,
            OAuthGrant.client_id == client.client_id,
            OAuthGrant.revoked_at.is_(None),
        )
    )
    if grant is None:
        grant = OAuthGrant(user_id=user_id, client_id=client.client_id, scopes=[])
        uow.session.add(grant)
    has_new = not set(scopes) <= set(grant.scopes)
    if has_new:
        account_mails.request_mail(
            uow,
            MailKind.NEW_PROGRAM,
            accounts.get(uow, user_id).email,
            user_id=user_id,
            detail=client.name,
            request_id=request_id,
        )
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
    query = (
        select(
            OAuthGrant.id,
            OAuthGrant.client_id,
            OAuthClient.name.label("client_name"),
            OAuthGrant.scopes,
            OAuthGrant.created_at,
            OAuthGrant.updated_at,
        )
        .join(OAuthClient, OAuthClient.client_id == OAuthGrant.client_id)
        .where(
            OAuthGrant.user_id == user_id,
            OAuthGrant.revoked_at.is_(None),
            OAuthClient.revoked_at.is_(None),
        )
    )
    query = paging.by_moment(query, OAuthGrant.updated_at, OAuthGrant.id, wanted)
    found = [GrantSummary(*row) for row in uow.session.execute(query)]
    return paging.cut(
        found, wanted.limit, lambda each: paging.moment_cursor(each.updated_at, each.id)
    )


def revoke(uow: UnitOfWork, *, grant_id: int, user_id: int) -> int:
    """Revoke the user's grant, and so its tokens: 1, or 0 when it was revoked already.

    Raises ``grant.not_found``.
    """
    grant = uow.session.get(OAuthGrant, grant_id)
    if grant is None or grant.user_id != user_id:
        raise GRANT_NOT_FOUND()
    revoked = note_once(uow, OAuthGrant.revoked_at, OAuthGrant.id == grant_id)
    if revoked:
        record(uow, user_id, EventType.GRANT_ENDED, grant_id=grant_id)
    return revoked


def revoke_all(uow: UnitOfWork, user_id: int) -> None:
    """Revoke the grants of a person whom the caller has locked."""
    revoked = note_once(uow, OAuthGrant.revoked_at, OAuthGrant.user_id == user_id)
    if revoked:
        record(uow, user_id, EventType.GRANT_ENDED, grants=revoked)
