"""Tests that a reported opt-out of an address that belongs to no member applies everywhere."""

from collections.abc import Callable

import httpx2
import pytest

from devstack.harness.stack import Owner, Stack
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import add, build_address_file, fetch_rows, import_members_file
from tests.support.lists.subscribers import (
    Reader,
    get_member,
    new_address,
    new_list,
    read_subscriber_count,
    require_member,
)
from tests.support.people.erasure import erase
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import deliver, report


@pytest.fixture
def list_ids(client: httpx2.Client) -> list[int]:
    """The ids of two lists."""
    return [int(new_list(client)["id"]) for _ in range(2)]


@pytest.fixture
def opt_out(stack: Stack, client: httpx2.Client, list_ids: list[int]) -> Callable[[str], None]:
    """A function that reports an unsubscription of an address from both lists."""
    sender = new_sender(client, list_ids=list_ids)

    def report_opt_out(email: str) -> None:
        deliver(stack, client, sender, report("unsubscribed", email=email))

    return report_opt_out


@pytest.fixture
def count_opt_outs(stack: Stack, owner: Owner) -> Callable[[], int]:
    """A function that counts the owner's opt-outs of addresses."""
    query = "SELECT 1 FROM address_opt_outs WHERE user_id = %s"
    return lambda: len(stack.query(query, owner.user_id))


def test_opted_out_address_is_neither_imported_nor_transferred(
    client: httpx2.Client, list_ids: list[int], opt_out: Callable[[str], None]
) -> None:
    email, other_email = new_address(), new_address()
    opt_out(email)
    result = import_members_file(client, list_ids[0], build_address_file(email, other_email))
    assert (result["added"], result["opted_out"]) == (1, 1)
    third_id = int(new_list(client)["id"])
    data(add(client, third_id, email))
    member = require_member(client, third_id, email)
    assert member["status"] == "active"
    path = f"/subscriptions/{third_id}/members/{member['user_id']}/transfer"
    data(client.post(path, params={"dst_list_id": list_ids[0]}))
    assert require_member(client, list_ids[0], email)["status"] == "unsubscribed"
    assert read_subscriber_count(client, list_ids[0]) == 1


def test_opt_out_of_an_address_concerns_no_other_owner(
    client: httpx2.Client,
    other_owner: httpx2.Client,
    list_ids: list[int],
    opt_out: Callable[[str], None],
) -> None:
    email = new_address()
    opt_out(email)
    other_list_id = int(new_list(other_owner)["id"])
    data(add(other_owner, other_list_id, email))
    data(add(client, list_ids[0], email))
    assert read_subscriber_count(other_owner, other_list_id) == 1
    assert read_subscriber_count(client, list_ids[0]) == 0


def test_person_lifts_the_opt_out_of_an_address_for_one_list(
    client: httpx2.Client,
    reader: Reader,
    list_ids: list[int],
    opt_out: Callable[[str], None],
    count_opt_outs: Callable[[], int],
) -> None:
    opt_out(reader.email)
    path = f"/lists/{list_ids[0]}/members/{reader.email}"
    problem(client.put(path, json={}), 409, "subscription.opted_out")
    reader.joins(list_ids[0])
    assert reader.read_status(list_ids[0]) == ("active", True)
    data(add(client, list_ids[1], reader.email))
    assert read_subscriber_count(client, list_ids[1]) == 0
    assert count_opt_outs() == 1
    reader.joins(list_ids[1])
    assert count_opt_outs() == 0
    assert get_member(client, list_ids[1], reader)["status"] == "active"


def test_roster_omits_a_member_who_was_added_while_the_opt_out_was_reported(
    stack: Stack, client: httpx2.Client, delivery_client: httpx2.Client, list_id: int
) -> None:
    emails = [new_address(), new_address()]
    sender = new_sender(client, list_ids=[list_id])
    deliver(stack, client, sender, report("complained", email=emails[0]))
    # Add the member as a transaction does that began before the report arrived.
    update = "UPDATE address_opt_outs SET list_ids = ARRAY[%s::bigint] WHERE %s = ANY (list_ids)"
    stack.query(update, 0, list_id)
    data(add(client, list_id, *emails))
    stack.query(update, list_id, 0)
    assert read_subscriber_count(client, list_id) == 2
    job = data(delivery_client.post(f"/lists/{list_id}/exports", json={"kind": "delivery"}))
    assert [row["email"] for row in fetch_rows(job["result"]["url"])] == [emails[1]]


def test_erasure_of_an_owner_deletes_the_opt_outs_of_addresses(
    stack: Stack, owner: Owner, opt_out: Callable[[str], None], count_opt_outs: Callable[[], int]
) -> None:
    opt_out(new_address())
    assert count_opt_outs() == 1
    stack.query("UPDATE lists SET archived_at = now() WHERE user_id = %s", owner.user_id)
    erase(stack.resources, owner.email)
    assert count_opt_outs() == 0
