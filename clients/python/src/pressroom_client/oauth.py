"""OAuth 2.0 with PKCE, for programs that act for people: from login to fresh tokens."""

import base64
import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2

from pressroom_client.errors import ApiError
from pressroom_client.generated.operations import Operations

# A token that is about to expire might do so on its way.
_EARLY_SECONDS = 60.0


@dataclass(frozen=True)
class BegunLogin:
    """Send the person to ``url``; keep the rest in their session until they come back."""

    url: str
    state: str
    verifier: str


@dataclass(frozen=True)
class Tokens:
    """The tokens of one person. ``expires_at`` is when ``access_token`` ends, in Unix seconds."""

    access_token: str
    refresh_token: str | None
    expires_at: float
    scope: str


class OAuth:
    """A client program that an operator registered. A public one has no secret."""

    def __init__(
        self,
        base_url: str,
        client_id: str,
        redirect_uri: str,
        *,
        client_secret: str | None = None,
        issuer: str | None = None,
        http: httpx2.Client | None = None,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._client_id = client_id
        self._redirect_uri = redirect_uri
        self._client_secret = client_secret
        # The name of the API for itself, where that is not `base_url`.
        self._issuer = issuer or self._base_url
        self._api = Operations(base_url, http=http)

    def begin(self, scopes: Sequence[str]) -> BegunLogin:
        """A login that asks a person for these scopes."""
        verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
        digest = hashlib.sha256(verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": self._redirect_uri,
            "scope": " ".join(scopes),
            "state": state,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        return BegunLogin(f"{self._base_url}/oauth/authorize?{urlencode(asked)}", state, verifier)

    def finish(self, login: BegunLogin, returned_url: str) -> Tokens:
        """The tokens, by the URL to which the person came back.

        Raises ``ApiError`` when the person said no (`access_denied`), or when the URL belongs to
        another login (`state.mismatch`) or another server (`iss.mismatch`).
        """
        query = parse_qs(urlsplit(returned_url).query)
        returned = {name: values[0] for name, values in query.items()}
        if not secrets.compare_digest(returned.get("state", ""), login.state):
            raise ApiError(0, {"code": "state.mismatch", "detail": "The URL is of another login."})
        if returned.get("iss", "").rstrip("/") != self._issuer:
            raise ApiError(0, {"code": "iss.mismatch", "detail": "Another server answered."})
        if "error" in returned:
            raise ApiError(0, returned)
        return self._ask(
            grant_type="authorization_code",
            code=returned.get("code", ""),
            redirect_uri=self._redirect_uri,
            code_verifier=login.verifier,
        )

    def refresh(self, tokens: Tokens) -> Tokens:
        """New tokens for old. The old refresh token works no more: keep the new ones."""
        return self._ask(grant_type="refresh_token", refresh_token=tokens.refresh_token)

    def revoke(self, tokens: Tokens) -> None:
        """End the access that these tokens give."""
        token = tokens.refresh_token or tokens.access_token
        self._api.revoke_token(self._body(token=token))

    def _ask(self, **grant: str | None) -> Tokens:
        answer = self._api.issue_tokens(self._body(**grant))
        return Tokens(
            access_token=answer["access_token"],
            refresh_token=answer.get("refresh_token"),
            expires_at=time.time() + answer["expires_in"],
            scope=answer.get("scope") or "",
        )

    def _body(self, **fields: str | None) -> Any:
        return {**fields, "client_id": self._client_id, "client_secret": self._client_secret}


class TokenSource:
    """A person's access token, renewed before it expires: ``Pressroom(url, TokenSource(…))``.

    ``on_change`` is given the new tokens, to keep them before they are used. Threads may share it.
    """

    def __init__(
        self, oauth: OAuth, tokens: Tokens, *, on_change: Callable[[Tokens], object]
    ) -> None:
        self._oauth = oauth
        self._tokens = tokens
        self._on_change = on_change
        # Two refreshes with one token would end the access.
        self._lock = threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            if time.time() > self._tokens.expires_at - _EARLY_SECONDS:
                self._tokens = self._oauth.refresh(self._tokens)
                self._on_change(self._tokens)
            return self._tokens.access_token
