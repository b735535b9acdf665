"""Tests that a bounce keeps a member's mail off until the owner or the member turns mail on."""

from collections.abc import Callable
from datetime import timedelta

import httpx2
import pytest

from devstack.harness.stack import Stack
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import add, build_address_file, import_members_file
from tests.support.lists.bounces import backdate_history, bounce_hard, build_mailing
from tests.support.lists.segments import run_bulk_action
from tests.support.lists.segments import undo as undo_bulk_action
from tests.support.lists.subscribers import (
    Reader,
    await_mails,
    confirm,
    get_member,
    new_address,
    new_list,
    read_confirmation_token,
    require_member,
    subscribe,
    trace_for,
)
from tests.support.people.erasure import erase


def set_mail_by_owner(
    client: httpx2.Client, list_id: int, reader: Reader, *, enabled: bool
) -> httpx2.Response:
    path = f"/subscriptions/{list_id}/members/{reader.user_id}/email"
    return client.put(path, json={"enabled": enabled})


# Each function in ``OWNER_ACTIONS`` performs an action of an owner that could turn a member's mail
# on by mistake. The function returns the id of the list on which the member is after the action.
def transfer(client: httpx2.Client, list_id: int, member: Reader) -> int:
    target_list_id: int = new_list(client)["id"]
    path = f"/subscriptions/{list_id}/members/{member.user_id}/transfer"
    assert data(client.post(path, params={"dst_list_id": target_list_id})) == 1
    return target_list_id


def transfer_onto_removed_record(client: httpx2.Client, list_id: int, member: Reader) -> int:
    target_list_id: int = new_list(client)["id"]
    member.joins(target_list_id)
    remove_member(client, target_list_id, member)
    path = f"/subscriptions/{list_id}/members/{member.user_id}/transfer"
    assert data(client.post(path, params={"dst_list_id": target_list_id})) == 1
    return target_list_id


def put_member(client: httpx2.Client, list_id: int, member: Reader) -> int:
    data(client.put(f"/lists/{list_id}/members/{member.email}", json={"name": "Ann"}))
    return list_id


def add_by_request(client: httpx2.Client, list_id: int, member: Reader) -> int:
    data(add(client, list_id, {"email": member.email, "type": "gold"}, prefer="wait=30"))
    return list_id


def import_file(client: httpx2.Client, list_id: int, member: Reader) -> int:
    import_members_file(client, list_id, build_address_file(member.email), on_existing="update")
    return list_id


def run_bulk_actions_and_undo(client: httpx2.Client, list_id: int, member: Reader) -> int:
    every_member_filter = {"field": "email", "exists": True}
    for action in ("email_off", "remove"):
        bulk_id = run_bulk_action(client, list_id, action, filter=every_member_filter)["bulk_id"]
        data(undo_bulk_action(client, bulk_id))
    return list_id


def import_and_undo(client: httpx2.Client, list_id: int, member: Reader) -> int:
    remove_member(client, list_id, member)
    result = import_members_file(client, list_id, build_address_file(member.email))
    assert result["added"] == 1
    data(client.delete(f"/imports/{result['import_id']}/members"))
    return add_by_request(client, list_id, member)


def remove_member(client: httpx2.Client, list_id: int, member: Reader) -> None:
    assert data(client.delete(f"/subscriptions/{list_id}/members/{member.user_id}")) == 1


OwnerAction = Callable[[httpx2.Client, int, Reader], int]
OWNER_ACTIONS: list[OwnerAction] = [
    transfer,
    transfer_onto_removed_record,
    put_member,
    add_by_request,
    import_file,
    run_bulk_actions_and_undo,
    import_and_undo,
]


@pytest.mark.parametrize(
    ("action", "is_removed"),
    [
        *((action, False) for action in OWNER_ACTIONS),
        *((action, True) for action in (put_member, add_by_request, import_file)),
    ],
)
def test_no_action_of_the_owner_except_turning_mail_on_lifts_a_bounce(
    *,
    stack: Stack,
    client: httpx2.Client,
    list_id: int,
    member: Reader,
    action: OwnerAction,
    is_removed: bool,
) -> None:
    bounce_hard(stack, build_mailing(list_id, member.user_id))
    if is_removed:
        remove_member(client, list_id, member)
    list_id = action(client, list_id, member)
    member_record = get_member(client, list_id, member)
    assert (member_record["status"], member_record["email_enabled"]) == ("active", False)
    email_off = member_record["email_off"]
    assert (email_off["reason"], email_off["status"]) == ("bounced", "5.1.1")


