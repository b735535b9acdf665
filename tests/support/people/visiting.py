"""Simulates people who open pages in a browser, fill in forms and receive mail."""

import html
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx2

from core.ids import PersonId
from devstack import LOOPBACK
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack, plain_client
from services.access import sessions
from services.accounts import accounts

PASSWORD = "correct horse battery"
OTHER_PASSWORD = "an altogether other one"
SESSION_COOKIE = "pressroom_session"
_HIDDEN = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)"')
_FORM = re.compile(r"<form.*?</form>", re.DOTALL)


@dataclass
class Visitor:
    stack: Stack
    client: httpx2.Client

    def get(self, path: str, **query: str) -> httpx2.Response:
        return self.client.get(path, params=query or None)

    def fill_in(self, path: str, /, **fields: str) -> httpx2.Response:
        """Open a page, and submit the page's form with ``fields``, without following redirects."""
        page = self.get(path)
        assert page.status_code == 200, page.text
        return self.client.post(path, data={**read_hidden_fields(page), **fields})

    def log_in(self, email: str, password: str = PASSWORD, **more: str) -> httpx2.Response:
        return self.fill_in("/login", email=email, password=password, **more)

    def enter(self, email: str, *, browser: str | None = None) -> None:
        """Log in by creating a session directly, because the login form would be slow."""
        user_id = user_id_of(self.stack, email)
        with self.stack.resources.unit_of_work() as uow:
            value = sessions.begin_session(uow, PersonId(user_id), browser=browser)
        self.client.cookies.set(SESSION_COOKIE, value, domain=LOOPBACK, path="/")

    def is_logged_in(self) -> bool:
        return self.client.get("/users/me").status_code == 200

    @property
    def cookie(self) -> str:
        return self.client.cookies[SESSION_COOKIE]

    def csrf_token(self) -> str:
        return read_hidden_fields(self.get("/account"))["csrf_token"]

    def mailed(self, email: str, subject: str, *, number: int = 1) -> str:
        """Wait for ``number`` mails with a subject, and return the text of the newest mail."""

        def find_texts() -> list[str]:
            mails = [each for each in self.stack.mails(email) if each["subject"] == subject]
            return [each["text"] for each in mails] if len(mails) >= number else []

        texts = eventually(find_texts, what=f"mail to {email}: {subject}")
        return str(texts[0])

    def mailed_path(self, email: str, subject: str, *, number: int = 1) -> str:
        """Wait for a mail with a subject, and return the path and query of the link in it."""
        text = self.mailed(email, subject, number=number)
        base = re.escape(self.stack.environment["PRESSROOM_PUBLIC_URL"])
        [link] = re.findall(base + r"(/\S+\?token=\S+)", text)
        return str(link)


def read_hidden_fields(page: httpx2.Response, form: int = 0) -> dict[str, str]:
    """Return the hidden fields of a form. ``form``: the index of the form on the page."""
    forms = _FORM.findall(page.text)
    return {name: html.unescape(value) for name, value in _HIDDEN.findall(forms[form])}


@contextmanager
def new_visitor(stack: Stack) -> Iterator[Visitor]:
    with plain_client(base_url=stack.api_url) as client:
        yield Visitor(stack, client)


def new_address() -> str:
    return f"visitor.{secrets.token_hex(8)}@example.com"


def new_account(stack: Stack, *, password: str | None = PASSWORD, name: str = "Vi") -> str:
    email = new_address()
    with stack.resources.unit_of_work() as uow:
        accounts.create_user(uow, email=email, name=name, password=password)
    return email


def user_id_of(stack: Stack, email: str) -> int:
    with stack.resources.unit_of_work() as uow:
        return accounts.get_user_by_email(uow, email).id


def age_logins(stack: Stack, email: str, minutes: int) -> None:
    stack.query(
        "UPDATE user_sessions SET logged_in_at = now() - make_interval(mins => %s)"
        " WHERE user_id = %s",
        minutes,
        user_id_of(stack, email),
    )
