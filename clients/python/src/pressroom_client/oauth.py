"""Implements OAuth 2.0 with PKCE for programs that act on behalf of people."""

import asyncio
import base64
import hashlib
import inspect
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
from typing_extensions import Self

from pressroom_client.environment import tidy_url
from pressroom_client.errors import ApiError
from pressroom_client.generated import types
from pressroom_client.generated.async_operations import AsyncOperations
from pressroom_client.generated.operations import Operations

# An access token is refreshed this many seconds before its expiry, so that the token doesn't expire
# during a call.
_EARLY_SECONDS = 60.0


@dataclass(frozen=True)
class BegunLogin:
    """A login in progress.

    The caller must redirect the person to ``url``, and store the ``BegunLogin`` in the person's
    session until the person returns from the login page.
    """

    url: str
    state: str
    verifier: str = field(repr=False)


@dataclass(frozen=True)
class Tokens:
    """The tokens of one person. ``access_token`` expires at ``expires_at``, in Unix seconds."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    expires_at: float
    scope: str


class Program:
    """A registered program, which builds the requests of its logins."""

    def __init__(
        self,
        base_url: str,
        client_id: str,
        redirect_uri: str,
        *,
        client_secret: str | None = None,
        issuer: str | None = None,
    ) -> None:
        self._base_url = tidy_url(base_url)
        self._client_id = client_id
        self._redirect_uri = redirect_uri
        self._client_secret = client_secret and client_secret.strip()
        # The issuer that the API names in its OAuth responses, which may differ from `base_url`.
        self._issuer = issuer or self._base_url

    def begin_login(self, scopes: Sequence[str]) -> BegunLogin:
        verifier = secrets.token_urlsafe(48)
        state = secrets.token_urlsafe(24)
        digest = hashlib.sha256(verifier.encode()).digest()
        parameters = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": self._redirect_uri,
            "scope": " ".join(scopes),
            "state": state,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        url = f"{self._base_url}/oauth/authorize?{urlencode(parameters)}"
        return BegunLogin(url, state, verifier)

    def build_code_body(self, login: BegunLogin, returned_url: str) -> Any:
        """Return the body of the call that exchanges the code in the returned URL for tokens.

        Raises ``ApiError`` if the URL contains an error, or belongs to another login or server.
        """
        query = parse_qs(urlsplit(returned_url).query)
        returned = {name: values[0] for name, values in query.items()}
        if not secrets.compare_digest(returned.get("state", ""), login.state):
            raise ApiError(0, {"code": "state.mismatch", "detail": "The URL is of another login."})
        if returned.get("iss", "").rstrip("/") != self._issuer:
            raise ApiError(0, {"code": "iss.mismatch", "detail": "Another server answered."})
        if "error" in returned:
            raise ApiError(0, returned)
        return self.build_body(
            grant_type="authorization_code",
            code=returned.get("code", ""),
            redirect_uri=self._redirect_uri,
            code_verifier=login.verifier,
        )

    def build_refresh_body(self, tokens: Tokens) -> Any:
        return self.build_body(grant_type="refresh_token", refresh_token=tokens.refresh_token)

    def build_revoke_body(self, tokens: Tokens) -> Any:
        return self.build_body(token=tokens.refresh_token or tokens.access_token)

    def build_body(self, **fields: str | None) -> Any:
        return {**fields, "client_id": self._client_id, "client_secret": self._client_secret}


class OAuth:
    """The OAuth client of a registered program. A public OAuth client has no secret."""

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
        self._program = Program(
            base_url, client_id, redirect_uri, client_secret=client_secret, issuer=issuer
        )
        self._api = Operations(base_url, http=http)

    def begin(self, scopes: Sequence[str]) -> BegunLogin:
        """Start a login in which a person grants the client these scopes."""
        return self._program.begin_login(scopes)

    def finish(self, login: BegunLogin, returned_url: str) -> Tokens:
        """Exchange the code in the returned URL for tokens.

        Raises ``ApiError`` if the person denied access (`access_denied`), or if the URL belongs to
        another login (`state.mismatch`) or to another server (`iss.mismatch`).

        Args:
            returned_url: the URL to which the authorization server redirected the person's browser.
        """
        body = self._program.build_code_body(login, returned_url)
        return _read_tokens(self._api.oauth.issue_tokens(body))

    def refresh(self, tokens: Tokens) -> Tokens:
        """Exchange the refresh token for new tokens, which invalidates the old refresh token."""
        body = self._program.build_refresh_body(tokens)
        return _read_tokens(self._api.oauth.issue_tokens(body))

    def revoke(self, tokens: Tokens) -> None:
        """Revoke the tokens, and the grant for which they were issued."""
        self._api.oauth.revoke_token(self._program.build_revoke_body(tokens))


class AsyncOAuth:
    """The asynchronous variant of ``OAuth``, with the same arguments and methods.

    Close the client with ``aclose`` after use, or use the client in an ``async with`` block.
    """

    def __init__(
        self,
        base_url: str,
        client_id: str,
        redirect_uri: str,
        *,
        client_secret: str | None = None,
        issuer: str | None = None,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        self._program = Program(
            base_url, client_id, redirect_uri, client_secret=client_secret, issuer=issuer
        )
        self._api = AsyncOperations(base_url, http=http)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._api.aclose()

    def begin(self, scopes: Sequence[str]) -> BegunLogin:
        """Start a login in which a person grants the client these scopes."""
        return self._program.begin_login(scopes)

    async def finish(self, login: BegunLogin, returned_url: str) -> Tokens:
        """Exchange the code in the returned URL for tokens.

        Raises ``ApiError`` if the person denied access (`access_denied`), or if the URL belongs to
        another login (`state.mismatch`) or to another server (`iss.mismatch`).

        Args:
            returned_url: the URL to which the authorization server redirected the person's browser.
        """
        body = self._program.build_code_body(login, returned_url)
        return _read_tokens(await self._api.oauth.issue_tokens(body))

    async def refresh(self, tokens: Tokens) -> Tokens:
        """Exchange the refresh token for new tokens, which invalidates the old refresh token."""
        body = self._program.build_refresh_body(tokens)
        return _read_tokens(await self._api.oauth.issue_tokens(body))

    async def revoke(self, tokens: Tokens) -> None:
        """Revoke the tokens, and the grant for which they were issued."""
        await self._api.oauth.revoke_token(self._program.build_revoke_body(tokens))


class TokenSource:
    """Returns a person's access token, and refreshes the token before it expires.

    Pass a token source as credentials, such as ``Pressroom(url, TokenSource(…))``. Threads may
    share a token source.

    Args:
        on_change: a function that stores new tokens. The token source calls ``on_change`` before it
            uses the new tokens. If ``on_change`` raises an error, the next call repeats
            ``on_change``.
    """

    def __init__(
        self, oauth: OAuth, tokens: Tokens, *, on_change: Callable[[Tokens], object]
    ) -> None:
        self._oauth = oauth
        self._tokens = tokens
        self._on_change = on_change
        self._is_stored = True
        # The lock ensures that each refresh token is used once, because the API revokes the access
        # after a second use.
        self._lock = threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            if _must_refresh(self._tokens):
                self._tokens = self._oauth.refresh(self._tokens)
                self._is_stored = False
            if not self._is_stored:
                self._on_change(self._tokens)
                self._is_stored = True
            return self._tokens.access_token


class AsyncTokenSource:
    """Returns a person's access token, and refreshes the token before it expires.

    Pass a token source as credentials, such as ``AsyncPressroom(url, AsyncTokenSource(…))``.
    Asyncio tasks may share a token source.

    Args:
        on_change: a function or coroutine function that stores new tokens. The token source calls
            ``on_change`` before it uses the new tokens. If ``on_change`` raises an error, the next
            call repeats ``on_change``.
    """

    def __init__(
        self, oauth: AsyncOAuth, tokens: Tokens, *, on_change: Callable[[Tokens], object]
    ) -> None:
        self._oauth = oauth
        self._tokens = tokens
        self._on_change = on_change
        self._is_stored = True
        # All callers await the same task, because the API revokes the access if a refresh token is
        # used twice.
        self._refresh: asyncio.Task[None] | None = None

    async def __call__(self) -> str:
        if _must_refresh(self._tokens) or not self._is_stored:
            if self._refresh is None or self._refresh.done():
                self._refresh = asyncio.create_task(self._refresh_tokens())
            # Cancelling one caller must not cancel the refresh, because the new tokens would be
            # lost.
            await asyncio.shield(self._refresh)
        return self._tokens.access_token

    async def _refresh_tokens(self) -> None:
        if _must_refresh(self._tokens):
            self._tokens = await self._oauth.refresh(self._tokens)
            self._is_stored = False
        outcome = self._on_change(self._tokens)
        if inspect.isawaitable(outcome):
            await outcome
        self._is_stored = True


def _must_refresh(tokens: Tokens) -> bool:
    return time.time() > tokens.expires_at - _EARLY_SECONDS


def _read_tokens(answer: "types.TokenAnswer") -> Tokens:
    return Tokens(
        access_token=answer["access_token"],
        refresh_token=answer.get("refresh_token"),
        expires_at=time.time() + answer["expires_in"],
        scope=answer.get("scope") or "",
    )
