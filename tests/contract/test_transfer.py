"""Tests of members who are transferred to another list, or whose account changes its address."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from services.accounts import mailed_tokens
from services.accounts.mailed_tokens import Purpose
from services.subscriptions import sign_up
from services.subscriptions.members.changes import Actor, ActorKind, Via
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import add, counts, errors, imported, of_addresses, sheet
from tests.support.lists.subscribers import (
    Reader,
    count,
    known_member,
    members,
    new_address,
    new_list,
    subscribe,
    trace_for,
)
from tests.support.people.changed_addresses import MOVED, ask, join, leave, roster
from tests.support.people.erasure import erase
from tests.support.people.visiting import PASSWORD, Visitor, a_visitor, user_id_of

UINT64_MAX = 2**64 - 1
EARLIER_EXPIRY = "2030-01-01T00:00:00.000000Z"
LATER_EXPIRY = "2035-01-01T00:00:00.000000Z"
# The tier of a member, and the time when the paid period of the tier ends.
PaidPeriod = tuple[str, str | None]


@pytest.fixture
def target_list_id(client: httpx2.Client) -> int:
    """The id of the mailing list to which a test transfers members."""
    return int(new_list(client)["id"])


def transfer(
    client: httpx2.Client, source_id: object, user_id: object, target_list_id: object
) -> httpx2.Response:
    path = f"/subscriptions/{source_id}/members/{user_id}/transfer"
    return client.post(path, params={"dst_list_id": target_list_id})  # type: ignore[dict-item]


def edit(client: httpx2.Client, list_id: int, user_id: int, **fields: object) -> None:
    data(client.patch(f"/lists/{list_id}/members/{user_id}", json=fields))


def test_transfer_copies_the_member_and_marks_the_source_record_as_removed(
    client: httpx2.Client, reader: Reader, list_id: int, target_list_id: int
) -> None:
    reader.joins(list_id)
    fields = {"name": "Ann", "type": "gold", "paid_expiry": LATER_EXPIRY}
    edit(client, list_id, reader.user_id, **fields)
    assert data(transfer(client, list_id, reader.user_id, target_list_id)) == 1
    target_member = known_member(client, target_list_id, reader.email)
    assert {name: target_member[name] for name in fields} == fields
    assert (target_member["status"], target_member["email_enabled"], target_member["source"]) == (
        "active",
        True,
        "transfer",
    )
    assert reader.stands(list_id) == ("removed", True)
    assert (count(client, list_id), count(client, target_list_id)) == (0, 1)


def test_repeated_transfer_changes_nothing(
    client: httpx2.Client, reader: Reader, list_id: int, target_list_id: int
) -> None:
    reader.joins(list_id)
    assert data(transfer(client, list_id, reader.user_id, target_list_id)) == 1
    standing_before = reader.standing(target_list_id)
    assert data(transfer(client, list_id, reader.user_id, target_list_id)) == 0
    assert reader.standing(target_list_id) == standing_before


def test_member_transferred_back_keeps_the_latest_tier(
    client: httpx2.Client, reader: Reader, list_id: int, target_list_id: int
) -> None:
    reader.joins(list_id)
    edit(client, list_id, reader.user_id, type="gold", paid_expiry=LATER_EXPIRY)
    assert data(transfer(client, list_id, reader.user_id, target_list_id)) == 1
    edit(client, target_list_id, reader.user_id, type="silver", paid_expiry=EARLIER_EXPIRY)
    assert data(transfer(client, target_list_id, reader.user_id, list_id)) == 1
    member = known_member(client, list_id, reader.email)
    # The tier and expiry from before the first move are not restored.
    assert (member["status"], member["type"], member["paid_expiry"]) == (
        "active",
        "silver",
        EARLIER_EXPIRY,
    )
    assert reader.stands(target_list_id)[0] == "removed"
    assert (count(client, list_id), count(client, target_list_id)) == (1, 0)


@pytest.mark.parametrize(
    ("source_period", "target_period", "expected"),
    [
        (("free", None), ("gold", EARLIER_EXPIRY), ("gold", EARLIER_EXPIRY)),
        (("gold", EARLIER_EXPIRY), ("free", None), ("gold", EARLIER_EXPIRY)),
        (("gold", EARLIER_EXPIRY), ("silver", LATER_EXPIRY), ("gold", LATER_EXPIRY)),
        (("silver", LATER_EXPIRY), ("gold", EARLIER_EXPIRY), ("gold", LATER_EXPIRY)),
        (("silver", EARLIER_EXPIRY), ("silver", LATER_EXPIRY), ("silver", LATER_EXPIRY)),
        (("gold", None), ("silver", LATER_EXPIRY), ("gold", None)),
        (("silver", LATER_EXPIRY), ("gold", None), ("gold", None)),
        (("free", None), ("free", None), ("free", None)),
    ],
)
def test_transfer_to_a_list_with_the_member_keeps_higher_tier_and_later_expiry(
    client: httpx2.Client,
    reader: Reader,
    list_id: int,
    target_list_id: int,
    *,
    source_period: PaidPeriod,
    target_period: PaidPeriod,
    expected: PaidPeriod,
) -> None:
    reader.joins(list_id).joins(target_list_id)
    edit(
        client,
        list_id,
        reader.user_id,
        type=source_period[0],
        paid_expiry=source_period[1],
        name="There",
    )
    edit(
        client,
        target_list_id,
        reader.user_id,
        type=target_period[0],
        paid_expiry=target_period[1],
        name="Of here",
    )
    assert data(transfer(client, list_id, reader.user_id, target_list_id)) == 1
    [member] = members(client, target_list_id)
    assert (member["type"], member["paid_expiry"]) == expected
    assert (member["name"], member["source"]) == ("Of here", "login")
    assert (reader.stands(list_id)[0], reader.stands(target_list_id)[0]) == ("removed", "active")


def test_opt_out_carried_back_by_a_transfer_can_be_undone_by_the_person(
    *,
    stack: Stack,
    client: httpx2.Client,
    stranger: httpx2.Client,
    reader: Reader,
    list_id: int,
    target_list_id: int,
) -> None:
    reader.joins(list_id)
    data(transfer(client, list_id, reader.user_id, target_list_id))
    reader.leaves(target_list_id)
    data(transfer(client, target_list_id, reader.user_id, list_id))
    assert reader.stands(list_id) == ("unsubscribed", True)
    query = {"trace_id": trace_for(stack, list_id, reader.user_id)}
    assert stranger.post("/unsubscribe", params=query, data={"action": "undo"}).is_redirect
    assert reader.stands(list_id) == ("active", True)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("joined_both", [True, False])
def test_transfer_keeps_an_opt_out_from_either_list(
    client: httpx2.Client,
    stranger: httpx2.Client,
    reader: Reader,
    list_id: int,
    target_list_id: int,
    *,
    side: str,
    joined_both: bool,
) -> None:
    reader.joins(list_id)
    if joined_both:
        reader.joins(target_list_id)
    reader.leaves({"source": list_id, "target": target_list_id}[side])
    assert data(transfer(client, list_id, reader.user_id, target_list_id)) == 1
    assert reader.stands(target_list_id)[0] == "unsubscribed"
    assert count(client, target_list_id) == 0
    path = f"/subscriptions/{target_list_id}/members/{reader.user_id}/email"
    problem(client.put(path, json={"enabled": True}), 409, "subscription.opted_out")
    subscribe(stranger, target_list_id, reader.email)
    assert reader.stands(target_list_id)[0] == "pending"


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("joined_both", [True, False])
def test_transfer_keeps_mail_off_that_the_person_switched_off_on_either_list(
    client: httpx2.Client,
    reader: Reader,
    list_id: int,
    target_list_id: int,
    *,
    side: str,
    joined_both: bool,
) -> None:
    reader.joins(list_id)
    if joined_both:
        reader.joins(target_list_id)
    reader.wants_mail({"source": list_id, "target": target_list_id}[side], enabled=False)
    assert data(transfer(client, list_id, reader.user_id, target_list_id)) == 1
    assert reader.stands(target_list_id) == ("active", False)
    path = f"/subscriptions/{target_list_id}/members/{reader.user_id}/email"
    problem(client.put(path, json={"enabled": True}), 409, "subscription.opted_out")
    reader.wants_mail(target_list_id, enabled=True)
    assert reader.stands(target_list_id) == ("active", True)


def test_opt_out_from_one_list_survives_a_transfer_and_a_rejoin_of_another_list(
    client: httpx2.Client, reader: Reader, list_id: int, target_list_id: int
) -> None:
    reader.joins(list_id).leaves(list_id)
    assert data(transfer(client, list_id, reader.user_id, target_list_id)) == 1
    reader.joins(target_list_id)
    assert data(transfer(client, target_list_id, reader.user_id, list_id)) == 1
    # The reader has rejoined the target list, but has not rejoined the first list.
    assert reader.stands(list_id)[0] == "unsubscribed"
    reader.joins(list_id)
    assert reader.stands(list_id) == ("active", True)


@pytest.mark.parametrize("side", ["source", "target"])
def test_transfer_keeps_mail_off_that_the_owner_switched_off(
    client: httpx2.Client, reader: Reader, list_id: int, target_list_id: int, side: str
) -> None:
    reader.joins(list_id).joins(target_list_id)
    muted_list_id = {"source": list_id, "target": target_list_id}[side]
    path = f"/subscriptions/{muted_list_id}/members/{reader.user_id}/email"
    assert data(client.put(path, json={"enabled": False})) == 1
    assert data(transfer(client, list_id, reader.user_id, target_list_id)) == 1
    assert reader.stands(target_list_id) == ("active", False)
    path = f"/subscriptions/{target_list_id}/members/{reader.user_id}/email"
    assert data(client.put(path, json={"enabled": True})) == 1


def test_pending_member_stays_pending_after_transfer_and_confirms_the_target_list(
    stack: Stack,
    client: httpx2.Client,
    stranger: httpx2.Client,
    reader: Reader,
    target_list_id: int,
) -> None:
    source_id = new_list(client, confirm_required=True)["id"]
    subscribe(stranger, source_id, reader.email)
    token = create_confirmation_token(stack, source_id, reader.user_id)
    assert data(transfer(client, source_id, reader.user_id, target_list_id)) == 1
    assert (reader.stands(source_id)[0], reader.stands(target_list_id)[0]) == ("removed", "pending")
    assert count(client, target_list_id) == 0
    confirm(stack, token)
    assert (reader.stands(source_id)[0], reader.stands(target_list_id)) == (
        "removed",
        ("active", True),
    )


def create_confirmation_token(stack: Stack, list_id: int, user_id: int) -> str:
    """Create the token of a confirmation link, as a mail would contain it."""
    with stack.resources.unit_of_work() as uow:
        purpose = Purpose.CONFIRM_SUBSCRIPTION
        return mailed_tokens.create_token(uow, purpose, user_id=user_id, list_id=list_id)


def confirm(stack: Stack, token: str) -> None:
    actor = Actor(ActorKind.USER, Via.CONFIRMATION)
    with stack.resources.unit_of_work() as uow:
        sign_up.confirm_subscription(uow, token, actor)


def test_confirmation_mail_follows_a_pending_member_who_is_transferred(
    stack_without_workers: Stack, client_without_workers: httpx2.Client
) -> None:
    """The mail stays unsent because the test stack runs no workers."""
    source_id = new_list(client_without_workers, confirm_required=True)["id"]
    target_id = new_list(client_without_workers)["id"]
    email = new_address()
    subscribe(client_without_workers, source_id, email)
    source_member = known_member(client_without_workers, source_id, email)
    assert (
        data(transfer(client_without_workers, source_id, source_member["user_id"], target_id)) == 1
    )
    target_member = known_member(client_without_workers, target_id, email)
    assert target_member["status"] == "pending"
    select_mail_jobs = (
        "SELECT 1 FROM jobs WHERE kind = 'subscription.mail_confirmation' AND subject_id = %s"
    )
    assert len(stack_without_workers.query(select_mail_jobs, target_member["id"])) == 1


def test_transfer_of_a_pending_member_keeps_an_active_membership_of_the_target(
    client: httpx2.Client, stranger: httpx2.Client, reader: Reader, target_list_id: int
) -> None:
    source_id = new_list(client, confirm_required=True)["id"]
    reader.joins(target_list_id)
    subscribe(stranger, source_id, reader.email)
    assert data(transfer(client, source_id, reader.user_id, target_list_id)) == 1
    assert reader.stands(target_list_id) == ("active", True)


def test_transfer_target_must_be_another_existing_list_of_the_same_owner(
    client: httpx2.Client, other_owner: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    foreign_id = new_list(other_owner)["id"]
    archived_id = new_list(client)["id"]
    assert data(client.delete(f"/lists/{archived_id}")) == 1
    problem(transfer(client, list_id, reader.user_id, list_id), 400, "transfer.same_list")
    problem(transfer(client, list_id, reader.user_id, foreign_id), 403, "list.not_owner")
    problem(transfer(other_owner, list_id, reader.user_id, foreign_id), 403, "list.not_owner")
    problem(transfer(client, list_id, reader.user_id, archived_id), 404, "list.not_found")
    problem(transfer(client, archived_id, reader.user_id, list_id), 404, "list.not_found")
    for unknown_id in (0, 1, UINT64_MAX):
        problem(transfer(client, list_id, reader.user_id, unknown_id), 404, "list.not_found")
    for invalid_id in ("", "a", -1, UINT64_MAX + 1, "1.5"):
        problem(transfer(client, list_id, reader.user_id, invalid_id), 400, "request.invalid")
    path = f"/subscriptions/{list_id}/members/{reader.user_id}/transfer"
    body = problem(client.post(path), 400, "request.invalid")
    assert [each["field"] for each in body["errors"]] == ["query.dst_list_id"]
    assert reader.stands(list_id) == ("active", True)
    assert members(other_owner, foreign_id) == []


def test_transfer_of_a_person_who_is_not_on_the_source_list_returns_404(
    client: httpx2.Client, reader: Reader, list_id: int, target_list_id: int
) -> None:
    problem(transfer(client, list_id, reader.user_id, target_list_id), 404, "member.not_found")
    reader.joins(target_list_id)
    problem(transfer(client, list_id, reader.user_id, target_list_id), 404, "member.not_found")
    assert reader.stands(target_list_id) == ("active", True)


def change_address(person: Visitor) -> str:
    """Change the e-mail address of a person's account, and return the new address."""
    new_email = new_address()
    ask(person, new_email)
    assert data(person.get("/users/me"))["email"] == new_email
    return new_email


