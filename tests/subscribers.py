"""People on lists, for tests: who subscribes to what, and the links that were mailed to them."""

import time
from dataclasses import dataclass

import httpx

from services.mailing import lists
from services.mailing.subscriptions import subscribe as joining
from services.mailing.subscriptions import trace_ids
from services.mailing.subscriptions.changes import Actor, ActorKind, Via
from services.mailing.subscriptions.trace_ids import Trace
from services.people import accounts, mailed_tokens
from services.people.mailed_tokens import Purpose
from tests.contract.replies import data
from tests.stack import Stack, eventually

_STRANGER = Actor(ActorKind.STRANGER, Via.CHALLENGE)


@dataclass(frozen=True)
class Subscriber:
    """A person with a record on a list."""

    stack: Stack
    list_id: int
    user_id: int
    email: str

    @property
    def trace_id(self) -> str:
        return make_trace(self.stack, self.list_id, self.user_id)

    @property
    def unsubscribe_url(self) -> str:
        return f"{self.stack.api_url}/unsubscribe?trace_id={self.trace_id}"

    def mailed_token(self, purpose: Purpose = Purpose.CONFIRM_SUBSCRIPTION) -> str:
        keyring = self.stack.resources.keyring
        with self.stack.resources.unit_of_work() as uow:
            return mailed_tokens.make(
                uow, keyring, purpose, user_id=self.user_id, list_id=self.list_id
            )

    def confirm_url(self) -> str:
        return f"{self.stack.api_url}/confirm?token={self.mailed_token()}"

    def stands(self) -> tuple[object, ...]:
        """Status and whether mail is sent."""
        [row] = self.stack.query(
            "SELECT status, email_enabled FROM subscriptions WHERE list_id = %s AND user_id = %s",
            self.list_id,
            self.user_id,
        )
        return row

    def kept(self) -> dict[str, list[tuple[object, ...]]]:
        """Every row about this person and list, to be compared with what it was before."""
        tables = (
            *("subscriptions", "opt_outs", "subscription_events", "mailed_links"),
            "consent_entries",
        )
        where = "WHERE list_id = %s AND user_id = %s ORDER BY id"
        return {
            table: self.stack.query(f"SELECT * FROM {table} {where}", self.list_id, self.user_id)
            for table in tables
        }


def new_list(client: httpx.Client, title: str = "The Morning Letter", **fields: object) -> int:
    slug = f"list-{time.time_ns()}"
    created: dict[str, int] = data(
        client.post("/lists", json={"title": title, "slug": slug, **fields})
    )
    return created["id"]


def subscribe_pending(stack: Stack, list_id: int) -> Subscriber:
    """A new person whose subscription waits for the confirmation that has been mailed."""
    waiting = subscribe(stack, list_id)
    # The worker that mails adds a row, and would add it while a test compares what is kept.
    eventually(lambda: waiting.kept()["mailed_links"], what="the mailed token")
    return waiting


def subscribe(stack: Stack, list_id: int) -> Subscriber:
    """A new person subscribes by the public form: active, or pending where the list says so."""
    email = f"reader.{time.time_ns()}@example.com"
    # Without HTTP, which takes its time lest it tell who subscribes.
    with stack.resources.unit_of_work() as uow:
        mailing_list = lists.get(uow, list_id)
        settings = stack.settings()
        joining.request(uow, settings.keyring, mailing_list, email, _STRANGER, settings=settings)
        return Subscriber(stack, list_id, accounts.get_by_email(uow, email).id, email)


def make_trace(stack: Stack, list_id: int, user_id: int) -> str:
    return trace_ids.make(stack.resources.keyring, Trace(list_id, user_id))
