"""What a person reads who subscribes where a confirmation is wanted, and what they do with it."""

import re
from dataclasses import dataclass, replace
from typing import Any

import httpx2
import pytest

from core.errors import DomainError
from core.ids import random_hash_id
from services.subscriptions import sign_up as joining
from services.subscriptions.members import mails
from services.subscriptions.members.changes import Actor, ActorKind, Via
from tests.contract.replies import data
from tests.stack import Stack, eventually

READER = Actor(ActorKind.USER, Via.CONFIRMATION)


@dataclass(frozen=True)
class Joining:
    """Somebody on their way onto a list that wants confirmation."""

    stack: Stack
    owner: httpx2.Client
    stranger: httpx2.Client
    list_id: int
    address: str

    def subscribe(self) -> None:
        reply = self.stranger.post(f"/subscriptions/{self.list_id}", json={"email": self.address})
        assert data(reply) == 1

    def mails(self, count: int = 1) -> list[dict[str, Any]]:
        def arrived() -> list[dict[str, Any]]:
            found = self.stack.mails(to=self.address)
            return found if len(found) >= count else []

        found = eventually(arrived, what=f"{count} mails")
        assert isinstance(found, list)
        assert len(found) == count
        return found

    def token(self) -> str:
        [mail] = self.mails()
        found: list[str] = re.findall(r"/confirm\?token=([\w-]+)", mail["text"])
        assert len(found) == 1
        return found[0]

    def confirm(self, token: str) -> None:
        with self.stack.resources.unit_of_work() as uow:
            settings = self.stack.settings()
            joining.confirm(uow, settings.keyring, token, READER)

    def error_of(self, token: str) -> str:
        with pytest.raises(DomainError) as caught:
            self.confirm(token)
        return caught.value.code

    def members(self, **query: str) -> list[dict[str, Any]]:
        page = data(self.owner.get(f"/lists/{self.list_id}/subscriptions", params=query))
        found: list[dict[str, Any]] = page["items"]
        return found

    def status(self) -> str | None:
        for status in ("pending", "active", "unsubscribed", "removed"):
            if self.members(email=self.address, status=status):
                return status
        return None


@pytest.fixture
def reader(stack: Stack, client: httpx2.Client, stranger: httpx2.Client) -> Joining:
    body = {"title": "Tea & <Toast>", "slug": random_hash_id(), "confirm_required": True}
    made = data(client.post("/lists", json=body))
    return Joining(stack, client, stranger, made["id"], f"{random_hash_id()}@example.com")


def test_confirmation_is_mailed_in_both_forms_and_makes_the_subscription_active(
    reader: Joining,
) -> None:
    reader.subscribe()
    assert reader.status() == "pending"
    [mail] = reader.mails()
    assert mail["subject"] == "Confirm: “Tea & <Toast>”"
    assert "“Tea & <Toast>”" in mail["text"]
    token = reader.token()
    assert f"token={token}" in mail["html"]
    # The button comes before all that explains it.
    for written, cautious in ((mail["html"], "Somebody asked"), (mail["text"], "Somebody asked")):
        assert written.index(f"token={token}") < written.index(cautious)
    assert "Tea &amp; &lt;Toast&gt;" in mail["html"]
    assert "<Toast>" not in mail["html"]
    assert not [name for name in mail["headers"] if name.lower().startswith("list-")]
    reader.confirm(token)
    assert reader.status() == "active"


def test_who_confirmed_is_told_how_to_leave_by_one_click(reader: Joining) -> None:
    reader.subscribe()
    reader.confirm(reader.token())
    welcome = next(mail for mail in reader.mails(2) if "You are" in mail["subject"])
    headers = {name.lower(): value for name, value in dict(welcome["headers"]).items()}
    assert headers["list-unsubscribe-post"] == "List-Unsubscribe=One-Click"
    [url] = re.findall(r"^<(\S+)>$", headers["list-unsubscribe"])
    assert url in welcome["text"].split()
    trace_id = httpx2.URL(url).params["trace_id"]
    trace = mails.read(reader.stack.resources.keyring, trace_id)
    assert trace.list_id == reader.list_id
    path = f"/subscriptions/{reader.list_id}/delete"
    form = {"List-Unsubscribe": "One-Click"}
    assert data(reader.stranger.post(path, params={"trace_id": trace_id}, data=form)) == 1
    [member] = reader.members()
    assert member["email_enabled"] is False


def test_an_address_is_not_flooded_however_often_it_is_asked_for(reader: Joining) -> None:
    for _ in range(5):
        reader.subscribe()
    reader.mails()
    reader.stack.query(
        "UPDATE subscriptions SET confirmation_asked_at = now() - interval '11 minutes' "
        "WHERE list_id = %s",
        reader.list_id,
    )
    reader.subscribe()
    reader.mails(2)


def test_mails_of_a_list_take_turns_as_jobs_of_its_owner(reader: Joining) -> None:
    reader.subscribe()
    reader.mails()
    jobs = (
        "SELECT on_behalf_of FROM jobs JOIN subscriptions s ON s.id = subject_id"
        " WHERE email = %s AND kind = 'subscription.mail_confirmation'"
    )
    owner = "SELECT user_id FROM lists WHERE id = %s"
    stack = reader.stack
    assert stack.query(jobs, reader.address) == stack.query(owner, reader.list_id)


def test_who_was_taken_off_meanwhile_is_sent_no_link_that_works(reader: Joining) -> None:
    reader.subscribe()
    token = reader.token()
    [member] = reader.members(status="pending")
    path = f"/subscriptions/{reader.list_id}/members/{member['user_id']}"
    assert data(reader.owner.delete(path)) == 1
    assert reader.error_of(token) == "subscription.not_pending"
    assert reader.status() == "removed"


def test_a_mail_server_that_is_busy_is_tried_again(reader: Joining) -> None:
    # The sandbox says 451 to the first two attempts for such an address.
    patient = replace(reader, address=f"later+{random_hash_id()}@example.com")
    patient.subscribe()
    eventually(lambda: patient.stack.mails(to=patient.address), within=30, what="the third attempt")
