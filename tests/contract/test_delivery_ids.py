"""Tests that rosters and Pressroom's mails contain signed delivery ids, which grant no access."""

import base64
import string
from datetime import UTC, date, datetime
from typing import Any

import httpx2
import pytest

from core.keyring import Key, Keyring
from devstack.harness.opening import RETIRED_KEY
from devstack.harness.stack import Stack
from services.subscriptions.members import mails
from services.subscriptions.members.delivery_ids import (
    DeliveryId,
    create_delivery_id,
    read_delivery_id,
)
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import add, fetch_rows
from tests.support.lists.subscribers import (
    Reader,
    await_mails,
    confirm,
    new_address,
    new_list,
    require_member,
    subscribe,
)
from tests.support.stack.maintenance import run_maintenance

ALLOWED_CHARACTERS = set(string.ascii_lowercase + string.digits)
_MAKE_REMINDER_DUE = "UPDATE subscriptions SET remind_at = now() WHERE list_id = %s"
SAMPLE_DELIVERY = DeliveryId(list_id=7, user_id=2**53 - 1, mailing_id=2**52, day=date(2031, 2, 3))


@pytest.fixture
def keyring(stack: Stack) -> Keyring:
    return stack.resources.keyring


def read_delivery_header(mail: dict[str, Any]) -> str:
    headers = {name.lower(): value for name, value in dict(mail["headers"]).items()}
    return str(headers["x-pressroom-delivery"])


@pytest.mark.parametrize(
    ("list_id", "user_id", "mailing_id"), [(1, 1, 1), (2**53 - 1, 2**53 - 1, 2**53 - 1)]
)
def test_delivery_id_has_52_lower_case_letters_and_digits_and_names_its_mail(
    list_id: int, user_id: int, mailing_id: int
) -> None:
    ring = Keyring([Key("a", b"a" * 32)])
    delivery = DeliveryId(list_id, user_id, mailing_id, date(2190, 1, 1))
    text = create_delivery_id(ring, delivery)
    assert len(text) == 52
    assert set(text) <= ALLOWED_CHARACTERS
    assert read_delivery_id(ring, text) == delivery
    assert read_delivery_id(ring, text.upper()) == delivery


def test_delivery_id_of_a_retired_key_is_valid(keyring: Keyring) -> None:
    assert keyring.current != RETIRED_KEY
    text = create_delivery_id(Keyring([RETIRED_KEY]), SAMPLE_DELIVERY)
    assert text != create_delivery_id(keyring, SAMPLE_DELIVERY)
    assert read_delivery_id(keyring, text) == SAMPLE_DELIVERY


@pytest.mark.parametrize("purpose", ["trace", "api-key", "opt-out"])
def test_delivery_id_is_signed_with_its_own_subkey(purpose: str) -> None:
    key = Key("a", b"a" * 32)
    text = create_delivery_id(Keyring([key]), SAMPLE_DELIVERY)
    content = (int(text[2:], 32) >> 2).to_bytes(31, "big")
    signer = Keyring([key]).signer(purpose, length=8)
    forged = base64.b32hexencode(content[:23] + signer.digest(content[:23])).decode()
    assert read_delivery_id(Keyring([key]), "d1" + forged.rstrip("=").lower()) is None


def test_only_one_encoding_of_a_delivery_id_is_valid() -> None:
    ring = Keyring([Key("a", b"a" * 32)])
    text = create_delivery_id(ring, SAMPLE_DELIVERY)
    base32_digits = string.digits + "abcdefghijklmnopqrstuv"
    changed_ids = [
        text[:position]
        + base32_digits[(base32_digits.find(text[position]) + step) % 32]
        + text[position + 1 :]
        for position in range(2, 52)
        for step in range(1, 32)
    ]
    malformed_ids = (
        "",
        text[:-1],
        text + "0",
        text + "\n",
        " " + text,
        "d2" + text[2:],
        text + text,
        text[:9] + "_" + text[10:],
        "d1+" + text[3:],
        # A delivery id must be ASCII. Python's ``lower`` turns the Kelvin sign into the letter k,
        # and ``isdigit`` accepts an Arabic digit.
        text.replace("d1", "\u212a1"),
        text[:-1] + "\u0661",
    )
    for invalid_id in (*changed_ids, *malformed_ids):
        assert read_delivery_id(ring, invalid_id) is None, invalid_id


