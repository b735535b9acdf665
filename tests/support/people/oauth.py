"""Simulates an OAuth client, and a person who grants access in a browser."""

import base64
import hashlib
import re
import secrets
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2

from api.auth.csrf import CSRF_HEADER
from core.scopes import Scope
from devstack.harness.stack import Owner, Stack
from services.access import sessions
from services.oauth import clients
from tests.support.people.visiting import SESSION_COOKIE

REDIRECT = "https://client.example/callback"
LOOPBACK = "http://127.0.0.1:5000/callback"


def challenge_of(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def fields_of(location: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(location).query, keep_blank_values=True))


@dataclass
class Person:
    stack: Stack
    owner: Owner
    browser: httpx2.Client

    def csrf_token(self, path: str) -> str:
        page = self.browser.get(path)
        assert page.status_code == 200, page.text
        token = re.search(r'name="csrf_token" value="([^"]+)"', page.text)
        assert token, page.text
        return token[1]

    def answer(self, path: str, *scopes: str, decision: str = "allow") -> httpx2.Response:
        """Press a button of the consent page, with the checkboxes of these scopes checked."""
        form = {"csrf_token": self.csrf_token(path), "decision": decision}
        checkboxes = {f"scope.{scope}": "on" for scope in scopes}
        return self.browser.post(path, data={**form, **checkboxes})


@dataclass
class Program:
    stack: Stack
    client_id: str
    secret: str | None
    redirect_uri: str = REDIRECT
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))

    def request(self, *scopes: str, **others: str | None) -> str:
        """Return the path and query of an OAuth authorization request.

        ``others``: query parameters to add or replace. A parameter whose value is None is omitted.
        """
        parameters = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": " ".join(scopes) or "credit.read",
            "state": "s-1",
            "code_challenge": challenge_of(self.verifier),
            "code_challenge_method": "S256",
            **others,
        }
        return "/oauth/authorize?" + urlencode(
            {name: value for name, value in parameters.items() if value is not None}
        )

    def code(self, person: Person, *scopes: str, **others: str | None) -> str:
        requested_scopes = scopes or ("credit.read",)
        path = self.request(*requested_scopes, **others)
        reply = person.answer(path, *requested_scopes)
        assert reply.status_code == 303, reply.text
        return fields_of(reply.headers["location"])["code"]

    def post(self, path: str, form: dict[str, str], **others: Any) -> httpx2.Response:
        credentials = {"client_id": self.client_id}
        if self.secret is not None:
            credentials["client_secret"] = self.secret
        with self.stack.client() as client:
            return client.post(path, data={**credentials, **form}, **others)

    def exchange(self, code: str, **others: str) -> httpx2.Response:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "code_verifier": self.verifier,
        }
        return self.post("/oauth/token", {**form, **others})

    def refresh(self, token: str, **others: str) -> httpx2.Response:
        form = {"grant_type": "refresh_token", "refresh_token": token}
        return self.post("/oauth/token", {**form, **others})

    def tokens(self, person: Person, *scopes: str) -> dict[str, Any]:
        reply = self.exchange(self.code(person, *scopes))
        assert reply.status_code == 200, reply.text
        tokens: dict[str, Any] = reply.json()
        return tokens


def register(
    stack: Stack,
    *,
    redirect_uris: tuple[str, ...] = (REDIRECT,),
    scopes: tuple[Scope, ...] = (Scope.CREDIT_READ, Scope.CREDIT_FULL, Scope.ATTACHMENT),
    public: bool = False,
    name: str = "Ledger reader",
) -> Program:
    with stack.resources.unit_of_work() as uow:
        client, secret = clients.register_client(
            uow,
            name=name,
            redirect_uris=redirect_uris,
            scopes=scopes,
            public=public,
        )
        return Program(stack, client.client_id, secret, redirect_uris[0])


def log_in(stack: Stack, owner: Owner) -> Person:
    """Log an owner in to a new browser by creating a session directly, without the login page."""
    with stack.resources.unit_of_work() as uow:
        cookie = sessions.begin_session(uow, owner.person_id)
    browser = stack.client()
    browser.cookies.set(SESSION_COOKIE, cookie)
    return Person(stack, owner, browser)


def open_browser(stack: Stack, owner: Owner) -> httpx2.Client:
    """Return a browser in which the owner is logged in, and which sends a valid CSRF token."""
    browser = log_in(stack, owner).browser
    cookie = browser.cookies[SESSION_COOKIE]
    browser.headers[CSRF_HEADER] = sessions.create_csrf_token(stack.resources.keyring, cookie)
    return browser


def is_error(reply: httpx2.Response, status: int, error: str) -> bool:
    """Check the format of an OAuth error (RFC 6749, section 5.2), and return True."""
    assert (reply.status_code, reply.json().get("error")) == (status, error), reply.text
    assert reply.headers["content-type"] == "application/json"
    assert "no-store" in reply.headers["cache-control"]
    assert set(reply.json()) <= {"error", "error_description"}
    return True
