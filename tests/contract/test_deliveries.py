"""Tests of deliveries, with which a program mails a few members at once."""

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Any

import httpx2
import pytest

from core.scopes import Scope
from devstack.harness.stack import Owner, Stack
from models import OptOut, OptOutKind
from services.subscriptions.members.delivery_ids import read_delivery_id
from services.subscriptions.members.opt_outs import SENDER_UNSUBSCRIBE
from services.subscriptions.members.traces import Trace, read_trace_id
from tests.support.commands.running import run_json_command
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import add, fetch_rows
from tests.support.lists.bounces import bounce_hard, build_mailing
from tests.support.lists.people_on_lists import subscribe
from tests.support.lists.subscribers import (
    Reader,
    fetch_members,
    insert_members,
    new_address,
    new_list,
    trace_for,
)
from tests.support.people.consoles import OwnerAtConsole, rows_of
from tests.support.people.erasure import erase
from tests.support.people.limited_keys import create_limited_key
from tests.support.people.visiting import new_visitor
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import bounce, deliver, outcomes, report

LABEL = "Welcome"
UNKNOWN_ID = 2**53 - 1
RACES = 1_000
MAX_IDS = 100


def request_deliveries(
    client: httpx2.Client,
    list_id: int | str,
    *user_ids: int,
    label: str = LABEL,
    key: str | None = None,
) -> httpx2.Response:
    body = {"user_ids": list(user_ids), "label": label}
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.post(f"/lists/{list_id}/deliveries", json=body, headers=headers)


def read_deliveries(
    client: httpx2.Client, list_id: int | str, *user_ids: int, label: str = LABEL
) -> dict[str, Any]:
    return dict(data(request_deliveries(client, list_id, *user_ids, label=label)))


def read_mailing(client: httpx2.Client, list_id: int, mailing_id: int) -> dict[str, Any]:
    return dict(data(client.get(f"/lists/{list_id}/mailings/{mailing_id}")))


def list_mailing_ids(client: httpx2.Client, list_id: int) -> list[int]:
    return [each["id"] for each in data(client.get(f"/lists/{list_id}/mailings"))["items"]]


def make_a_day_older(stack: Stack, mailing_id: int) -> None:
    stack.query(
        "UPDATE mailings SET created_at = created_at - interval '1 day' WHERE id = %s", mailing_id
    )


@pytest.fixture
def user_ids(client: httpx2.Client, list_id: int) -> list[int]:
    """The ids of three members who get the list's mail."""
    data(add(client, list_id, *(new_address() for _ in range(3))))
    return [each["user_id"] for each in fetch_members(client, list_id)]


def test_members_have_the_fields_of_the_roster(
    stack: Stack,
    client: httpx2.Client,
    delivery_client: httpx2.Client,
    list_id: int,
    user_ids: list[int],
) -> None:
    slug = data(client.patch(f"/lists/{list_id}", json={"engagement": "all"}))["slug"]
    chosen_ids = user_ids[:2]
    deliveries = read_deliveries(delivery_client, list_id, *chosen_ids)
    assert list(deliveries) == ["mailing_id", "members", "left_out"]
    assert deliveries["left_out"] == 0
    members = {each["user_id"]: each for each in deliveries["members"]}
    assert members.keys() == set(chosen_ids)
    assert read_deliveries(delivery_client, slug, *chosen_ids) == deliveries
    job = data(delivery_client.post(f"/lists/{list_id}/exports", json={"kind": "delivery"}))
    roster = {int(row["user_id"]): row for row in fetch_rows(job["result"]["url"])}
    keyring = stack.resources.keyring
    mailing_id = deliveries["mailing_id"]
    for user_id, member in members.items():
        row = roster[user_id]
        assert list(member) == list(row)
        assert member["engagement"] == "full"
        trace = read_trace_id(keyring, member["trace_id"])
        assert trace == Trace(list_id, user_id, mailing_id)
        delivery = read_delivery_id(keyring, member["delivery_id"])
        assert delivery == (list_id, user_id, mailing_id, datetime.now(UTC).date())
        # The ids name the mailing, so they are the only differences.
        text = json.dumps({**member, "user_id": str(user_id)})
        for name in ("trace_id", "delivery_id"):
            text = text.replace(member[name], row[name])
        assert json.loads(text) == row