@contextmanager
def register_with_free_address(stack: Stack, email: str) -> Iterator[Visitor]:
    """Register another person with a former address, which no account uses any longer."""
    with a_visitor(stack) as visitor:
        visitor.fill_in("/register", email=email)
        link = visitor.mailed_path(email, "Finish creating your account")
        assert visitor.fill_in(link, name="Other", password=PASSWORD).status_code == 303
        yield visitor


def test_complaint_about_a_former_address_opts_out_the_person(
    logged_in_visitor: Visitor,
    email: str,
    client: httpx2.Client,
    delivery_client: httpx2.Client,
    list_id: int,
) -> None:
    join(logged_in_visitor, list_id)
    new_email = change_address(logged_in_visitor)
    assert roster(delivery_client, list_id) == [new_email]
    result = imported(client, list_id, of_addresses(email), kind="complaints")
    assert counts(result) == {"received": 1, "opted_out": 1}
    assert roster(delivery_client, list_id) == []
    assert count(client, list_id) == 0
    for address in (email, new_email):
        data(add(client, list_id, address))
    assert roster(delivery_client, list_id) == []


def test_import_with_a_former_address_updates_the_existing_member(
    logged_in_visitor: Visitor,
    email: str,
    client: httpx2.Client,
    delivery_client: httpx2.Client,
    list_id: int,
) -> None:
    join(logged_in_visitor, list_id)
    new_email = change_address(logged_in_visitor)
    opt_in_times = ["2020-02-02 10:00:00", "2020-02-03 10:00:00"]
    for opt_in_time in opt_in_times:
        file = sheet(["Email", "Name", "OPTIN_TIME"], [email, "Ada", opt_in_time])
        result = imported(client, list_id, file, on_existing="update")
        update_count = {"updated": 1} if opt_in_time == opt_in_times[0] else {}
        assert counts(result) == {"received": 1, "already": 1, **update_count}
    [member] = members(client, list_id)
    user_id = user_id_of(logged_in_visitor.stack, new_email)
    assert (member["user_id"], member["email"], member["name"]) == (user_id, email, "Ada")
    entries = data(client.get(f"/lists/{list_id}/members/{user_id}/consent"))["items"]
    assert {"2020-02-02", "2020-02-03"} <= {opt_in_time["at"][:10] for opt_in_time in entries}
    assert roster(delivery_client, list_id) == [new_email]
    leave(logged_in_visitor, list_id)
    assert roster(delivery_client, list_id) == []


