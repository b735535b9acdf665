"""How a client authenticates: by its secret, or by its id alone where it can't keep a secret.

Every exchange of a code also needs PKCE (RFC 7636) by S256: the client proves that it asked for the
code. Authlib lets a confidential client do without, and knows the method "plain", which proves
nothing against an attacker who saw the request.
"""

import base64
import hmac
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

from authlib.oauth2.rfc6749 import InvalidClientError, InvalidRequestError
from authlib.oauth2.rfc7636 import CodeChallenge, create_s256_code_challenge

from services.oauth.adapters import AuthlibRequest

_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}\Z")


@dataclass(frozen=True)
class PresentedCredentials:
    client_id: str
    secret: str | None
    # As the metadata names them: client_secret_basic, client_secret_post or none.
    method: str


def client_refused() -> InvalidClientError:
    """The same error for each fault, so that a stranger can't learn which clients exist."""
    return InvalidClientError(
        "The client is unknown, or its credentials are wrong.", status_code=401
    )


def read_credentials(request: AuthlibRequest) -> PresentedCredentials:
    """Raises ``InvalidClientError`` without credentials, ``InvalidRequestError`` for two ways."""
    client_id, secret = request.form.get("client_id"), request.form.get("client_secret")
    header = request.headers.get("Authorization")
    if header is None:
        if client_id is None:
            raise client_refused()
        return PresentedCredentials(client_id, secret, "client_secret_post" if secret else "none")
    # The client id and the secret, both encoded as in a form (RFC 6749, 2.3.1).
    scheme, _, encoded = header.partition(" ")
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True).decode()
    except ValueError:
        raise client_refused() from None
    sent_id, colon, sent_secret = decoded.partition(":")
    if scheme.lower() != "basic" or not colon or "\0" in decoded:
        raise client_refused()
    basic_id, basic_secret = unquote_plus(sent_id), unquote_plus(sent_secret) or None
    if secret is not None or client_id not in {None, basic_id}:
        raise InvalidRequestError("A client authenticates in one way only.")
    return PresentedCredentials(
        basic_id, basic_secret, "client_secret_basic" if basic_secret else "none"
    )


class ProofKey(CodeChallenge):
    SUPPORTED_CODE_CHALLENGE_METHOD = ("S256",)
    CODE_CHALLENGE_METHODS = {  # noqa: RUF012 - Authlib reads it so
        "S256": lambda verifier, challenge: hmac.compare_digest(
            create_s256_code_challenge(verifier), challenge
        )
    }

    def validate_code_challenge(self, grant: Any, _redirect_uri: str) -> None:
        sent = grant.request.payload.data
        if sent.get("code_challenge_method") != "S256":
            raise InvalidRequestError("The code_challenge_method must be S256.")
        if not _CHALLENGE.match(sent.get("code_challenge", "")):
            raise InvalidRequestError("The code_challenge must be the SHA-256 of the verifier.")
