"""PKCE (RFC 7636): who exchanges a code shows that they asked for it. By S256, and always.

Authlib lets a confidential client do without, and knows the method "plain", which proves nothing to
whoever saw the request.
"""

import hmac
import re
from typing import Any

from authlib.oauth2.rfc6749 import InvalidRequestError
from authlib.oauth2.rfc7636 import CodeChallenge, create_s256_code_challenge

_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}\Z")


def _is_proof(verifier: str, challenge: str) -> bool:
    return hmac.compare_digest(create_s256_code_challenge(verifier), challenge)


class ProofKey(CodeChallenge):
    SUPPORTED_CODE_CHALLENGE_METHOD = ("S256",)
    CODE_CHALLENGE_METHODS = {"S256": _is_proof}  # noqa: RUF012 - Authlib reads it so

    def validate_code_challenge(self, grant: Any, _redirect_uri: str) -> None:
        sent = grant.request.payload.data
        if sent.get("code_challenge_method") != "S256":
            raise InvalidRequestError("The code_challenge_method must be S256.")
        if not _CHALLENGE.match(sent.get("code_challenge", "")):
            raise InvalidRequestError("The code_challenge must be the SHA-256 of the verifier.")