def test_import_treats_former_and_new_address_as_one_person(
    logged_in_visitor: Visitor, email: str, client: httpx2.Client, list_id: int
) -> None:
    join(logged_in_visitor, list_id)
    new_email = change_address(logged_in_visitor)
    other_email = new_address()
    user_id = user_id_of(logged_in_visitor.stack, new_email)
    assert data(client.delete(f"/subscriptions/{list_id}/members/{user_id}")) == 1
    rows = [email, "Ada"], [new_email, "Eve"], [other_email, "Other"]
    result = imported(client, list_id, sheet(["Email", "Name"], *rows))
    assert counts(result) == {"received": 3, "added": 2, "duplicate": 1}
    assert {each["email"] for each in members(client, list_id)} == {email, other_email}
    assert known_member(client, list_id, email)["name"] == "Ada"
    [rejected_row] = errors(result["errors_url"])
    assert (rejected_row["code"], rejected_row["Email"]) == ("row.duplicate", new_email)
    file = sheet(["Email", "Status"], [email, ""], [new_email, "unsubscribed"])
    result = imported(client, list_id, file)
    assert counts(result) == {"received": 2, "opted_out": 1, "duplicate": 1}
    assert [each["email"] for each in members(client, list_id)] == [other_email]


def test_import_with_a_former_address_adds_the_person_who_changed_from_that_address(
    logged_in_visitor: Visitor,
    email: str,
    client: httpx2.Client,
    delivery_client: httpx2.Client,
    list_id: int,
) -> None:
    new_email = change_address(logged_in_visitor)
    result = imported(client, list_id, of_addresses(email, new_email))
    assert counts(result) == {"received": 2, "added": 1, "duplicate": 1}
    [member] = members(client, list_id)
    assert (member["user_id"], member["email"]) == (
        user_id_of(logged_in_visitor.stack, new_email),
        email,
    )
    assert roster(delivery_client, list_id) == [new_email]


