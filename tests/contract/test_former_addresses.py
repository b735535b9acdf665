"""Tests that lists treat the former and the current address of an account as one person."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from tests.support.http.replies import data
from tests.support.imports.bulk import (
    add,
    build_address_file,
    build_csv,
    fetch_rejected_rows,
    import_members_file,
    nonzero_counts,
)
from tests.support.lists.subscribers import (
    fetch_members,
    new_address,
    new_list,
    read_subscriber_count,
    require_member,
    trace_for,
)
from tests.support.people.changed_addresses import (
    MOVED_SUBJECT,
    change_own_address,
    export_roster,
    join,
    leave,
)
from tests.support.people.erasure import erase
from tests.support.people.visiting import PASSWORD, Visitor, new_visitor, user_id_of

Roster = Callable[[], list[str]]


@pytest.fixture
def roster(delivery_client: httpx2.Client, list_id: int) -> Roster:
    """A function that returns the addresses to which the list currently sends mail."""
    return partial(export_roster, delivery_client, list_id)


def change_address(person: Visitor) -> str:
    """Change the e-mail address of a person's account, and return the new address."""
    new_email = new_address()
    change_own_address(person, new_email)
    assert data(person.get("/users/me"))["email"] == new_email
    return new_email


@contextmanager
def register_with_free_address(stack: Stack, email: str) -> Iterator[Visitor]:
    """Register another person with a former address, which no account uses any longer."""
    with new_visitor(stack) as visitor:
        visitor.fill_in("/register", email=email)
        link = visitor.mailed_path(email, "Finish creating your account")
        assert visitor.fill_in(link, name="Other", password=PASSWORD).status_code == 303
        yield visitor


def test_complaint_about_a_former_address_opts_out_the_person(
    logged_in_visitor: Visitor, email: str, client: httpx2.Client, list_id: int, roster: Roster
) -> None:
    join(logged_in_visitor, list_id)
    new_email = change_address(logged_in_visitor)
    assert roster() == [new_email]
    result = import_members_file(client, list_id, build_address_file(email), kind="complaints")
    assert nonzero_counts(result) == {"received": 1, "opted_out": 1}
    assert roster() == []
    assert read_subscriber_count(client, list_id) == 0
    for address in (email, new_email):
        data(add(client, list_id, address))
    assert roster() == []


def test_import_with_a_former_address_updates_the_existing_member(
    logged_in_visitor: Visitor, email: str, client: httpx2.Client, list_id: int, roster: Roster
) -> None:
    join(logged_in_visitor, list_id)
    new_email = change_address(logged_in_visitor)
    opt_in_times = ["2020-02-02 10:00:00", "2020-02-03 10:00:00"]
    for opt_in_time in opt_in_times:
        file = build_csv(["Email", "Name", "OPTIN_TIME"], [email, "Ada", opt_in_time])
        result = import_members_file(client, list_id, file, on_existing="update")
        update_count = {"updated": 1} if opt_in_time == opt_in_times[0] else {}
        assert nonzero_counts(result) == {"received": 1, "already": 1, **update_count}
    [member] = fetch_members(client, list_id)
    user_id = user_id_of(logged_in_visitor.stack, new_email)
    assert (member["user_id"], member["email"], member["name"]) == (user_id, email, "Ada")
    entries = data(client.get(f"/lists/{list_id}/members/{user_id}/consent"))["items"]
    assert {"2020-02-02", "2020-02-03"} <= {opt_in_time["at"][:10] for opt_in_time in entries}
    assert roster() == [new_email]
    leave(logged_in_visitor, list_id)
    assert roster() == []


def test_import_treats_former_and_new_address_as_one_person(
    logged_in_visitor: Visitor, email: str, client: httpx2.Client, list_id: int
) -> None:
    join(logged_in_visitor, list_id)
    new_email = change_address(logged_in_visitor)
    other_email = new_address()
    user_id = user_id_of(logged_in_visitor.stack, new_email)
    assert data(client.delete(f"/subscriptions/{list_id}/members/{user_id}")) == 1
    rows = [email, "Ada"], [new_email, "Eve"], [other_email, "Other"]
    result = import_members_file(client, list_id, build_csv(["Email", "Name"], *rows))
    assert nonzero_counts(result) == {"received": 3, "added": 2, "duplicate": 1}
    assert {each["email"] for each in fetch_members(client, list_id)} == {email, other_email}
    assert require_member(client, list_id, email)["name"] == "Ada"
    [rejected_row] = fetch_rejected_rows(result["errors_url"])
    assert (rejected_row["code"], rejected_row["Email"]) == ("row.duplicate", new_email)
    file = build_csv(["Email", "Status"], [email, ""], [new_email, "unsubscribed"])
    result = import_members_file(client, list_id, file)
    assert nonzero_counts(result) == {"received": 2, "opted_out": 1, "duplicate": 1}
    assert [each["email"] for each in fetch_members(client, list_id)] == [other_email]


def test_import_with_a_former_address_adds_the_person_who_changed_from_that_address(
    logged_in_visitor: Visitor, email: str, client: httpx2.Client, list_id: int, roster: Roster
) -> None:
    new_email = change_address(logged_in_visitor)
    result = import_members_file(client, list_id, build_address_file(email, new_email))
    assert nonzero_counts(result) == {"received": 2, "added": 1, "duplicate": 1}
    [member] = fetch_members(client, list_id)
    assert (member["user_id"], member["email"]) == (
        user_id_of(logged_in_visitor.stack, new_email),
        email,
    )
    assert roster() == [new_email]