def test_transfer_keeps_the_bounce_on_the_target_list(
    stack: Stack, client: httpx2.Client, list_id: int, member: Reader
) -> None:
    target_list_id = new_list(client)["id"]
    member.joins(target_list_id)
    backdate_history(stack, member)
    bounce_hard(
        stack, build_mailing(target_list_id, member.user_id), covered_list_ids=[target_list_id]
    )
    remove_member(client, target_list_id, member)
    path = f"/subscriptions/{list_id}/members/{member.user_id}/transfer"
    assert data(client.post(path, params={"dst_list_id": target_list_id})) == 1
    member_record = get_member(client, target_list_id, member)
    assert (member_record["status"], member_record["email_enabled"]) == ("active", False)
    assert member_record["email_off"]["reason"] == "bounced"


def test_undo_of_a_bulk_action_does_not_turn_on_mail_that_has_bounced_meanwhile(
    stack: Stack, client: httpx2.Client, list_id: int, member: Reader
) -> None:
    bulk_id = run_bulk_action(
        client, list_id, "email_off", filter={"field": "email", "exists": True}
    )["bulk_id"]
    assert get_member(client, list_id, member)["email_off"]["reason"] == "owner"
    assert bounce_hard(stack, build_mailing(list_id, member.user_id)) == "applied"
    assert data(undo_bulk_action(client, bulk_id)) == 0
    assert member.read_status(list_id) == ("active", False)
    assert get_member(client, list_id, member)["email_off"]["reason"] == "bounced"


def test_undo_of_an_import_removes_or_restores_members_whose_mail_bounced(
    stack: Stack, client: httpx2.Client, list_id: int, member: Reader
) -> None:
    remove_member(client, list_id, member)
    new_email = new_address()
    result = import_members_file(client, list_id, build_address_file(member.email, new_email))
    assert result["added"] == 2
    new_user_id = require_member(client, list_id, new_email)["user_id"]
    for user_id in (member.user_id, new_user_id):
        assert bounce_hard(stack, build_mailing(list_id, user_id)) == "applied"
    assert data(client.delete(f"/imports/{result['import_id']}/members")) == 2
    status_query = "SELECT user_id, status FROM subscriptions WHERE list_id = %s"
    assert stack.query(status_query, list_id) == [(member.user_id, "removed")]
    # If the owner adds the removed member again, the earlier bounce still keeps the member's mail
    # off.
    add_by_request(client, list_id, member)
    assert get_member(client, list_id, member)["email_off"]["reason"] == "bounced"


@pytest.mark.parametrize("add_member", [put_member, add_by_request, import_file])
def test_bounce_still_applies_after_the_erasure_of_the_member(
    stack: Stack,
    client: httpx2.Client,
    list_id: int,
    member: Reader,
    add_member: OwnerAction,
) -> None:
    bounce_hard(stack, build_mailing(list_id, member.user_id))
    erase(stack.resources, member.email)
    anonymous_bounces = stack.query(
        "SELECT user_id, status FROM bounces WHERE list_id = %s", list_id
    )
    assert anonymous_bounces == [(None, None)]
    add_member(client, list_id, member)
    member_record = require_member(client, list_id, member.email)
    assert member_record["user_id"] != member.user_id
    assert (member_record["status"], member_record["email_enabled"]) == ("active", False)
    assert member_record["email_off"]["reason"] == "bounced"
    # The new member has the address of an erased person. The new member's mail is off, because the
    # erased person's mail bounced, but the owner can turn the mail on.
    path = f"/subscriptions/{list_id}/members/{member_record['user_id']}/email"
    assert data(client.put(path, json={"enabled": True})) == 1
    assert require_member(client, list_id, member.email)["email_off"] is None
    assert require_member(client, import_file(client, list_id, member), member.email)[
        "email_enabled"
    ]