def test_opt_out_before_two_address_changes_also_covers_the_address_in_between(
    logged_in_visitor: Visitor,
    email: str,
    client: httpx2.Client,
    delivery_client: httpx2.Client,
    list_id: int,
) -> None:
    join(logged_in_visitor, list_id)
    leave(logged_in_visitor, list_id)
    second_email = change_address(logged_in_visitor)
    third_email = change_address(logged_in_visitor)
    for address in (email, second_email, third_email):
        assert data(add(client, list_id, address)) == 0
    assert client.put(f"/lists/{list_id}/members/{second_email}", json={}).status_code == 409
    assert roster(delivery_client, list_id) == []


def test_reused_former_address_refers_to_its_current_holder(
    logged_in_visitor: Visitor, email: str, client: httpx2.Client, list_id: int
) -> None:
    join(logged_in_visitor, list_id)
    change_address(logged_in_visitor)
    with register_with_free_address(logged_in_visitor.stack, email) as second_person:
        join(second_person, list_id)
    other_id = user_id_of(logged_in_visitor.stack, email)
    result = imported(client, list_id, sheet(["Email", "Name"], [email, "B"]), on_existing="update")
    assert counts(result) == {"received": 1, "already": 1, "updated": 1}
    member = data(client.get(f"/lists/{list_id}/members/{email}"))
    assert (member["user_id"], member["name"]) == (other_id, "B")
    result = imported(client, list_id, of_addresses(email), kind="complaints")
    assert counts(result) == {"received": 1, "opted_out": 1}
    [remaining_member] = members(client, list_id)
    assert remaining_member["user_id"] != other_id


