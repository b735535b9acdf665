"""OAuth clients: programs that people may let act for them. The operator registers them."""

import hmac
from collections.abc import Iterable

from sqlalchemy import select

from core.ids import random_hash_id
from core.keyring import Keyring
from core.refusals import oauth as refusals
from core.scopes import GRANTABLE, Scope
from core.secret_form import CLIENT_SECRET
from models import OAuthClient
from services.oauth import redirect_uris as redirects
from storage.moments import note_once
from storage.unit_of_work import UnitOfWork

MAX_CLIENT_NAME_CHARACTERS = 100
_ID_CHARACTERS = 20
_PURPOSE = "oauth-client"


def create(
    uow: UnitOfWork,
    keyring: Keyring,
    *,
    name: str,
    redirect_uris: Iterable[str],
    scopes: Iterable[Scope],
    public: bool,
) -> tuple[OAuthClient, str | None]:
    """A new client and its secret, which is shown this once; a public client has none."""
    name = name.strip()
    # People decide by the name, so every character of it must be visible.
    if not 1 <= len(name) <= MAX_CLIENT_NAME_CHARACTERS or not name.isprintable():
        raise refusals.OAUTH_CLIENT_NAME(most=MAX_CLIENT_NAME_CHARACTERS)
    uris = list(dict.fromkeys(redirect_uris))
    if not uris:
        raise refusals.OAUTH_CLIENT_REDIRECT_URI_MISSING()
    for uri in uris:
        redirects.require_registrable(uri)
    chosen = set(scopes)
    if not chosen:
        raise refusals.OAUTH_CLIENT_SCOPES_MISSING()
    if chosen - GRANTABLE:
        raise refusals.OAUTH_CLIENT_SCOPES(scopes=", ".join(sorted(chosen - GRANTABLE)))
    secret = None if public else CLIENT_SECRET.generate()
    client = OAuthClient(
        client_id=random_hash_id(_ID_CHARACTERS),
        name=name,
        secret_hmac=None if secret is None else keyring.signer(_PURPOSE).digest(secret.encode()),
        redirect_uris=uris,
        scopes=sorted(chosen),
    )
    uow.session.add(client)
    uow.session.flush()
    return client, secret


def find(uow: UnitOfWork, client_id: str) -> OAuthClient | None:
    """The client, unless it was revoked."""
    query = select(OAuthClient).where(
        OAuthClient.client_id == client_id, OAuthClient.revoked_at.is_(None)
    )
    return uow.session.scalar(query)


def is_secret(keyring: Keyring, client: OAuthClient | None, sent: str) -> bool:
    """Whether it is the client's secret. The check takes as long when there is no such client."""
    known = client.secret_hmac if client is not None and client.secret_hmac else bytes(32)
    matches = [
        hmac.compare_digest(known, each) for each in keyring.signer(_PURPOSE).digests(sent.encode())
    ]
    return any(matches)


def list_of(uow: UnitOfWork, *, limit: int = 1000) -> list[OAuthClient]:
    """All clients, newest first, revoked ones too."""
    newest = (OAuthClient.created_at.desc(), OAuthClient.client_id)
    return list(uow.session.scalars(select(OAuthClient).order_by(*newest).limit(limit)))


def revoke(uow: UnitOfWork, client_id: str) -> int:
    """Revoke a client, and so its grants and tokens: 1, or 0 when it was revoked already.

    Raises ``oauth_client.not_found``.
    """
    if uow.session.get(OAuthClient, client_id) is None:
        raise refusals.OAUTH_CLIENT_NOT_FOUND()
    return note_once(uow, OAuthClient.revoked_at, OAuthClient.client_id == client_id)