def test_opt_out_before_two_address_changes_also_covers_the_address_in_between(
    logged_in_visitor: Visitor, email: str, client: httpx2.Client, list_id: int, roster: Roster
) -> None:
    join(logged_in_visitor, list_id)
    leave(logged_in_visitor, list_id)
    second_email = change_address(logged_in_visitor)
    third_email = change_address(logged_in_visitor)
    for address in (email, second_email, third_email):
        assert data(add(client, list_id, address)) == 0
    assert client.put(f"/lists/{list_id}/members/{second_email}", json={}).status_code == 409
    assert roster() == []


def test_reused_former_address_refers_to_its_current_holder(
    logged_in_visitor: Visitor, email: str, client: httpx2.Client, list_id: int
) -> None:
    join(logged_in_visitor, list_id)
    change_address(logged_in_visitor)
    with register_with_free_address(logged_in_visitor.stack, email) as second_person:
        join(second_person, list_id)
    other_id = user_id_of(logged_in_visitor.stack, email)
    result = import_members_file(
        client, list_id, build_csv(["Email", "Name"], [email, "B"]), on_existing="update"
    )
    assert nonzero_counts(result) == {"received": 1, "already": 1, "updated": 1}
    member = data(client.get(f"/lists/{list_id}/members/{email}"))
    assert (member["user_id"], member["name"]) == (other_id, "B")
    result = import_members_file(client, list_id, build_address_file(email), kind="complaints")
    assert nonzero_counts(result) == {"received": 1, "opted_out": 1}
    [remaining_member] = fetch_members(client, list_id)
    assert remaining_member["user_id"] != other_id


def test_opt_out_after_an_address_change_covers_both_addresses(
    logged_in_visitor: Visitor, email: str, client: httpx2.Client, list_id: int, roster: Roster
) -> None:
    join(logged_in_visitor, list_id)
    new_email = change_address(logged_in_visitor)
    leave(logged_in_visitor, list_id)
    for address in (email, new_email):
        result = import_members_file(client, list_id, build_address_file(address))
        assert nonzero_counts(result) == {"received": 1, "opted_out": 1}
    assert roster() == []
    # When a person joins a list again, all opt-outs of the person on this list are deleted.
    join(logged_in_visitor, list_id)
    assert roster() == [new_email]
    count_opt_outs = "SELECT count(*) FROM opt_outs WHERE list_id = %s"
    assert logged_in_visitor.stack.query(count_opt_outs, list_id) == [(0,)]


@pytest.mark.parametrize("leaves_first", [False, True])
def test_opt_out_covers_former_and_new_address_even_after_erasure(
    logged_in_visitor: Visitor, email: str, client: httpx2.Client, list_id: int, leaves_first: bool
) -> None:
    join(logged_in_visitor, list_id)
    if leaves_first:
        leave(logged_in_visitor, list_id)
    new_email = change_address(logged_in_visitor)
    if not leaves_first:
        leave(logged_in_visitor, list_id)
    erase(logged_in_visitor.stack.resources, new_email)
    for address in (email, new_email):
        data(add(client, list_id, address))
    assert read_subscriber_count(client, list_id) == 0


def test_new_holder_of_a_former_address_does_not_lift_the_opt_out_of_the_former_holder(
    logged_in_visitor: Visitor, email: str, client: httpx2.Client, list_id: int, roster: Roster
) -> None:
    join(logged_in_visitor, list_id)
    leave(logged_in_visitor, list_id)
    new_email = change_address(logged_in_visitor)
    with register_with_free_address(logged_in_visitor.stack, email) as second_person:
        join(second_person, list_id)
        data(add(client, list_id, new_email))
        assert roster() == [email]
        # The second holder of the address also opts out, so that each holder has an opt-out.
        leave(second_person, list_id)
    count_people = "SELECT count(DISTINCT user_id) FROM opt_outs WHERE list_id = %s"
    assert logged_in_visitor.stack.query(count_people, list_id) == [(2,)]
    join(logged_in_visitor, list_id)
    data(add(client, list_id, email))
    assert roster() == [new_email]


def test_membership_of_a_vacated_address_ends_when_the_address_change_is_undone(
    logged_in_visitor: Visitor, email: str, client: httpx2.Client, delivery_client: httpx2.Client
) -> None:
    list_ids = [new_list(client)["id"] for _ in range(2)]
    change_address(logged_in_visitor)
    undo_path = logged_in_visitor.mailed_path(email, MOVED_SUBJECT)
    for list_id in list_ids:
        member = data(client.put(f"/lists/{list_id}/members/{email}", json={}))
    query: dict[str, Any] = {
        "trace_id": trace_for(logged_in_visitor.stack, list_ids[0], member["user_id"])
    }
    assert data(client.request("DELETE", f"/subscriptions/{list_ids[0]}", params=query)) == 1
    assert logged_in_visitor.fill_in(undo_path).status_code == 303
    eventually(
        lambda: read_subscriber_count(client, list_ids[1]) == 0, what="the end of the membership"
    )
    assert [export_roster(delivery_client, list_id) for list_id in list_ids] == [[], []]
    for list_id in list_ids:
        data(add(client, list_id, email))
    # The person stays opted out of the first list, but becomes a member of the second list.
    assert [export_roster(delivery_client, list_id) for list_id in list_ids] == [[], [email]]
    [remaining_member] = fetch_members(client, list_ids[1])
    assert remaining_member["user_id"] == user_id_of(logged_in_visitor.stack, email)