def test_opt_out_after_an_address_change_covers_both_addresses(
    logged_in_visitor: Visitor,
    email: str,
    client: httpx2.Client,
    delivery_client: httpx2.Client,
    list_id: int,
) -> None:
    join(logged_in_visitor, list_id)
    new_email = change_address(logged_in_visitor)
    leave(logged_in_visitor, list_id)
    for address in (email, new_email):
        result = imported(client, list_id, of_addresses(address))
        assert counts(result) == {"received": 1, "opted_out": 1}
    assert roster(delivery_client, list_id) == []
    # Joining again lifts all opt-outs of the person on the list.
    join(logged_in_visitor, list_id)
    assert roster(delivery_client, list_id) == [new_email]
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
    assert count(client, list_id) == 0


def test_new_holder_of_a_former_address_does_not_lift_the_opt_out_of_the_former_holder(
    logged_in_visitor: Visitor,
    email: str,
    client: httpx2.Client,
    delivery_client: httpx2.Client,
    list_id: int,
) -> None:
    join(logged_in_visitor, list_id)
    leave(logged_in_visitor, list_id)
    new_email = change_address(logged_in_visitor)
    with register_with_free_address(logged_in_visitor.stack, email) as second_person:
        join(second_person, list_id)
        data(add(client, list_id, new_email))
        assert roster(delivery_client, list_id) == [email]
        # From now on, the two people have separate opt-outs.
        leave(second_person, list_id)
    count_people = "SELECT count(DISTINCT user_id) FROM opt_outs WHERE list_id = %s"
    assert logged_in_visitor.stack.query(count_people, list_id) == [(2,)]
    join(logged_in_visitor, list_id)
    data(add(client, list_id, email))
    assert roster(delivery_client, list_id) == [new_email]


