"""Tests that a free account can't exceed the quotas of its plan, even with concurrent calls."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.ids import random_hash_id
from devstack.harness.stack import Owner, Stack
from models import Plan
from services.access.quotas import count_row_bytes
from tests.support.composer.composing import METADATA, make_unique_post, request_composer
from tests.support.http.replies import data, problem, send
from tests.support.images.pictures import encoded
from tests.support.imports.bulk import add, build_address_file, upload
from tests.support.lists.segments import VIP
from tests.support.lists.subscribers import new_address, new_list
from tests.support.people.quotas import MB, begin_jobs, end_jobs, set_stored_bytes, stored_bytes
from tests.support.sizes import sized
from tests.support.stack.load import call_at_once

CALLERS = 8
PICTURE = encoded("PNG", size=(32, 32))


@dataclass(frozen=True)
class QuotaCall:
    """An API call that counts as one unit towards a quota of the plan.

    Attributes:
        quota: the name of the quota.
        max_calls: the number of calls that the quota permits.
        fill: uses up the quota of a free account, as if that many calls had been made.
        make_call: makes one call.
    """

    quota: str
    max_calls: int
    fill: Callable[[Stack, httpx2.Client, Owner, int], None]
    make_call: Callable[[httpx2.Client], httpx2.Response]


def _fill_lists(_: Stack, client: httpx2.Client, __: Owner, used: int) -> None:
    for _number in range(used):
        new_list(client)


def _fill_keys(stack: Stack, _: httpx2.Client, owner: Owner, used: int) -> None:
    # Create only ``used - 1`` API keys, because a new owner already has an API key.
    for _number in range(used - 1):
        stack.create_key(owner.user_id)


def _fill_storage(stack: Stack, _: httpx2.Client, owner: Owner, used: int) -> None:
    room = (QUOTA_CALLS["uploads"].max_calls - used) * len(PICTURE)
    set_stored_bytes(stack, owner.user_id, 500 * MB - room)


def _fill_rows(stack: Stack, client: httpx2.Client, owner: Owner, used: int) -> None:
    new_list(client)
    set_stored_bytes(
        stack,
        owner.user_id,
        500 * MB - (QUOTA_CALLS["segments"].max_calls - used) * count_row_bytes(VIP),
    )


def _fill_jobs(stack: Stack, client: httpx2.Client, owner: Owner, used: int) -> None:
    new_list(client)
    begin_jobs(stack, owner.user_id, used)


def _fill_composer(stack: Stack, _: httpx2.Client, owner: Owner, used: int) -> None:
    stack.query(
        "INSERT INTO composer_uses VALUES (%s, (now() AT TIME ZONE 'UTC')::date, %s)",
        owner.user_id,
        used,
    )


def _list_id(client: httpx2.Client) -> int:
    return int(data(client.get("/lists"))["items"][0]["id"])


POST = make_unique_post()
QUOTA_CALLS = {
    "lists": QuotaCall(
        "lists",
        5,
        _fill_lists,
        lambda client: client.post("/lists", json={"title": "t", "slug": random_hash_id()}),
    ),
    "keys": QuotaCall(
        "keys", 10, _fill_keys, lambda client: client.post("/apikeys", json={"name": "n"})
    ),
    "uploads": QuotaCall(
        "storage_mb", 6, _fill_storage, lambda client: send(client, PICTURE, prefer="respond-async")
    ),
    "segments": QuotaCall(
        "storage_mb",
        6,
        _fill_rows,
        lambda client: client.post(
            f"/lists/{_list_id(client)}/segments", json={"name": random_hash_id(), "filter": VIP}
        ),
    ),
    "dry runs": QuotaCall(
        "unfinished_jobs",
        3,
        _fill_jobs,
        lambda client: upload(
            client, _list_id(client), build_address_file(new_address()), prefer=None, dry_run="1"
        ),
    ),
    "exports": QuotaCall(
        "unfinished_jobs",
        3,
        _fill_jobs,
        lambda client: client.post(
            f"/lists/{_list_id(client)}/exports",
            json={"kind": "members"},
            headers={"Prefer": "respond-async"},
        ),
    ),
    "composer": QuotaCall(
        "composer_per_day",
        50,
        _fill_composer,
        lambda client: request_composer(client, METADATA, POST),
    ),
}


@pytest.mark.parametrize("call_name", QUOTA_CALLS)
@settings(max_examples=sized(2, 50), database=None)
@given(room=st.integers(0, 3), callers=st.integers(2, CALLERS))
def test_concurrent_calls_never_exceed_the_plan_quota(
    stack: Stack, call_name: str, room: int, callers: int
) -> None:
    quota_call = QUOTA_CALLS[call_name]
    owner = stack.create_owner(plan=Plan.FREE)
    with stack.client(owner.key) as client:
        quota_call.fill(stack, client, owner, quota_call.max_calls - room)
        replies = call_at_once(callers, partial(quota_call.make_call, client))
        used = data(client.get("/users/me"))["quotas"][quota_call.quota]
    end_jobs(stack, owner.user_id)
    rejections = [reply for reply in replies if reply.status_code == 403]
    for reply in rejections:
        assert problem(reply, 403, "quota.exceeded")["quota"] == quota_call.quota
    accepted = callers - len(rejections)
    assert {reply.status_code for reply in replies} <= {200, 202, 403}
    if quota_call.quota == "unfinished_jobs":
        # More calls can succeed than the quota has room for, because workers finish some jobs
        # during the calls.
        assert accepted >= min(room, callers)
        assert room or not accepted
    elif quota_call.quota == "storage_mb":
        # More calls can succeed than the quota has room for, because the conversion makes the
        # uploaded pictures smaller.
        assert stored_bytes(stack, owner.user_id) <= 500 * MB
        assert room or not accepted
    else:
        assert accepted == min(room, callers)
    assert used["used"] <= used["limit"]


def test_free_account_cannot_add_members_by_import_or_api(stack: Stack) -> None:
    owner = stack.create_owner(plan=Plan.FREE)
    with stack.client(owner.key) as client:
        list_id = new_list(client)["id"]
        file = build_address_file(*(new_address() for _ in range(3)))
        problem(upload(client, list_id, file), 403, "plan.required")
        problem(upload(client, list_id, file, on_existing="update"), 403, "plan.required")
        problem(add(client, list_id, new_address()), 403, "plan.required")
        reply = client.post(f"/lists/{list_id}/imports", content=file, params={"dry_run": "0"})
        problem(reply, 403, "plan.required")
        dry_run = data(upload(client, list_id, file, dry_run="1"))
        assert dry_run["result"]["added"] == 3
        # A retry can't turn the dry run into a real import.
        assert client.post(f"/jobs/{dry_run['id']}/retry").status_code == 409
        assert data(client.get(f"/lists/{list_id}"))["subscriber_count"] == 0


def test_equal_concurrent_uploads_at_the_quota_return_the_same_attachment(stack: Stack) -> None:
    owner = stack.create_owner(plan=Plan.FREE)
    key = random_hash_id(20)
    with stack.client(owner.key) as client:
        picture = data(send(client, PICTURE))
        picture_bytes = picture["size"] + picture["thumbnail"]["size"]
        data(client.delete(f"/attachments/{picture['hash_id']}"))
        set_stored_bytes(stack, owner.user_id, 500 * MB - max(len(PICTURE), picture_bytes))
        replies = call_at_once(4, lambda: send(client, PICTURE, key=key))
    # The first upload uses up the quota. The concurrent uploads get the response of the first
    # upload, because all of them have the same idempotency key.
    assert {data(reply)["hash_id"] for reply in replies} == {data(replies[0])["hash_id"]}
