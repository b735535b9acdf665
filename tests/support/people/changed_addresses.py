"""Helpers for tests in which a person changes the e-mail address of their account."""

from typing import Any

import httpx2

from models import User
from services.accounts import accounts
from storage.resources import Resources
from tests.support.http.replies import data
from tests.support.imports.bulk import add, export_emails
from tests.support.lists.subscribers import require_member
from tests.support.people.visiting import PASSWORD, Visitor

CONFIRM_SUBJECT = "Confirm your new address"
MOVED_SUBJECT = "The address of your account was changed"


def join(person: Visitor, list_id: int) -> None:
    origin = {"Origin": person.stack.api_url}
    data(person.client.post(f"/subscriptions/{list_id}/no-challenge", headers=origin))


def leave(person: Visitor, list_id: int) -> None:
    origin = {"Origin": person.stack.api_url}
    assert data(person.client.delete(f"/subscriptions/{list_id}", headers=origin)) == 1


def change_own_address(person: Visitor, new: str) -> httpx2.Response:
    reply = person.fill_in("/account/email", email=new, current=PASSWORD)
    assert reply.headers["location"].endswith("/account")
    return person.fill_in(person.mailed_path(new, CONFIRM_SUBJECT))


def export_roster(sender: httpx2.Client, list_id: int) -> list[str]:
    return export_emails(sender, list_id, "delivery")


def add_person(client: httpx2.Client, list_id: int, email: str, **values: Any) -> int:
    data(add(client, list_id, {"email": email, **values}))
    return int(require_member(client, list_id, email)["user_id"])


def change_address(resources: Resources, before: str, after: str) -> None:
    """Change an account's e-mail address in the database, as if the person had confirmed it."""
    with resources.unit_of_work() as uow:
        person = uow.session.query(User).where(User.email == before).one()
        person.email = after
        accounts.record_address_change(uow, person, old_address=before)
