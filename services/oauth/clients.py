"""OAuth clients: programs that people may let act for them. The operator registers them."""

import hmac
import re
from collections.abc import Iterable
from urllib.parse import SplitResult, urlsplit, urlunsplit

from sqlalchemy import select

from core.errors import access as errors
from core.errors.access import OAUTH_CLIENT_REDIRECT_URI
from core.ids import random_hash_id
from core.keyring import Keyring
from core.scopes import GRANTABLE_SCOPES, Scope
from core.secret_form import CLIENT_SECRET
from models import OAuthClient
from storage.unit_of_work import UnitOfWork, record_moment_once

MAX_REDIRECT_URI_CHARACTERS = 2000
# A program on a person's own device listens at one of these addresses, on any free port (RFC 8252,
# 7.3). "localhost" may be another machine, so its port must match like any other host's.
_LOOPBACK = {"127.0.0.1", "::1"}
# Printable ASCII of RFC 3986. Browsers read a backslash as a slash, and no URI has one.
_CHARACTERS = re.compile(r"[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=%-]+\Z")
# A private scheme is a reversed domain name (RFC 8252, 7.1), so that no other program has it.
_OWN_SCHEME = re.compile(r"[a-z][a-z0-9-]*(\.[a-z0-9-]+)+\Z")


def require_registrable(uri: str) -> None:
    """Raises ``oauth_client.redirect_uri`` for a URI that no client may register."""
    parts = _split(uri)
    if parts is None or not _CHARACTERS.match(uri) or len(uri) > MAX_REDIRECT_URI_CHARACTERS:
        raise OAUTH_CLIENT_REDIRECT_URI(uri=uri, reason="is no plain URI")
    if parts.fragment or "#" in uri:
        raise OAUTH_CLIENT_REDIRECT_URI(uri=uri, reason="has a fragment")
    if urlunsplit(parts) != uri:
        raise OAUTH_CLIENT_REDIRECT_URI(uri=uri, reason="is not in its usual spelling")
    if parts.scheme in {"http", "https"}:
        if "@" in parts.netloc or not parts.hostname:
            raise OAUTH_CLIENT_REDIRECT_URI(uri=uri, reason="has no plain host")
        if parts.scheme == "http" and parts.hostname not in {*_LOOPBACK, "localhost"}:
            reason = "must be https, unless it is on loopback"
            raise OAUTH_CLIENT_REDIRECT_URI(uri=uri, reason=reason)
    elif not _OWN_SCHEME.match(parts.scheme) or parts.netloc or not parts.path.startswith("/"):
        raise OAUTH_CLIENT_REDIRECT_URI(
            uri=uri, reason="must be https, http on loopback, or com.example.app:/path"
        )


def is_registered(uri: str, registered: list[str]) -> bool:
    """Return whether the client registered the URI, but for the port of a loopback."""
    return uri in registered or any(_differs_by_port(uri, each) for each in registered)


def _differs_by_port(uri: str, registered: str) -> bool:
    sent = _split(uri)
    known = _split(registered)
    if sent is None or known is None or known.scheme != "http" or known.hostname not in _LOOPBACK:
        return False
    host = f"[{known.hostname}]" if known.hostname == "::1" else known.hostname
    # Built anew from the registered URI, so that only the port can differ.
    return sent.port is not None and uri == urlunsplit(known._replace(netloc=f"{host}:{sent.port}"))


def _split(uri: str) -> SplitResult | None:
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return None
    return parts


MAX_CLIENT_NAME_CHARACTERS = 100
_ID_CHARACTERS = 20
_PURPOSE = "oauth-client"


def create(
    uow: UnitOfWork,
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
        raise errors.OAUTH_CLIENT_NAME(most=MAX_CLIENT_NAME_CHARACTERS)
    uris = list(dict.fromkeys(redirect_uris))
    if not uris:
        raise errors.OAUTH_CLIENT_REDIRECT_URI_MISSING()
    for uri in uris:
        require_registrable(uri)
    chosen = set(scopes)
    if not chosen:
        raise errors.OAUTH_CLIENT_SCOPES_MISSING()
    if chosen - GRANTABLE_SCOPES:
        raise errors.OAUTH_CLIENT_SCOPES(scopes=", ".join(sorted(chosen - GRANTABLE_SCOPES)))
    secret = None if public else CLIENT_SECRET.generate()
    client = OAuthClient(
        client_id=random_hash_id(_ID_CHARACTERS),
        name=name,
        secret_hmac=None
        if secret is None
        else uow.settings.keyring.signer(_PURPOSE).digest(secret.encode()),
        redirect_uris=uris,
        scopes=sorted(chosen),
    )
    uow.session.add(client)
    uow.session.flush()
    return client, secret


def find(uow: UnitOfWork, client_id: str) -> OAuthClient | None:
    """The client, unless it was revoked."""
    query = select(OAuthClient).where(OAuthClient.client_id == client_id)
    return uow.session.scalar(query.where(OAuthClient.revoked_at.is_(None)))


def is_secret(keyring: Keyring, client: OAuthClient | None, sent: str) -> bool:
    """Return whether it is the client's secret; without such a client the check takes as long."""
    known = client.secret_hmac if client is not None and client.secret_hmac else bytes(32)
    digests = keyring.signer(_PURPOSE).digests(sent.encode())
    matches = [hmac.compare_digest(known, each) for each in digests]
    return any(matches)


def list_of(uow: UnitOfWork, *, limit: int = 1000) -> list[OAuthClient]:
    """All clients, newest first, revoked ones too."""
    newest = (OAuthClient.created_at.desc(), OAuthClient.client_id)
    return list(uow.session.scalars(select(OAuthClient).order_by(*newest).limit(limit)))


def revoke(uow: UnitOfWork, client_id: str) -> int:
    """Revoke a client with its grants: 1, or 0 if it was. Raises ``oauth_client.not_found``."""
    if uow.session.get(OAuthClient, client_id) is None:
        raise errors.OAUTH_CLIENT_NOT_FOUND()
    return record_moment_once(uow, OAuthClient.revoked_at, OAuthClient.client_id == client_id)
