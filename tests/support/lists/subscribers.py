"""Creates lists, readers and members through the API, and trace ids like those in mails."""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from core.ids import PersonId
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from models import Plan
from services.subscriptions.members import traces
from services.subscriptions.members.traces import Trace
from tests.support.http.replies import data


@dataclass
class Reader:
    """A person with a login who owns no list."""

    user_id: int
    email: str
    name: str
    key: str
    client: httpx2.Client

    def joins(self, list_id: int) -> "Reader":
        assert data(self.client.post(f"/subscriptions/{list_id}/no-challenge")) == 1
        return self

    def leaves(self, list_id: int) -> "Reader":
        assert data(self.client.delete(f"/subscriptions/{list_id}")) == 1
        return self

    def wants_mail(self, list_id: int, enabled: bool) -> None:
        reply = self.client.put(f"/subscriptions/{list_id}/email", json={"enabled": enabled})
        assert data(reply) == 1

    def read_membership(self, list_id: int) -> dict[str, Any]:
        return dict(data(self.client.get(f"/subscriptions/{list_id}/rel")))

    def read_status(self, list_id: int) -> tuple[str, bool]:
        record = self.read_membership(list_id)
        return record["status"], record["email_enabled"]


@contextmanager
def new_reader(stack: Stack) -> Iterator[Reader]:
    person = stack.create_owner(plan=Plan.FREE)
    name = f"Reader {secrets.token_hex(6)}"
    stack.query("UPDATE users SET name = %s WHERE id = %s", name, person.user_id)
    with stack.client(person.key) as client:
        yield Reader(person.user_id, person.email, name, person.key, client)


def new_slug() -> str:
    return f"list-{secrets.token_hex(6)}"


def new_address() -> str:
    return f"reader.{secrets.token_hex(6)}@example.com"


def new_list(client: httpx2.Client, **fields: object) -> dict[str, Any]:
    body = {"title": "The Daily Demo", "slug": new_slug(), "confirm_required": False, **fields}
    return dict(data(client.post("/lists", json=body)))


def subscribe(client: httpx2.Client, list_id: int, email: str, **fields: str) -> httpx2.Response:
    return client.post(f"/subscriptions/{list_id}", json={"email": email, **fields})


def fetch_members(client: httpx2.Client, list_id: int, **filters: object) -> list[dict[str, Any]]:
    reply = client.get(f"/lists/{list_id}/subscriptions", params=dict(filters))  # type: ignore[arg-type]
    return list(data(reply)["items"])


def find_member(client: httpx2.Client, list_id: int, email: str) -> dict[str, Any] | None:
    """Return the member with this address, whatever the member's status, or None."""
    for status in ("active", "pending", "unsubscribed", "removed"):
        for each in fetch_members(client, list_id, email=email, status=status):
            return each
    return None


def require_member(client: httpx2.Client, list_id: int, email: str) -> dict[str, Any]:
    member_or_none = find_member(client, list_id, email)
    assert member_or_none is not None
    return member_or_none


def get_member(client: httpx2.Client, list_id: int, reader: Reader) -> dict[str, Any]:
    return dict(data(client.get(f"/lists/{list_id}/members/{reader.user_id}")))


def await_mails(stack: Stack, email: str, count: int = 1) -> list[dict[str, Any]]:
    """Wait for ``count`` mails to the address, and return the mails, newest first."""
    mails = eventually(
        lambda: stack.mails(email) if len(stack.mails(email)) >= count else [],
        what=f"{count} mails",
    )
    assert len(mails) == count
    return mails


def read_confirmation_token(mail: dict[str, Any]) -> str:
    [token] = re.findall(r"/confirm\?token=([\w-]+)", mail["text"])
    return str(token)


def confirm(stranger: httpx2.Client, mail: dict[str, Any]) -> httpx2.Response:
    """Confirm a subscription, as the button on the page behind the mailed link does."""
    return stranger.post("/confirm", params={"token": read_confirmation_token(mail)})


def read_subscriber_count(client: httpx2.Client, list_id: int) -> int:
    subscriber_count: int = data(client.get(f"/lists/{list_id}"))["subscriber_count"]
    return subscriber_count


def trace_for(stack: Stack, list_id: int, user_id: int) -> str:
    """Return the trace id in the list's mails to this person."""
    keyring = stack.resources.keyring
    return traces.create_trace_id(keyring, Trace(list_id, PersonId(user_id)))


def insert_members(stack: Stack, list_id: int, addresses: list[str]) -> None:
    """Insert active members into the database, because an import of many members is slower."""
    stack.query(
        """
        WITH people AS (
            INSERT INTO users (id, email)
            SELECT (random() * 9e15)::bigint + 1, address
            FROM unnest(%s) AS address RETURNING id, email
        )
        INSERT INTO subscriptions (list_id, user_id, status, email, source)
        SELECT %s, people.id, 'active', people.email, 'import'
        FROM unnest(%s) WITH ORDINALITY AS wanted (address, place)
        JOIN people ON people.email = wanted.address ORDER BY wanted.place
        """,
        addresses,
        list_id,
        addresses,
    )