def test_membership_of_a_vacated_address_ends_when_the_address_change_is_undone(
    logged_in_visitor: Visitor, email: str, client: httpx2.Client, delivery_client: httpx2.Client
) -> None:
    list_ids = [new_list(client)["id"] for _ in range(2)]
    change_address(logged_in_visitor)
    undo_path = logged_in_visitor.mailed_path(email, MOVED)
    for list_id in list_ids:
        member = data(client.put(f"/lists/{list_id}/members/{email}", json={}))
    query: dict[str, Any] = {
        "trace_id": trace_for(logged_in_visitor.stack, list_ids[0], member["user_id"])
    }
    assert data(client.request("DELETE", f"/subscriptions/{list_ids[0]}", params=query)) == 1
    assert logged_in_visitor.fill_in(undo_path).status_code == 303
    eventually(lambda: count(client, list_ids[1]) == 0, what="the end of the membership")
    assert [roster(delivery_client, list_id) for list_id in list_ids] == [[], []]
    for list_id in list_ids:
        data(add(client, list_id, email))
    # The opt-out remains on the first list. On the second list the person is a member.
    assert [roster(delivery_client, list_id) for list_id in list_ids] == [[], [email]]
    [remaining_member] = members(client, list_ids[1])
    assert remaining_member["user_id"] == user_id_of(logged_in_visitor.stack, email)
