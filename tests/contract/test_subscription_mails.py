"""What a person reads who subscribes where a confirmation is wanted, and what they do with it."""

import re
from typing import Any

import httpx
import pytest

from core.errors import DomainError
from core.ids import random_hash_id
from services import mailed_links
from services.mailed_links import Purpose
from services.subscriptions import joining, traces
from services.subscriptions.changes import Actor, ActorKind, Via
from tests.contract.replies import data
from tests.stack import Stack, eventually

READER = Actor(ActorKind.USER, Via.CONFIRMATION)


@pytest.fixture
def channel(client: httpx.Client) -> dict[str, Any]:
    """A list that wants confirmation."""
    body = {"title": "Tea & <Toast>", "slug": random_hash_id(), "confirm_required": True}
    made: dict[str, Any] = data(client.post("/lists", json=body))
    return made


@pytest.fixture
def address() -> str:
    return f"{random_hash_id()}@example.com"


def mails(stack: Stack, address: str, count: int = 1) -> list[dict[str, Any]]:
    def arrived() -> list[dict[str, Any]]:
        found = stack.mails(to=address)
        return found if len(found) >= count else []

    found = eventually(arrived, what=f"{count} mails")
    assert isinstance(found, list)
    assert len(found) == count
    return found


def subscribe(stranger: httpx.Client, channel: dict[str, Any], address: str) -> None:
    reply = stranger.post(f"/subscriptions/{channel['id']}", json={"email": address})
    assert data(reply) == 1


def token_in(mail: dict[str, Any]) -> str:
    found: list[str] = re.findall(r"/confirm\?token=([\w-]+)", mail["text"])
    assert len(found) == 1
    return found[0]


def status_of(client: httpx.Client, channel: dict[str, Any], address: str) -> str | None:
    for status in ("pending", "active", "unsubscribed", "removed"):
        query = {"email": address, "status": status}
        page = data(client.get(f"/lists/{channel['id']}/subscriptions", params=query))
        if page["items"]:
            return status
    return None


def confirm(stack: Stack, token: str) -> None:
    with stack.resources.unit_of_work() as uow:
        joining.confirm(uow, stack.resources.keyring, token, READER)


def test_confirmation_is_mailed_in_both_forms_and_makes_the_subscription_active(
    stack: Stack,
    client: httpx.Client,
    stranger: httpx.Client,
    channel: dict[str, Any],
    address: str,
) -> None:
    subscribe(stranger, channel, address)
    assert status_of(client, channel, address) == "pending"
    [mail] = mails(stack, address)
    assert mail["subject"] == "Confirm your subscription to Tea & <Toast>"
    token = token_in(mail)
    assert f"token={token}" in mail["html"]
    assert "Tea &amp; &lt;Toast&gt;" in mail["html"]
    assert "<Toast>" not in mail["html"]
    assert not [name for name in mail["headers"] if name.lower().startswith("list-")]
    confirm(stack, token)
    assert status_of(client, channel, address) == "active"


def test_who_confirmed_is_told_how_to_leave_by_one_click(
    stack: Stack,
    client: httpx.Client,
    stranger: httpx.Client,
    channel: dict[str, Any],
    address: str,
) -> None:
    subscribe(stranger, channel, address)
    confirm(stack, token_in(mails(stack, address)[0]))
    welcome = next(mail for mail in mails(stack, address, 2) if "You are" in mail["subject"])
    headers = {name.lower(): value for name, value in dict(welcome["headers"]).items()}
    assert headers["list-unsubscribe-post"] == "List-Unsubscribe=One-Click"
    [url] = re.findall(r"^<(\S+)>$", headers["list-unsubscribe"])
    assert url in welcome["text"].split()
    trace_id = httpx.URL(url).params["trace_id"]
    trace = traces.read(traces.signer(stack.resources.keyring), trace_id)
    assert trace.list_id == channel["id"]
    path = f"/subscriptions/{channel['id']}/delete"
    form = {"List-Unsubscribe": "One-Click"}
    assert data(stranger.post(path, params={"trace_id": trace_id}, data=form)) == 1
    [member] = data(client.get(f"/lists/{channel['id']}/subscriptions"))["items"]
    assert member["email_enabled"] is False


def test_a_link_works_once_and_a_forged_or_old_one_never(
    stack: Stack,
    client: httpx.Client,
    stranger: httpx.Client,
    channel: dict[str, Any],
    address: str,
) -> None:
    subscribe(stranger, channel, address)
    token = token_in(mails(stack, address)[0])
    with pytest.raises(DomainError) as refused:
        confirm(stack, token[:-1] + ("A" if token[-1] != "A" else "B"))
    assert refused.value.code == "link.invalid"
    stack.query("UPDATE mailed_links SET expires_at = now() WHERE list_id = %s", channel["id"])
    with pytest.raises(DomainError) as refused:
        confirm(stack, token)
    assert refused.value.code == "link.invalid"
    assert status_of(client, channel, address) == "pending"


def test_an_address_is_not_flooded_however_often_it_is_asked_for(
    stack: Stack, stranger: httpx.Client, channel: dict[str, Any], address: str
) -> None:
    for _ in range(5):
        subscribe(stranger, channel, address)
    mails(stack, address)
    stack.query(
        "UPDATE subscriptions SET confirmation_asked_at = now() - interval '11 minutes' "
        "WHERE list_id = %s",
        channel["id"],
    )
    subscribe(stranger, channel, address)
    mails(stack, address, 2)


def test_who_was_taken_off_meanwhile_is_sent_no_link_that_works(
    stack: Stack,
    client: httpx.Client,
    stranger: httpx.Client,
    channel: dict[str, Any],
    address: str,
) -> None:
    subscribe(stranger, channel, address)
    token = token_in(mails(stack, address)[0])
    query = {"status": "pending"}
    [member] = data(client.get(f"/lists/{channel['id']}/subscriptions", params=query))["items"]
    path = f"/subscriptions/{channel['id']}/members/{member['user_id']}"
    assert data(client.delete(path)) == 1
    with pytest.raises(DomainError) as refused:
        confirm(stack, token)
    assert refused.value.code == "subscription.not_pending"
    assert status_of(client, channel, address) == "removed"


def test_a_mail_server_that_is_busy_is_tried_again(
    stack: Stack, stranger: httpx.Client, channel: dict[str, Any]
) -> None:
    # The sandbox says 451 to the first two attempts for such an address.
    address = f"later+{random_hash_id()}@example.com"
    subscribe(stranger, channel, address)
    eventually(lambda: stack.mails(to=address), within=30, what="the third attempt")


def test_the_secret_of_a_link_rests_nowhere(
    stack: Stack, stranger: httpx.Client, channel: dict[str, Any], address: str
) -> None:
    subscribe(stranger, channel, address)
    token = token_in(mails(stack, address)[0])
    for table in ("jobs", "mailed_links", "subscriptions", "subscription_events"):
        rows = stack.query(f"SELECT count(*) FROM {table} AS t WHERE t::text LIKE %s", f"%{token}%")
        assert rows == [(0,)], table
    with stack.resources.unit_of_work() as uow:
        signer = mailed_links.signer(stack.resources.keyring)
        assert mailed_links.read(uow, signer, Purpose.CONFIRM_SUBSCRIPTION, token)