def test_members_who_get_no_mail_are_left_out_and_counted(
    *,
    stack: Stack,
    client: httpx2.Client,
    delivery_client: httpx2.Client,
    list_id: int,
    user_ids: list[int],
    make_reader: Callable[[], Reader],
) -> None:
    without_mail, unsubscribed, bounced, removed, erased = (
        make_reader().joins(list_id) for _ in range(5)
    )
    without_mail.wants_mail(list_id, False)
    unsubscribed.leaves(list_id)
    bounce_hard(stack, build_mailing(list_id, bounced.user_id))
    data(client.delete(f"/subscriptions/{list_id}/members/{removed.user_id}"))
    erase(stack.resources, erased.email)
    data(client.patch(f"/lists/{list_id}", json={"confirm_required": True}))
    pending = subscribe(stack, list_id)
    readers = (without_mail, unsubscribed, bounced, removed, erased, make_reader())
    left_out_ids = [
        *(reader.user_id for reader in readers),
        pending.user_id,
        UNKNOWN_ID,
    ]
    deliveries = read_deliveries(delivery_client, list_id, user_ids[0], *left_out_ids)
    assert [each["user_id"] for each in deliveries["members"]] == user_ids[:1]
    assert deliveries["left_out"] == len(left_out_ids)
    assert read_mailing(client, list_id, deliveries["mailing_id"])["rows"] == 1


def test_repeated_id_counts_once(
    client: httpx2.Client, delivery_client: httpx2.Client, list_id: int, user_ids: list[int]
) -> None:
    requested_ids = [user_ids[0], UNKNOWN_ID] * 2
    deliveries = read_deliveries(delivery_client, list_id, *requested_ids)
    assert [each["user_id"] for each in deliveries["members"]] == user_ids[:1]
    assert deliveries["left_out"] == 1
    assert read_mailing(client, list_id, deliveries["mailing_id"])["rows"] == 1


def test_request_has_1_to_100_ids_and_a_label(
    client: httpx2.Client, delivery_client: httpx2.Client, list_id: int
) -> None:
    reply = request_deliveries(delivery_client, list_id, *range(101))
    assert "100" in problem(reply, 422, "delivery.too_many")["message"]
    path = f"/lists/{list_id}/deliveries"
    invalid_ids: list[tuple[str, object]] = [
        ("user_ids", value) for value in ([], ["1"], [-1], 1, None)
    ]
    invalid_labels: list[tuple[str, object]] = [("label", value) for value in ("", "a" * 101, None)]
    for name, value in invalid_ids + invalid_labels:
        body = {"user_ids": [1], "label": LABEL, name: value}
        error = problem(delivery_client.post(path, json=body), 422, "body.invalid")
        assert error["errors"][0]["field"].startswith(f"body.{name}")
    assert list_mailing_ids(client, list_id) == []
    assert (
        read_deliveries(delivery_client, list_id, *range(100), label="a" * 100)["left_out"] == 100
    )


def test_only_keys_with_the_scope_delivery_mail_members(
    stack: Stack, owner: Owner, client: httpx2.Client, list_id: int, user_ids: list[int]
) -> None:
    problem(request_deliveries(client, list_id, *user_ids), 403, "auth.insufficient_scope")
    with stack.client(stack.create_key(owner.user_id, Scope.SUBSCRIPTION_FULL)) as other_client:
        reply = request_deliveries(other_client, list_id, *user_ids)
        problem(reply, 403, "auth.insufficient_scope")
    with new_visitor(stack) as visitor:
        visitor.enter(owner.email)
        visitor.client.headers["Origin"] = stack.settings().public_base
        reply = request_deliveries(visitor.client, list_id, *user_ids)
        problem(reply, 403, "auth.insufficient_scope")
    with stack.client() as stranger:
        problem(request_deliveries(stranger, list_id, *user_ids), 401, "auth.credentials_missing")
    assert list_mailing_ids(client, list_id) == []


def test_limited_key_mails_only_members_of_its_lists(
    *,
    stack: Stack,
    owner: Owner,
    client: httpx2.Client,
    other_owner: httpx2.Client,
    list_id: int,
    user_ids: list[int],
) -> None:
    moved_list_id = new_list(client)["id"]
    key = create_limited_key(stack, owner, list_id, moved_list_id)["key"]
    stack.query(
        "UPDATE lists SET user_id = %s WHERE id = %s", stack.create_owner().user_id, moved_list_id
    )
    with stack.client(key) as program:
        [member] = read_deliveries(program, list_id, user_ids[0])["members"]
        for other_id in (new_list(client)["id"], new_list(other_owner)["id"], moved_list_id):
            reply = request_deliveries(program, other_id, *user_ids)
            problem(reply, 403, "auth.insufficient_scope")
    trace_id = {"trace_id": member["trace_id"]}
    assert read_trace_id(stack.resources.keyring, member["trace_id"]).is_limited
    with stack.client() as stranger:
        path = f"/subscriptions/{list_id}/email"
        assert data(stranger.put(path, params=trace_id, json={"enabled": False})) == 1
        reply = stranger.put(path, params=trace_id, json={"enabled": True})
        problem(reply, 403, "trace.invalid")


