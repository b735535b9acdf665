"""A member whose account moved on: the list knows them by the address that they had."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from tests.contract.bulk import add, counts, errors, imported, of_addresses, sheet
from tests.contract.moving import MOVED, ask, join, leave, roster
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


def test_a_complaint_about_the_address_that_the_list_knows_is_theirs(
    person: Visitor, email: str, client: httpx2.Client, sender: httpx2.Client, list_id: int
) -> None:
    join(person, list_id)
    new = moved(person)
    assert roster(sender, list_id) == [new]
    told = imported(client, list_id, of_addresses(email), kind="complaints")
    assert counts(told) == {"received": 1, "opted_out": 1}
    assert roster(sender, list_id) == []
    assert count(client, list_id) == 0
    for each in (email, new):
        data(add(client, list_id, each))
    assert roster(sender, list_id) == []


def test_no_file_makes_a_second_member_of_them(
    person: Visitor, email: str, client: httpx2.Client, sender: httpx2.Client, list_id: int
) -> None:
    join(person, list_id)
    new = moved(person)
    agreed = ["2020-02-02 10:00:00", "2020-02-03 10:00:00"]
    for each in agreed:
        file = sheet(["Email", "Name", "OPTIN_TIME"], [email, "Ada", each])
        told = imported(client, list_id, file, on_existing="update")
        is_updated = {"updated": 1} if each == agreed[0] else {}
        assert counts(told) == {"received": 1, "already": 1, **is_updated}
    [shown] = members(client, list_id)
    user_id = user_id_of(person.stack, new)
    assert (shown["user_id"], shown["email"], shown["name"]) == (user_id, email, "Ada")
    entries = data(client.get(f"/lists/{list_id}/members/{user_id}/consent"))["items"]
    assert {"2020-02-02", "2020-02-03"} <= {each["at"][:10] for each in entries}
    assert roster(sender, list_id) == [new]
    leave(person, list_id)
    assert roster(sender, list_id) == []


def test_of_two_rows_that_name_them_the_first_counts_unless_one_is_their_no(
    person: Visitor, email: str, client: httpx2.Client, list_id: int
) -> None:
    join(person, list_id)
    new, other = moved(person), new_address()
    user_id = user_id_of(person.stack, new)
    assert data(client.delete(f"/subscriptions/{list_id}/members/{user_id}")) == 1
    rows = [email, "Ada"], [new, "Eve"], [other, "Other"]
    told = imported(client, list_id, sheet(["Email", "Name"], *rows))
    assert counts(told) == {"received": 3, "added": 2, "duplicate": 1}
    assert {each["email"] for each in members(client, list_id)} == {email, other}
    assert known_member(client, list_id, email)["name"] == "Ada"
    [left_out] = errors(told["errors_url"])
    assert (left_out["code"], left_out["Email"]) == ("row.duplicate", new)
    file = sheet(["Email", "Status"], [email, ""], [new, "unsubscribed"])
    told = imported(client, list_id, file)
    assert counts(told) == {"received": 2, "opted_out": 1, "duplicate": 1}
    assert [each["email"] for each in members(client, list_id)] == [other]


def test_a_file_brings_them_by_the_address_that_they_had(
    person: Visitor, email: str, client: httpx2.Client, sender: httpx2.Client, list_id: int
) -> None:
    new = moved(person)
    told = imported(client, list_id, of_addresses(email, new))
    assert counts(told) == {"received": 2, "added": 1, "duplicate": 1}
    [shown] = members(client, list_id)
    assert (shown["user_id"], shown["email"]) == (user_id_of(person.stack, new), email)
    assert roster(sender, list_id) == [new]


def test_a_no_before_two_moves_holds_for_the_address_between(
    person: Visitor, email: str, client: httpx2.Client, sender: httpx2.Client, list_id: int
) -> None:
    join(person, list_id)
    leave(person, list_id)
    between = moved(person)
    last = moved(person)
    for each in (email, between, last):
        assert data(add(client, list_id, each)) == 0
    assert client.put(f"/lists/{list_id}/members/{between}", json={}).status_code == 409
    assert roster(sender, list_id) == []


def test_who_has_the_address_now_is_named_by_it(
    person: Visitor, email: str, client: httpx2.Client, list_id: int
) -> None:
    join(person, list_id)
    moved(person)
    with next_holder(person.stack, email) as other:
        join(other, list_id)
    other_id = user_id_of(person.stack, email)
    told = imported(client, list_id, sheet(["Email", "Name"], [email, "B"]), on_existing="update")
    assert counts(told) == {"received": 1, "already": 1, "updated": 1}
    named = data(client.get(f"/lists/{list_id}/members/{email}"))
    assert (named["user_id"], named["name"]) == (other_id, "B")
    told = imported(client, list_id, of_addresses(email), kind="complaints")
    assert counts(told) == {"received": 1, "opted_out": 1}
    [left] = members(client, list_id)
    assert left["user_id"] != other_id


def test_their_no_holds_for_both_addresses(
    person: Visitor, email: str, client: httpx2.Client, sender: httpx2.Client, list_id: int
) -> None:
    join(person, list_id)
    new = moved(person)
    leave(person, list_id)
    for each in (email, new):
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
    person: Visitor, email: str, client: httpx2.Client, list_id: int, leaves_first: bool
) -> None:
    join(person, list_id)
    if leaves_first:
        leave(person, list_id)
    new = moved(person)
    if not leaves_first:
        leave(person, list_id)
    erase(person.stack.resources, new)
    for each in (email, new):
        data(add(client, list_id, each))
    assert count(client, list_id) == 0


def test_nobody_lifts_the_no_of_who_had_the_address_before(
    person: Visitor, email: str, client: httpx2.Client, sender: httpx2.Client, list_id: int
) -> None:
    join(person, list_id)
    leave(person, list_id)
    new = moved(person)
    with next_holder(person.stack, email) as other:
        join(other, list_id)
        data(add(client, list_id, new))
        assert roster(sender, list_id) == [email]
        # Each has their own no from now on.
        leave(other, list_id)
    theirs = "SELECT count(DISTINCT user_id) FROM opt_outs WHERE list_id = %s"
    assert person.stack.query(theirs, list_id) == [(2,)]
    join(person, list_id)
    data(add(client, list_id, email))
    assert roster(sender, list_id) == [new]


def test_what_a_list_made_of_it_meanwhile_ends_when_they_take_it_back(
    person: Visitor, email: str, client: httpx2.Client, sender: httpx2.Client
) -> None:
    letters = [new_list(client)["id"] for _ in range(2)]
    moved(person)
    undo = person.mailed_path(email, MOVED)
    for each in letters:
        made = data(client.put(f"/lists/{each}/members/{email}", json={}))
    trace: dict[str, Any] = {"trace_id": trace_for(person.stack, letters[0], made["user_id"])}
    assert data(client.request("DELETE", f"/subscriptions/{letters[0]}", params=trace)) == 1
    assert person.fill_in(undo).status_code == 303
    eventually(lambda: count(client, letters[1]) == 0, what="the end of the membership")
    assert [roster(sender, each) for each in letters] == [[], []]
    for each in letters:
        data(add(client, each, email))
    # Their no stays, and where they said none they are a member by their account.
    assert [roster(sender, each) for each in letters] == [[], [email]]
    [shown] = members(client, letters[1])
    assert shown["user_id"] == user_id_of(person.stack, email)
