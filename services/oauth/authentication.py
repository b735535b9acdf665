"""Which client sent a request: by its secret, or by its name alone where it can't keep one."""

import base64
from dataclasses import dataclass
from urllib.parse import unquote_plus

from authlib.oauth2.rfc6749 import InvalidClientError, InvalidRequestError

from services.oauth.adapters import AuthlibRequest


@dataclass(frozen=True)
class PresentedCredentials:
    client_id: str
    secret: str | None
    # As the metadata names them: client_secret_basic, client_secret_post or none.
    method: str


def client_refused() -> InvalidClientError:
    """The same whatever is wrong, so that nobody learns which clients there are."""
    return InvalidClientError(
        "The client is unknown, or its credentials are wrong.", status_code=401
    )


def read_credentials(request: AuthlibRequest) -> PresentedCredentials:
    """Raises ``InvalidClientError`` without any, ``InvalidRequestError`` for two that differ."""
    client_id, secret = request.form.get("client_id"), request.form.get("client_secret")
    header = request.headers.get("Authorization")
    if header is None:
        if client_id is None:
            raise client_refused()
        return PresentedCredentials(client_id, secret, "client_secret_post" if secret else "none")
    basic_id, basic_secret = _read_basic(header)
    if secret is not None or client_id not in {None, basic_id}:
        raise InvalidRequestError("A client authenticates in one way only.")
    return PresentedCredentials(
        basic_id, basic_secret, "client_secret_basic" if basic_secret else "none"
    )


def _read_basic(header: str) -> tuple[str, str | None]:
    """Both parts are encoded as in a form (RFC 6749, 2.3.1)."""
    scheme, _, encoded = header.partition(" ")
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True).decode()
    except ValueError:
        raise client_refused() from None
    client_id, colon, secret = decoded.partition(":")
    if scheme.lower() != "basic" or not colon or "\0" in decoded:
        raise client_refused()
    return unquote_plus(client_id), unquote_plus(secret) or None
