"""Registers and revokes OAuth clients, the programs to which people can give access to their data.

The operator registers OAuth clients.
"""

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
MAX_CLIENT_NAME_CHARACTERS = 100
_ID_CHARACTERS = 20
_PURPOSE = "oauth-client"
# The loopback addresses at which a program on a person's device can receive redirects on any port
# (RFC 8252, 7.3). A redirect URI with "localhost" must have the registered port, because
# "localhost" may resolve to a different machine.
_LOOPBACK_ADDRESSES = {"127.0.0.1", "::1"}
# The characters that RFC 3986 allows in a URI. The set excludes backslashes, because browsers treat
# backslashes as slashes.
_URI_CHARACTERS = re.compile(r"[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=%-]+\Z")
# A private URI scheme must be a reversed domain name, so that two programs don't use the same
# scheme (RFC 8252, 7.1).
_PRIVATE_SCHEME = re.compile(r"[a-z][a-z0-9-]*(\.[a-z0-9-]+)+\Z")


def require_registrable_uri(uri: str) -> None:
    parts = _split_uri(uri)
    if parts is None or not _URI_CHARACTERS.match(uri) or len(uri) > MAX_REDIRECT_URI_CHARACTERS:
        raise OAUTH_CLIENT_REDIRECT_URI(uri=uri, reason="is not a valid URI")
    if parts.fragment or "#" in uri:
        raise OAUTH_CLIENT_REDIRECT_URI(uri=uri, reason="has a fragment")
    if urlunsplit(parts) != uri:
        raise OAUTH_CLIENT_REDIRECT_URI(uri=uri, reason="is not in normal form")
    if parts.scheme in {"http", "https"}:
        if "@" in parts.netloc or not parts.hostname:
            raise OAUTH_CLIENT_REDIRECT_URI(uri=uri, reason="has no valid host")
        if parts.scheme == "http" and parts.hostname not in {*_LOOPBACK_ADDRESSES, "localhost"}:
            reason = "must use https, except for loopback addresses"
            raise OAUTH_CLIENT_REDIRECT_URI(uri=uri, reason=reason)
    elif not _PRIVATE_SCHEME.match(parts.scheme) or parts.netloc or not parts.path.startswith("/"):
        raise OAUTH_CLIENT_REDIRECT_URI(
            uri=uri,
            reason=(
                "must use https, http on a loopback address, or a private scheme such as "
                "com.example.app:/path"
            ),
        )


def is_registered_uri(uri: str, registered: list[str]) -> bool:
    """Return whether a redirect URI is registered. A loopback address may have any port."""
    return uri in registered or any(
        _differs_only_by_port(uri, registered_uri) for registered_uri in registered
    )


def _differs_only_by_port(uri: str, registered: str) -> bool:
    sent_parts = _split_uri(uri)
    parts = _split_uri(registered)
    if sent_parts is None or parts is None:
        return False
    if parts.scheme != "http" or parts.hostname not in _LOOPBACK_ADDRESSES:
        return False
    host = f"[{parts.hostname}]" if parts.hostname == "::1" else parts.hostname
    # Insert the requested port into the registered URI, because only the ports of the two URIs are
    # allowed to differ.
    expected = urlunsplit(parts._replace(netloc=f"{host}:{sent_parts.port}"))
    return sent_parts.port is not None and uri == expected


def _split_uri(uri: str) -> SplitResult | None:
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return None
    return parts


def register_client(
    uow: UnitOfWork,
    *,
    name: str,
    redirect_uris: Iterable[str],
    scopes: Iterable[Scope],
    public: bool,
) -> tuple[OAuthClient, str | None]:
    """Register an OAuth client, and return it with its secret, which a public client lacks.

    The database stores only the HMAC of the secret.
    """
    name = name.strip()
    # Reject invisible characters, because people rely on the client's name when they grant access.
    if not 1 <= len(name) <= MAX_CLIENT_NAME_CHARACTERS or not name.isprintable():
        raise errors.OAUTH_CLIENT_NAME(most=MAX_CLIENT_NAME_CHARACTERS)
    uris = list(dict.fromkeys(redirect_uris))
    if not uris:
        raise errors.OAUTH_CLIENT_REDIRECT_URI_MISSING()
    for uri in uris:
        require_registrable_uri(uri)
    client_scopes = set(scopes)
    if not client_scopes:
        raise errors.OAUTH_CLIENT_SCOPES_MISSING()
    if client_scopes - GRANTABLE_SCOPES:
        raise errors.OAUTH_CLIENT_SCOPES(scopes=", ".join(sorted(client_scopes - GRANTABLE_SCOPES)))
    secret = None if public else CLIENT_SECRET.generate()
    client = OAuthClient(
        client_id=random_hash_id(_ID_CHARACTERS),
        name=name,
        secret_hmac=None
        if secret is None
        else uow.settings.keyring.signer(_PURPOSE).digest(secret.encode()),
        redirect_uris=uris,
        scopes=sorted(client_scopes),
    )
    uow.session.add(client)
    uow.session.flush()
    return client, secret


def find_client(uow: UnitOfWork, client_id: str) -> OAuthClient | None:
    query = select(OAuthClient).where(OAuthClient.client_id == client_id)
    return uow.session.scalar(query.where(OAuthClient.revoked_at.is_(None)))


def is_valid_secret(keyring: Keyring, client: OAuthClient | None, sent: str) -> bool:
    """Return whether an OAuth client has sent the right secret.

    The check takes equally long for an unknown client, so that the response time doesn't reveal
    which clients exist.
    """
    secret_hmac = client.secret_hmac if client is not None and client.secret_hmac else bytes(32)
    digests = keyring.signer(_PURPOSE).digests(sent.encode())
    # Compare all digests of the secret even after a match, so that the comparison always takes
    # equally long.
    matches = [hmac.compare_digest(secret_hmac, digest) for digest in digests]
    return any(matches)


def list_clients(uow: UnitOfWork, *, limit: int = 1000) -> list[OAuthClient]:
    newest_first = (OAuthClient.created_at.desc(), OAuthClient.client_id)
    return list(uow.session.scalars(select(OAuthClient).order_by(*newest_first).limit(limit)))


def revoke_client(uow: UnitOfWork, client_id: str) -> int:
    """Revoke an OAuth client, so that all its grants stop working."""
    if uow.session.get(OAuthClient, client_id) is None:
        raise errors.OAUTH_CLIENT_NOT_FOUND()
    return record_moment_once(uow, OAuthClient.revoked_at, OAuthClient.client_id == client_id)
