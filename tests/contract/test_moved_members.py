"""A member whose account moved on: the list knows them by the address that they had."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.contract.bulk import add, counts, imported, of_addresses, sheet
from tests.contract.moving import MOVED, ask, brought, join, leave, roster
from tests.contract.replies import data
from tests.contract.subscribers import count, known_member, members, new_list, trace_for
from tests.erasing import erase
from tests.stack import Stack, eventually
from tests.visiting import PASSWORD, Visitor, a_visitor, new_address, user_id_of


def moved(person: Visitor) -> str:
    """The person's account moves; returns its new address."""
    new = new_address()
    ask(person, new)
    assert data(person.get("/users/me"))["email"] == new
    return new


@contextmanager
def next_holder(stack: Stack, email: str) -> Iterator[Visitor]:
    """Somebody else makes an account with an address that is free."""
    with a_visitor(stack) as visitor:
        visitor.fill_in("/register", email=email)
        link = visitor.mailed_path(email, "Finish your registration")
        assert visitor.fill_in(link, name="Other", password=PASSWORD).status_code == 303
        yield visitor


# -- files that name them --------------------------------------------------------------------------


def test_a_complaint_about_the_address_that_the_list_knows_is_theirs(
    person: Visitor, present: str, client: httpx.Client, sender: httpx.Client, list_id: int
) -> None:
    join(person, list_id)
    new = moved(person)
    assert roster(sender, list_id) == [new]
    told = imported(client, list_id, of_addresses(present), kind="complaints")
    assert counts(told) == {"received": 1, "opted_out": 1}
    assert roster(sender, list_id) == []
    assert count(client, list_id) == 0
    for each in (present, new):
        data(add(client, list_id, each))
    assert roster(sender, list_id) == []


def test_no_file_makes_a_second_member_of_them(
    person: Visitor,
    present: str,
    client: httpx.Client,
    sender: httpx.Client,
    list_id: int,
) -> None:
    join(person, list_id)
    new = moved(person)
    file = sheet(["Email", "Name"], [present, "Ada"])
    told = imported(client, list_id, file, on_existing="update")
    assert counts(told) == {"received": 1, "already": 1, "updated": 1}
    [shown] = members(client, list_id)
    user_id = user_id_of(person.stack, new)
    assert (shown["user_id"], shown["email"], shown["name"]) == (user_id, present, "Ada")
    assert roster(sender, list_id) == [new]
    leave(person, list_id)
    assert roster(sender, list_id) == []


def test_who_has_the_address_now_is_named_by_it(
    person: Visitor, present: str, client: httpx.Client, list_id: int
) -> None:
    join(person, list_id)
    moved(person)
    with next_holder(person.stack, present) as other:
        join(other, list_id)
    other_id = user_id_of(person.stack, present)
    told = imported(client, list_id, sheet(["Email", "Name"], [present, "B"]), on_existing="update")
    assert counts(told) == {"received": 1, "already": 1, "updated": 1}
    named = data(client.get(f"/lists/{list_id}/members/{present}"))
    assert (named["user_id"], named["name"]) == (other_id, "B")
    told = imported(client, list_id, of_addresses(present), kind="complaints")
    assert counts(told) == {"received": 1, "opted_out": 1}
    [left] = members(client, list_id)
    assert left["user_id"] != other_id


# -- their no --------------------------------------------------------------------------------------


def test_their_no_holds_for_both_addresses(
    person: Visitor, present: str, client: httpx.Client, sender: httpx.Client, list_id: int
) -> None:
    join(person, list_id)
    new = moved(person)
    leave(person, list_id)
    for each in (present, new):
        told = imported(client, list_id, of_addresses(each))
        assert counts(told) == {"received": 1, "opted_out": 1}
    assert roster(sender, list_id) == []
    # It is all theirs to take back.
    join(person, list_id)
    assert roster(sender, list_id) == [new]
    kept = "SELECT count(*) FROM opt_outs WHERE list_id = %s"
    assert person.stack.query(kept, list_id) == [(0,)]