def test_operator_forbids_deliveries_for_the_limited_keys_of_owners(
    stack: Stack, owner: Owner, list_id: int, user_ids: list[int]
) -> None:
    owners_key = create_limited_key(stack, owner, list_id)["key"]
    operators_key = run_json_command(
        *(stack, "keys", "create", owner.email, "--name", "n", "--scope", "delivery"),
        *("--list", str(list_id)),
    )["key"]
    with stack.run_second_api(PRESSROOM_OWNERS_SEND="false") as api:
        with api.client(owners_key) as program:
            reply = request_deliveries(program, list_id, *user_ids)
            problem(reply, 403, "auth.delivery_forbidden")
        with api.client(operators_key) as program:
            assert read_deliveries(program, list_id, *user_ids)["left_out"] == 0


def test_list_without_mail_has_no_deliveries(
    client: httpx2.Client, delivery_client: httpx2.Client, list_id: int, user_ids: list[int]
) -> None:
    data(client.patch(f"/lists/{list_id}", json={"email_channel_enabled": False}))
    reply = request_deliveries(delivery_client, list_id, *user_ids)
    problem(reply, 409, "list.email_channel_disabled")
    data(client.delete(f"/lists/{list_id}"))
    problem(request_deliveries(delivery_client, list_id, *user_ids), 404, "list.not_found")


def test_requests_with_one_label_on_one_day_are_one_mailing(
    *,
    stack: Stack,
    owner: Owner,
    client: httpx2.Client,
    delivery_client: httpx2.Client,
    list_id: int,
    user_ids: list[int],
) -> None:
    first = read_deliveries(delivery_client, list_id, *user_ids[:2])
    assert read_deliveries(delivery_client, list_id, *user_ids[:2]) == first
    with stack.client(create_limited_key(stack, owner, list_id)["key"]) as program:
        assert read_deliveries(program, list_id, *user_ids)["mailing_id"] == first["mailing_id"]
    mailing = read_mailing(client, list_id, first["mailing_id"])
    assert (mailing["label"], mailing["rows"], mailing["measured"]) == (LABEL, 3, 0)
    other = read_deliveries(delivery_client, list_id, *user_ids, label="welcome")
    assert list_mailing_ids(client, list_id) == [other["mailing_id"], first["mailing_id"]]
    other_list_id = new_list(client)["id"]
    elsewhere = read_deliveries(delivery_client, other_list_id, *user_ids)
    assert list_mailing_ids(client, other_list_id) == [elsewhere["mailing_id"]]


def test_next_day_begins_another_mailing(
    stack: Stack,
    client: httpx2.Client,
    delivery_client: httpx2.Client,
    list_id: int,
    user_ids: list[int],
) -> None:
    first = read_deliveries(delivery_client, list_id, *user_ids)
    make_a_day_older(stack, first["mailing_id"])
    second = read_deliveries(delivery_client, list_id, *user_ids)
    assert list_mailing_ids(client, list_id) == [second["mailing_id"], first["mailing_id"]]
    rows = [read_mailing(client, list_id, each["mailing_id"])["rows"] for each in (first, second)]
    assert rows == [len(user_ids)] * 2


def test_renaming_a_mailing_does_not_begin_another_one(
    client: httpx2.Client, delivery_client: httpx2.Client, list_id: int, user_ids: list[int]
) -> None:
    first, other = (
        read_deliveries(delivery_client, list_id, *user_ids, label=label)
        for label in (LABEL, "Birthday")
    )
    path = f"/lists/{list_id}/mailings/{first['mailing_id']}"
    assert data(client.patch(path, json={"label": "Birthday"}))["label"] == "Birthday"
    assert read_deliveries(delivery_client, list_id, *user_ids) == first
    assert read_deliveries(delivery_client, list_id, *user_ids, label="Birthday") == other