def test_roster_contains_a_delivery_id_of_each_recipient_and_creates_a_labelled_mailing(
    stack: Stack,
    keyring: Keyring,
    client: httpx2.Client,
    delivery_client: httpx2.Client,
    list_id: int,
) -> None:
    data(add(client, list_id, new_address(), new_address()))
    body = {"kind": "delivery", "label": "Tea in November"}
    job = data(delivery_client.post(f"/lists/{list_id}/exports", json=body))
    roster_rows = fetch_rows(job["result"]["url"])
    today = datetime.now(UTC).date()
    for row in roster_rows:
        delivery = read_delivery_id(keyring, row["delivery_id"])
        assert delivery is not None
        assert (delivery.list_id, delivery.user_id) == (list_id, int(row["user_id"]))
        assert delivery.mailing_id == job["id"]
        assert (today - delivery.day).days in {0, 1}
    query = "SELECT list_id, label, rows, delivered FROM mailings WHERE id = %s"
    assert stack.query(query, job["id"]) == [(list_id, "Tea in November", 2, 0)]


def test_label_of_a_mailing_has_at_most_100_characters(
    delivery_client: httpx2.Client, list_id: int
) -> None:
    path = f"/lists/{list_id}/exports"
    body = {"kind": "delivery", "label": "x" * 101}
    problem(delivery_client.post(path, json=body), 422, "body.invalid")
    data(delivery_client.post(path, json={**body, "label": "x" * 100}))


def test_each_mail_to_a_reader_has_a_delivery_id_in_its_header(
    stack: Stack, keyring: Keyring, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    list_id = int(new_list(client, confirm_required=True)["id"])
    email = new_address()
    data(subscribe(stranger, list_id, email))
    [confirmation] = await_mails(stack, email)
    stack.query(_MAKE_REMINDER_DUE, list_id)
    run_maintenance(stack, mails.ENQUEUE_REMINDERS.name)
    await_mails(stack, email, 2)
    confirm(stranger, confirmation)
    await_mails(stack, email, 3)
    user_id = require_member(client, list_id, email)["user_id"]
    stranger.post("/preferences/ask", params={"list": list_id}, data={"email": email})
    all_mails = await_mails(stack, email, 4)
    deliveries = [
        delivery
        for mail in all_mails
        if (delivery := read_delivery_id(keyring, read_delivery_header(mail)))
    ]
    assert {(each.list_id, each.user_id) for each in deliveries} == {(list_id, user_id)}
    assert len({each.mailing_id for each in deliveries}) == len(all_mails)


def test_no_route_accepts_a_delivery_id_as_a_credential(
    keyring: Keyring, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    today = datetime.now(UTC).date()
    delivery_id = create_delivery_id(keyring, DeliveryId(list_id, reader.user_id, 1, today))
    body = {"trace_id": delivery_id}
    for reply in (
        stranger.request("DELETE", f"/subscriptions/{list_id}", json=body),
        stranger.post(f"/subscriptions/{list_id}/delete", json=body),
        stranger.put(f"/subscriptions/{list_id}/email", json={**body, "enabled": False}),
        stranger.get("/subscriptions/opponent", params=body),
        stranger.post("/unsubscribe", params=body, data={"action": "leave"}),
        stranger.post("/report", params=body),
        stranger.post("/preferences/ask", params=body),
    ):
        assert reply.status_code == 403, reply.url
    for headers in ({"Authorization": f"Bearer {delivery_id}"}, {"X-API-Key": delivery_id}):
        problem(stranger.get("/users/me", headers=headers), 401, "auth.invalid_credentials")
    assert reader.read_status(list_id) == ("active", True)
