"""Subscribes people to lists without HTTP, and creates the links that are mailed to them."""

from dataclasses import dataclass

import httpx2

from core.ids import PersonId
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
                uow,
                purpose,
                person_id=PersonId(self.user_id),
                list_id=self.list_id,
                email=self.email,
            )

    def confirm_url(self) -> str:
        return f"{self.stack.api_url}/confirm?token={self.mailed_token()}"

    def read_status(self) -> tuple[object, ...]:
        [row] = self.stack.query(
            "SELECT status, email_enabled FROM subscriptions WHERE list_id = %s AND user_id = %s",
            self.list_id,
            self.user_id,
        )
        return row

    def list_rows(self) -> dict[str, list[tuple[object, ...]]]:
        """Map the name of each table to its rows about this person on this list."""
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
    """Subscribe a new person, and wait until the confirmation link has been mailed."""
    subscriber = subscribe(stack, list_id)
    # Wait until a worker has mailed the link, and has added a row to ``mailed_links``. Otherwise, a
    # test that compares the person's rows before and after an action could mistake the new row for
    # an effect of the action.
    eventually(lambda: subscriber.list_rows()["mailed_links"], what="the mailed token")
    return subscriber


def subscribe(stack: Stack, list_id: int) -> Subscriber:
    """Sign a new person up for the list."""
    email = new_address()
    # Don't use HTTP, because the API delays its response to hide whether an address is subscribed.
    with stack.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, list_id)
        sign_up.request_subscription(uow, mailing_list, email, _STRANGER)
        return Subscriber(stack, list_id, accounts.get_user_by_email(uow, email).id, email)