def test_owner_lifts_bounces_of_a_member_once_in_30_days(
    stack: Stack, client: httpx2.Client, list_id: int, member: Reader
) -> None:
    bounce_hard(stack, build_mailing(list_id, member.user_id))
    earlier_mailing = build_mailing(list_id, member.user_id, mailing_id=2)
    assert data(set_mail_by_owner(client, list_id, member, enabled=True)) == 1
    assert get_member(client, list_id, member)["email_off"] is None
    # Pressroom ignores a late bounce report about a mail that was sent before the owner turned the
    # member's mail on.
    assert bounce_hard(stack, earlier_mailing) == "stale"
    assert member.read_status(list_id) == ("active", True)
    # If no bounce turned the mail off, the owner may turn it on at any time.
    assert data(set_mail_by_owner(client, list_id, member, enabled=False)) == 1
    assert get_member(client, list_id, member)["email_off"]["reason"] == "owner"
    assert data(set_mail_by_owner(client, list_id, member, enabled=True)) == 1
    bounce_hard(stack, build_mailing(list_id, member.user_id, mailing_id=3))
    problem(set_mail_by_owner(client, list_id, member, enabled=True), 409, "subscription.bounced")
    assert member.read_status(list_id) == ("active", False)
    stack.query(
        "UPDATE bounces SET lifted_at = lifted_at - interval '30 days' WHERE list_id = %s", list_id
    )
    assert data(set_mail_by_owner(client, list_id, member, enabled=True)) == 1
    assert member.read_status(list_id) == ("active", True)


@pytest.mark.parametrize(
    "way", ["login", "trace id", "confirmation", "own sign-up", "sign-up while active"]
)
def test_person_lifts_a_bounce_at_any_time(
    *,
    stack: Stack,
    client: httpx2.Client,
    stranger: httpx2.Client,
    list_id: int,
    member: Reader,
    way: str,
) -> None:
    for _ in range(2):
        bounce_hard(stack, build_mailing(list_id, member.user_id))
        assert member.read_status(list_id) == ("active", False)
        match way:
            case "login":
                member.wants_mail(list_id, True)
            case "trace id":
                trace_id = trace_for(stack, list_id, member.user_id)
                path = f"/subscriptions/{list_id}/email"
                body = {"enabled": True, "trace_id": trace_id}
                assert data(stranger.put(path, json=body)) == 1
            case "own sign-up":
                member.leaves(list_id).joins(list_id)
            case "sign-up while active":
                member.joins(list_id)
            case _:
                remove_member(client, list_id, member)
                data(subscribe(stranger, list_id, member.email))
                assert confirm(stranger, await_mails(stack, member.email)[0]).status_code == 303
        assert member.read_status(list_id) == ("active", True)
        assert member.read_membership(list_id)["email_off"] is None
        stack.query("DELETE FROM bounces WHERE list_id = %s AND lifted_at IS NOT NULL", list_id)
        if way == "confirmation":
            break


def test_member_whose_mail_bounced_can_sign_up_again_by_a_confirmation_mail(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, list_id: int, member: Reader
) -> None:
    bounce_hard(stack, build_mailing(list_id, member.user_id))
    before = get_member(client, list_id, member)
    for _ in range(2):
        assert data(subscribe(stranger, list_id, member.email, name="Ada")) == 1
    # The second sign-up on the same day sends no mail, and no sign-up changes the member.
    [mail] = await_mails(stack, member.email)
    assert get_member(client, list_id, member) == before
    page = stranger.get("/confirm", params={"token": read_confirmation_token(mail)})
    assert "Confirm my subscription" in page.text
    assert confirm(stranger, mail).status_code == 303
    after = get_member(client, list_id, member)
    assert (after["status"], after["email_enabled"], after["name"]) == ("active", True, "Ada")
    assert after["email_off"] is None
    path = f"/lists/{list_id}/members/{member.user_id}/history"
    entry = data(client.get(path))["items"][0]
    assert (entry["action"], entry["via"]) == ("email_enabled", "confirmation")
    # The used link doesn't lift the next bounce, but a new sign-up sends another mail.
    assert bounce_hard(stack, build_mailing(list_id, member.user_id, mailing_id=2)) == "applied"
    assert confirm(stranger, mail).status_code == 303
    assert member.read_status(list_id) == ("active", False)
    data(subscribe(stranger, list_id, member.email))
    assert confirm(stranger, await_mails(stack, member.email, 2)[0]).status_code == 303
    assert member.read_status(list_id) == ("active", True)