def test_mailing_counts_each_measured_member_once(
    client: httpx2.Client, delivery_client: httpx2.Client, list_id: int, user_ids: list[int]
) -> None:
    data(client.patch(f"/lists/{list_id}", json={"engagement": "all"}))
    for requested_ids in (user_ids[:2], user_ids):
        mailing_id = read_deliveries(delivery_client, list_id, *requested_ids)["mailing_id"]
        assert read_mailing(client, list_id, mailing_id)["measured"] == len(requested_ids)


def test_concurrent_requests_count_each_member_once(
    stack: Stack, client: httpx2.Client, delivery_client: httpx2.Client, list_id: int
) -> None:
    insert_members(stack, list_id, [new_address() for _ in range(120)])
    user_ids = [each["user_id"] for each in fetch_members(client, list_id, limit=120)]
    # Each request names most members of the other requests, in another order.
    requests = [user_ids[start : start + 80][::step] for start in (0, 20, 40) for step in (1, -1)]

    def create(requested_ids: list[int]) -> dict[str, Any]:
        return read_deliveries(delivery_client, list_id, *requested_ids)

    with ThreadPoolExecutor(len(requests)) as pool:
        created = list(pool.map(create, requests))
    [mailing_id] = {each["mailing_id"] for each in created}
    assert {each["left_out"] for each in created} == {0}
    assert read_mailing(client, list_id, mailing_id)["rows"] == len(user_ids)
    assert list_mailing_ids(client, list_id) == [mailing_id]


def test_limited_key_causes_one_security_event_per_mailing(
    stack: Stack, owner: Owner, client: httpx2.Client, list_id: int, user_ids: list[int]
) -> None:
    key = create_limited_key(stack, owner, list_id)
    with stack.client(key["key"]) as program:
        mailing_ids = [
            read_deliveries(program, list_id, *user_ids, label=label)["mailing_id"]
            for label in (LABEL, LABEL, "Birthday")
        ]
    events = data(client.get("/users/me/security-events"))["items"]
    exports = [each for each in events if each["type"] == "export.created"]
    assert [each["detail"] for each in exports] == [
        {"mailing_id": mailing_id, "list_id": list_id, "kind": "deliveries"}
        for mailing_id in (mailing_ids[2], mailing_ids[0])
    ]
    assert {each["credential"]["id"] for each in exports} == {key["id"]}


def test_repeated_idempotency_key_keeps_the_mailing_across_midnight(
    *,
    stack: Stack,
    client: httpx2.Client,
    delivery_client: httpx2.Client,
    list_id: int,
    user_ids: list[int],
) -> None:
    key = token_hex(16)
    first = request_deliveries(delivery_client, list_id, *user_ids, key=key)
    assert "Idempotent-Replayed" not in first.headers
    make_a_day_older(stack, data(first)["mailing_id"])
    second = request_deliveries(delivery_client, list_id, *user_ids, key=key)
    assert second.headers["Idempotent-Replayed"] == "true"
    assert data(second)["mailing_id"] == data(first)["mailing_id"]
    day_before = datetime.now(UTC).date() - timedelta(days=1)
    keyring = stack.resources.keyring
    deliveries = [
        read_delivery_id(keyring, each["delivery_id"]) for each in data(second)["members"]
    ]
    assert {delivery and delivery.day for delivery in deliveries} == {day_before}
    assert list_mailing_ids(client, list_id) == [data(first)["mailing_id"]]


def test_repeated_idempotency_key_returns_nobody_who_has_left_since(
    stack: Stack,
    client: httpx2.Client,
    delivery_client: httpx2.Client,
    list_id: int,
    user_ids: list[int],
) -> None:
    key = token_hex(16)
    first = data(request_deliveries(delivery_client, list_id, *user_ids, key=key))
    query = {"trace_id": trace_for(stack, list_id, user_ids[0])}
    with stack.client() as stranger:
        assert data(stranger.post(f"/subscriptions/{list_id}/delete", params=query)) == 1
    second = data(request_deliveries(delivery_client, list_id, *user_ids, key=key))
    staying = [each for each in first["members"] if each["user_id"] != user_ids[0]]
    assert second == {**first, "members": staying, "left_out": 1}