@pytest.mark.parametrize("leaves_first", [False, True])
def test_it_outlives_their_erasure_by_both(
    person: Visitor,
    present: str,
    client: httpx.Client,
    list_id: int,
    leaves_first: bool,
) -> None:
    join(person, list_id)
    if leaves_first:
        leave(person, list_id)
    new = moved(person)
    if not leaves_first:
        leave(person, list_id)
    erase(person.stack.resources, new)
    for each in (present, new):
        data(add(client, list_id, each))
    assert count(client, list_id) == 0


def test_what_an_earlier_release_kept_of_them_outlives_their_erasure(
    person: Visitor, present: str, client: httpx.Client, list_id: int
) -> None:
    """It stored the new address alone."""
    join(person, list_id)
    new = moved(person)
    leave(person, list_id)
    person.stack.query("DELETE FROM opt_outs WHERE list_id = %s AND user_id IS NULL", list_id)
    erase(person.stack.resources, new)
    for each in (present, new):
        data(add(client, list_id, each))
    assert count(client, list_id) == 0


def test_nobody_lifts_the_no_of_who_had_the_address_before(
    person: Visitor,
    present: str,
    client: httpx.Client,
    sender: httpx.Client,
    list_id: int,
) -> None:
    join(person, list_id)
    leave(person, list_id)
    new = moved(person)
    with next_holder(person.stack, present) as other:
        join(other, list_id)
        data(add(client, list_id, new))
        assert roster(sender, list_id) == [present]
        # Each has their own no from now on.
        leave(other, list_id)
    theirs = "SELECT count(DISTINCT user_id) FROM opt_outs WHERE list_id = %s"
    assert person.stack.query(theirs, list_id) == [(2,)]
    join(person, list_id)
    data(add(client, list_id, present))
    assert roster(sender, list_id) == [new]


# -- the address that they take back ---------------------------------------------------------------


def taken_back(person: Visitor, present: str, client: httpx.Client, list_id: int) -> int:
    """A list makes a record of the free address, which its account then takes back."""
    moved(person)
    undo = person.mailed_path(present, MOVED)
    other_id = brought(client, list_id, present)
    assert person.fill_in(undo).status_code == 303
    return other_id


def merged_into_their_account(stack: Stack, other_id: int) -> None:
    ended = "SELECT 1 FROM account_merges WHERE merged_id = %s AND status = 'merged'"
    eventually(lambda: stack.query(ended, other_id), within=60, what="the merge")


def test_what_a_list_made_of_it_meanwhile_becomes_theirs(
    person: Visitor,
    present: str,
    client: httpx.Client,
    sender: httpx.Client,
    list_id: int,
) -> None:
    merged_into_their_account(person.stack, taken_back(person, present, client, list_id))
    user_id = user_id_of(person.stack, present)
    assert known_member(client, list_id, present)["user_id"] == user_id
    assert roster(sender, list_id) == [present]
    erase(person.stack.resources, present)
    assert roster(sender, list_id) == []
    assert person.stack.query("SELECT 1 FROM subscriptions WHERE email = %s", present) == []


def test_a_no_to_it_holds_before_the_records_are_one(
    person: Visitor, present: str, client: httpx.Client, sender: httpx.Client
) -> None:
    letters = [new_list(client)["id"] for _ in range(2)]
    other_id = taken_back(person, present, client, letters[0])
    # A merge that has not come yet.
    trace: dict[str, Any] = {"trace_id": trace_for(person.stack, letters[0], other_id)}
    assert data(client.request("DELETE", f"/subscriptions/{letters[0]}", params=trace)) == 1
    data(add(client, letters[0], present))
    assert roster(sender, letters[0]) == []
    merged_into_their_account(person.stack, other_id)
    data(add(client, letters[0], present))
    assert roster(sender, letters[0]) == []