def test_member_whose_mail_bounced_gets_one_confirmation_mail_a_day(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, list_id: int, member: Reader
) -> None:
    stack.query(
        "UPDATE subscriptions SET confirmation_asked_at = now() - interval '1 minute'"
        " WHERE list_id = %s",
        list_id,
    )
    bounce_hard(stack, build_mailing(list_id, member.user_id))
    data(subscribe(stranger, list_id, member.email))
    await_mails(stack, member.email)
    make_older = "UPDATE bounces SET stopped_at = stopped_at - interval '3 days'"
    stack.query(f"{make_older} WHERE list_id = %s", list_id)
    for hours, count in ((23, 1), (2, 2)):
        stack.query(
            "UPDATE subscriptions SET confirmation_asked_at = confirmation_asked_at - %s"
            " WHERE list_id = %s",
            timedelta(hours=hours),
            list_id,
        )
        data(subscribe(stranger, list_id, member.email))
        await_mails(stack, member.email, count)


def test_sign_up_by_a_stranger_does_not_keep_a_bounced_member_from_the_undo_of_an_import(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    result = import_members_file(client, list_id, build_address_file(email))
    user_id = require_member(client, list_id, email)["user_id"]
    assert bounce_hard(stack, build_mailing(list_id, user_id)) == "applied"
    data(subscribe(stranger, list_id, email))
    await_mails(stack, email)
    assert data(client.delete(f"/imports/{result['import_id']}/members")) == 1


@pytest.mark.parametrize("by_owner", [False, True])
def test_sign_up_sends_no_mail_to_a_member_whose_mail_no_bounce_turned_off(
    *,
    stack: Stack,
    client: httpx2.Client,
    stranger: httpx2.Client,
    list_id: int,
    member: Reader,
    by_owner: bool,
) -> None:
    if by_owner:
        data(set_mail_by_owner(client, list_id, member, enabled=False))
    else:
        bounce_hard(stack, build_mailing(list_id, member.user_id))
        member.wants_mail(list_id, False)
    data(subscribe(stranger, list_id, member.email))
    query = "SELECT 1 FROM jobs WHERE kind = 'subscription.mail_confirmation' AND subject_id = %s"
    [(record_id,)] = stack.query("SELECT id FROM subscriptions WHERE list_id = %s", list_id)
    assert stack.query(query, record_id) == []
    assert member.read_status(list_id) == ("active", False)


def test_sign_up_of_an_address_that_bounced_must_be_confirmed(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, list_id: int, member: Reader
) -> None:
    bounce_hard(stack, build_mailing(list_id, member.user_id))
    erase(stack.resources, member.email)
    data(subscribe(stranger, list_id, member.email))
    member_record = require_member(client, list_id, member.email)
    assert (member_record["status"], member_record["email_enabled"]) == ("pending", False)
    assert confirm(stranger, await_mails(stack, member.email)[0]).status_code == 303
    member_record = require_member(client, list_id, member.email)
    assert (member_record["status"], member_record["email_enabled"]) == ("active", True)


def test_bounce_is_lifted_when_the_previous_release_turns_mail_on(
    stack: Stack, client: httpx2.Client, list_id: int, member: Reader
) -> None:
    bounce_hard(stack, build_mailing(list_id, member.user_id))
    update = "UPDATE subscriptions SET email_enabled = %s WHERE list_id = %s"
    stack.query(update, True, list_id)
    assert get_member(client, import_file(client, list_id, member), member)["email_enabled"]
    stack.query(update, False, list_id)
    stack.query(
        "INSERT INTO subscription_events (list_id, user_id, action, actor, via,"
        " email_enabled_before, email_enabled_after)"
        " VALUES (%s, %s, 'email_disabled', 'owner', 'login', true, false)",
        list_id,
        member.user_id,
    )
    assert get_member(client, list_id, member)["email_off"]["reason"] == "owner"