def test_idempotency_key_names_one_request_of_one_user(
    stack: Stack, delivery_client: httpx2.Client, list_id: int, user_ids: list[int]
) -> None:
    key = token_hex(16)
    data(request_deliveries(delivery_client, list_id, *user_ids, key=key))
    for changes in ({"label": "Birthday"}, {"user_ids": user_ids[:1]}):
        body = {"user_ids": user_ids, "label": LABEL, **changes}
        headers = {"Idempotency-Key": key}
        reply = delivery_client.post(f"/lists/{list_id}/deliveries", json=body, headers=headers)
        problem(reply, 422, "idempotency.key_reused")
    reply = request_deliveries(delivery_client, list_id, *user_ids, key="short")
    problem(reply, 400, "idempotency.key_invalid")
    other_key = stack.create_key(stack.create_owner().user_id, Scope.DELIVERY)
    with stack.client(other_key) as other_program:
        reply = request_deliveries(other_program, list_id, *user_ids, key=key)
        assert data(reply)["left_out"] == 0
        assert "Idempotent-Replayed" not in reply.headers


def test_only_the_first_of_concurrent_equal_requests_is_not_replayed(
    client: httpx2.Client, delivery_client: httpx2.Client, list_id: int, user_ids: list[int]
) -> None:
    key = token_hex(16)

    def create(_: int) -> httpx2.Response:
        return request_deliveries(delivery_client, list_id, *user_ids, key=key)

    with ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(create, range(6)))
    assert len({json.dumps(data(reply)) for reply in replies}) == 1
    assert sum("Idempotent-Replayed" in reply.headers for reply in replies) == 5
    assert len(list_mailing_ids(client, list_id)) == 1


def test_senders_report_deliveries_and_bounces_of_the_mailing(
    *,
    stack: Stack,
    console: OwnerAtConsole,
    delivery_client: httpx2.Client,
) -> None:
    list_id = new_list(console.api)["id"]
    sender = new_sender(console.api)
    data(add(console.api, list_id, *(new_address() for _ in range(3))))
    user_ids = [each["user_id"] for each in fetch_members(console.api, list_id)]
    deliveries = read_deliveries(delivery_client, list_id, *user_ids)
    first, second, third = (each["delivery_id"] for each in deliveries["members"])
    deliver(
        stack,
        console.api,
        sender,
        report("delivered", delivery_id=first),
        bounce("hard", "5.1.1", delivery_id=second),
        report("complained", delivery_id=third),
    )
    assert outcomes(console.api, sender) == ["applied"] * 3
    mailing = read_mailing(console.api, list_id, deliveries["mailing_id"])
    figures = ("rows", "delivered", "hard_bounced", "complained")
    assert [mailing[name] for name in figures] == [3, 1, 1, 1]
    [member] = read_deliveries(delivery_client, list_id, *user_ids)["members"]
    assert member["delivery_id"] == first
    [row] = rows_of(console.see(f"/console/lists/{list_id}/mailings"))[1:]
    assert (row[0], row[2]) == (LABEL, "3")
    page = console.see(f"/console/lists/{list_id}/mailings/{deliveries['mailing_id']}")
    assert "3 recipients" in page


def test_no_delivery_names_a_member_who_opted_out_before_the_request(
    stack: Stack, delivery_client: httpx2.Client, list_id: int
) -> None:
    insert_members(stack, list_id, [new_address() for _ in range(RACES)])
    rows = stack.query("SELECT user_id FROM subscriptions WHERE list_id = %s", list_id)
    user_ids = [int(str(user_id)) for (user_id,) in rows]
    batches = [user_ids[start : start + MAX_IDS] for start in range(0, RACES, MAX_IDS)]
    gone_ids: set[int] = set()

    def opt_out(user_id: int) -> None:
        # Store only the opt-out, because a report's opt-out is committed before the member's status
        # changes. A thousand reports would take too long.
        with stack.resources.unit_of_work() as uow:
            address_hmac = hashlib.sha256(str(user_id).encode()).digest()
            uow.session.add(
                OptOut(
                    list_id=list_id,
                    user_id=user_id,
                    address_hmac=address_hmac,
                    kind=OptOutKind.LIST,
                    source=SENDER_UNSUBSCRIBE,
                )
            )
        gone_ids.add(user_id)

    def find_wrong_ids(batch: list[int]) -> set[int]:
        gone_before = gone_ids.copy()
        members = read_deliveries(delivery_client, list_id, *batch)["members"]
        return gone_before & {each["user_id"] for each in members}

    with ThreadPoolExecutor(2) as pool:
        for batch in batches:
            opt_outs = [pool.submit(opt_out, user_id) for user_id in batch]
            while not all(each.done() for each in opt_outs):
                assert find_wrong_ids(batch) == set()
    assert gone_ids == set(user_ids)
    assert all(find_wrong_ids(batch) == set() for batch in batches)
