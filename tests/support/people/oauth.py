"""A program that asks for access, and a person with a browser who is asked."""

import base64
import hashlib
import re
import secrets
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2

from core.scopes import Scope
from devstack.harness.stack import Owner, Stack
from services.access import sessions
from services.oauth import clients

REDIRECT = "https://client.example/callback"


def challenge_of(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def fields_of(location: str) -> dict[str, str]:
    """What a redirect says to the client."""
    return dict(parse_qsl(urlsplit(location).query, keep_blank_values=True))


@dataclass
class Person:
    """Logged in, in a browser of their own."""

    stack: Stack
    owner: Owner
    browser: httpx2.Client

    def csrf_token(self, path: str) -> str:
        shown = self.browser.get(path)
        assert shown.status_code == 200, shown.text
        found = re.search(r'name="csrf_token" value="([^"]+)"', shown.text)
        assert found, shown.text
        return found[1]

    def answer(self, path: str, *scopes: str, decision: str = "allow") -> httpx2.Response:
        """Press a button of the consent page, with these scopes ticked."""
        form = {"csrf_token": self.csrf_token(path), "decision": decision}
        ticked = {f"scope.{scope}": "on" for scope in scopes}
        return self.browser.post(path, data={**form, **ticked})


@dataclass
class Program:
    """A registered client."""

    stack: Stack
    client_id: str
    secret: str | None
    redirect_uri: str = REDIRECT
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))

    def request(self, *scopes: str, **others: str | None) -> str:
        """The path of an authorization request; ``None`` leaves a parameter out."""
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
        asked = scopes or ("credit.read",)
        reply = person.answer(self.request(*asked, **others), *asked)
        assert reply.status_code == 303, reply.text
        return fields_of(reply.headers["location"])["code"]

    def post(self, path: str, form: dict[str, str], **others: Any) -> httpx2.Response:
        own = {"client_id": self.client_id}
        if self.secret is not None:
            own["client_secret"] = self.secret
        with self.stack.client() as client:
            return client.post(path, data={**own, **form}, **others)

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
        given: dict[str, Any] = reply.json()
        return given


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
    """In a browser of its own, by a session that is made behind the login page."""
    with stack.resources.unit_of_work() as uow:
        cookie = sessions.begin_session(uow, owner.user_id)
    browser = stack.client()
    browser.cookies.set("pressroom_session", cookie)
    return Person(stack, owner, browser)


def is_error(reply: httpx2.Response, status: int, error: str) -> bool:
    """Whether it is an answer of RFC 6749, 5.2, and gives nothing."""
    assert (reply.status_code, reply.json().get("error")) == (status, error), reply.text
    assert reply.headers["content-type"] == "application/json"
    assert "no-store" in reply.headers["cache-control"]
    assert set(reply.json()) <= {"error", "error_description"}
    return True
