"""People on lists, for tests: who subscribes to what, and the links that were mailed to them."""

from dataclasses import dataclass

import httpx2

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from services.accounts import accounts, mailed_tokens
from services.accounts.mailed_tokens import Purpose
from services.subscriptions import lists, sign_up
from services.subscriptions.members.changes import Actor, ActorKind, Via
from tests.support.lists import subscribers
from tests.support.lists.subscribers import new_address, trace_for

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
        return trace_for(self.stack, self.list_id, self.user_id)

    @property
    def unsubscribe_url(self) -> str:
        return f"{self.stack.api_url}/unsubscribe?trace_id={self.trace_id}"

    def mailed_token(self, purpose: Purpose = Purpose.CONFIRM_SUBSCRIPTION) -> str:
        with self.stack.resources.unit_of_work() as uow:
            return mailed_tokens.create_token(
                uow, purpose, user_id=self.user_id, list_id=self.list_id, email=self.email
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


def new_list(client: httpx2.Client, title: str = "The Morning Letter", **fields: object) -> int:
    return int(subscribers.new_list(client, title=title, **fields)["id"])


def subscribe_pending(stack: Stack, list_id: int) -> Subscriber:
    """A new person whose subscription waits for the confirmation that has been mailed."""
    waiting = subscribe(stack, list_id)
    # The worker that mails adds a row, and would add it while a test compares what is kept.
    eventually(lambda: waiting.kept()["mailed_links"], what="the mailed token")
    return waiting


def subscribe(stack: Stack, list_id: int) -> Subscriber:
    """A new person subscribes by the public form: active, or pending where the list says so."""
    email = new_address()
    # Without HTTP, which takes its time lest it tell who subscribes.
    with stack.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, list_id)
        sign_up.request_subscription(uow, mailing_list, email, _STRANGER)
        return Subscriber(stack, list_id, accounts.get_user_by_email(uow, email).id, email)
