"""An owner moves a member between two lists; whatever the person said no to goes with them."""

from collections.abc import Callable

import httpx2
import pytest

from services.accounts import mailed_tokens
from services.accounts.mailed_tokens import Purpose
from services.subscriptions import sign_up as joining
from services.subscriptions.members.changes import Actor, ActorKind, Via
from tests.contract.replies import data, problem
from tests.contract.subscribers import (
    Reader,
    count,
    known_member,
    members,
    new_address,
    new_list,
    subscribe,
)
from tests.stack import Stack

UINT64_MAX = 2**64 - 1
SOONER, LATER = "2030-01-01T00:00:00.000000Z", "2035-01-01T00:00:00.000000Z"


@pytest.fixture
def target(client: httpx2.Client) -> int:
    """Another list of the same owner."""
    found: int = new_list(client)["id"]
    return found


def move(client: httpx2.Client, source: object, user_id: object, target: object) -> httpx2.Response:
    path = f"/subscriptions/{source}/members/{user_id}/transfer"
    return client.post(path, params={"dst_list_id": target})  # type: ignore[dict-item]


def edit(client: httpx2.Client, list_id: int, user_id: int, **fields: object) -> None:
    data(client.patch(f"/lists/{list_id}/members/{user_id}", json=fields))


def test_a_member_moves_and_the_source_keeps_them_as_removed(
    client: httpx2.Client, reader: Reader, list_id: int, target: int
) -> None:
    reader.joins(list_id)
    fields = {"name": "Ann", "type": "gold", "paid_expiry": LATER}
    edit(client, list_id, reader.user_id, **fields)
    assert data(move(client, list_id, reader.user_id, target)) == 1
    there = known_member(client, target, reader.email)
    assert {name: there[name] for name in fields} == fields
    assert (there["status"], there["email_enabled"], there["source"]) == (
        "active",
        True,
        "transfer",
    )
    assert reader.stands(list_id) == ("removed", True)
    assert (count(client, list_id), count(client, target)) == (0, 1)


def test_who_was_moved_already_is_0(
    client: httpx2.Client, reader: Reader, list_id: int, target: int
) -> None:
    reader.joins(list_id)
    assert data(move(client, list_id, reader.user_id, target)) == 1
    before = reader.standing(target)
    assert data(move(client, list_id, reader.user_id, target)) == 0
    assert reader.standing(target) == before


def test_there_and_back(client: httpx2.Client, reader: Reader, list_id: int, target: int) -> None:
    reader.joins(list_id)
    edit(client, list_id, reader.user_id, type="gold", paid_expiry=LATER)
    assert data(move(client, list_id, reader.user_id, target)) == 1
    edit(client, target, reader.user_id, type="silver", paid_expiry=SOONER)
    assert data(move(client, target, reader.user_id, list_id)) == 1
    back = known_member(client, list_id, reader.email)
    # What was left behind at the first move is how things were: it does not come back.
    assert (back["status"], back["type"], back["paid_expiry"]) == ("active", "silver", SOONER)
    assert reader.stands(target)[0] == "removed"
    assert (count(client, list_id), count(client, target)) == (1, 0)


@pytest.mark.parametrize(
    ("leaving", "there", "expected"),
    [
        (("free", None), ("gold", SOONER), ("gold", SOONER)),
        (("gold", SOONER), ("free", None), ("gold", SOONER)),
        (("gold", SOONER), ("silver", LATER), ("gold", LATER)),
        (("silver", LATER), ("gold", SOONER), ("gold", LATER)),
        (("silver", SOONER), ("silver", LATER), ("silver", LATER)),
        (("gold", None), ("silver", LATER), ("gold", None)),
        (("silver", LATER), ("gold", None), ("gold", None)),
        (("free", None), ("free", None), ("free", None)),
    ],
)
def test_where_both_have_them_the_higher_tier_and_the_later_expiry_stay(
    client: httpx2.Client,
    make_reader: Callable[[], Reader],
    leaving: tuple[str, str | None],
    there: tuple[str, str | None],
    expected: tuple[str, str | None],
) -> None:
    reader = make_reader()
    source, target = new_list(client)["id"], new_list(client)["id"]
    reader.joins(source).joins(target)
    edit(client, source, reader.user_id, type=leaving[0], paid_expiry=leaving[1], name="From there")
    edit(client, target, reader.user_id, type=there[0], paid_expiry=there[1], name="Of here")
    assert data(move(client, source, reader.user_id, target)) == 1
    [merged] = members(client, target)
    assert (merged["type"], merged["paid_expiry"]) == expected
    assert (merged["name"], merged["source"]) == ("Of here", "login")
    assert (reader.stands(source)[0], reader.stands(target)[0]) == ("removed", "active")


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("joined_both", [True, False])
def test_who_left_either_list_has_left_the_target(
    client: httpx2.Client,
    stranger: httpx2.Client,
    make_reader: Callable[[], Reader],
    side: str,
    joined_both: bool,
) -> None:
    reader = make_reader()
    lists = {name: new_list(client)["id"] for name in ("source", "target")}
    reader.joins(lists["source"])
    if joined_both:
        reader.joins(lists["target"])
    reader.leaves(lists[side])
    assert data(move(client, lists["source"], reader.user_id, lists["target"])) == 1
    assert reader.stands(lists["target"])[0] == "unsubscribed"
    assert count(client, lists["target"]) == 0
    path = f"/subscriptions/{lists['target']}/members/{reader.user_id}/email"
    problem(client.put(path, json={"enabled": True}), 409, "subscription.opted_out")
    subscribe(stranger, lists["target"], reader.email)
    assert reader.stands(lists["target"])[0] == "pending"


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("joined_both", [True, False])
def test_who_wants_no_mail_of_either_list_gets_none_of_the_target(
    client: httpx2.Client, make_reader: Callable[[], Reader], side: str, joined_both: bool
) -> None:
    reader = make_reader()
    lists = {name: new_list(client)["id"] for name in ("source", "target")}
    reader.joins(lists["source"])
    if joined_both:
        reader.joins(lists["target"])
    reader.wants_mail(lists[side], enabled=False)
    assert data(move(client, lists["source"], reader.user_id, lists["target"])) == 1
    assert reader.stands(lists["target"]) == ("active", False)
    path = f"/subscriptions/{lists['target']}/members/{reader.user_id}/email"
    problem(client.put(path, json={"enabled": True}), 409, "subscription.opted_out")
    reader.wants_mail(lists["target"], enabled=True)
    assert reader.stands(lists["target"]) == ("active", True)


def test_a_no_is_not_left_behind_by_moving_there_and_back(
    client: httpx2.Client, reader: Reader, list_id: int, target: int
) -> None:
    reader.joins(list_id).leaves(list_id)
    assert data(move(client, list_id, reader.user_id, target)) == 1
    reader.joins(target)
    assert data(move(client, target, reader.user_id, list_id)) == 1
    # To the target they said yes again, to this list never.
    assert reader.stands(list_id)[0] == "unsubscribed"
    reader.joins(list_id)
    assert reader.stands(list_id) == ("active", True)


@pytest.mark.parametrize("side", ["source", "target"])
def test_mail_that_the_owner_switched_off_stays_off(
    client: httpx2.Client, reader: Reader, list_id: int, target: int, side: str
) -> None:
    reader.joins(list_id).joins(target)
    off = {"source": list_id, "target": target}[side]
    path = f"/subscriptions/{off}/members/{reader.user_id}/email"
    assert data(client.put(path, json={"enabled": False})) == 1
    assert data(move(client, list_id, reader.user_id, target)) == 1
    assert reader.stands(target) == ("active", False)
    path = f"/subscriptions/{target}/members/{reader.user_id}/email"
    assert data(client.put(path, json={"enabled": True})) == 1


def test_a_waiting_member_waits_on_the_target_and_their_link_leads_there(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, target: int
) -> None:
    source = new_list(client, confirm_required=True)["id"]
    subscribe(stranger, source, reader.email)
    secret = mailed_link(stack, source, reader.user_id)
    assert data(move(client, source, reader.user_id, target)) == 1
    assert (reader.stands(source)[0], reader.stands(target)[0]) == ("removed", "pending")
    assert count(client, target) == 0
    confirm(stack, secret)
    assert (reader.stands(source)[0], reader.stands(target)) == ("removed", ("active", True))


def mailed_link(stack: Stack, list_id: int, user_id: int) -> str:
    """The secret of a link such as the mail holds."""
    keyring = stack.resources.keyring
    with stack.resources.unit_of_work() as uow:
        purpose = Purpose.CONFIRM_SUBSCRIPTION
        return mailed_tokens.make(uow, keyring, purpose, user_id=user_id, list_id=list_id)


def confirm(stack: Stack, secret: str) -> None:
    actor = Actor(ActorKind.USER, Via.CONFIRMATION)
    settings = stack.settings()
    with stack.resources.unit_of_work() as uow:
        joining.confirm(uow, settings.keyring, secret, actor)


def test_a_member_moved_before_the_mail_is_out_gets_it_for_the_target(
    quiet: Stack, quiet_client: httpx2.Client
) -> None:
    """No worker runs there, so that the mail stays unsent."""
    source = new_list(quiet_client, confirm_required=True)["id"]
    target, email = new_list(quiet_client)["id"], new_address()
    subscribe(quiet_client, source, email)
    waiting = known_member(quiet_client, source, email)
    assert data(move(quiet_client, source, waiting["user_id"], target)) == 1
    moved = known_member(quiet_client, target, email)
    assert moved["status"] == "pending"
    ordered = "SELECT 1 FROM jobs WHERE kind = 'subscription.mail_confirmation' AND subject_id = %s"
    assert len(quiet.query(ordered, moved["id"])) == 1


def test_a_waiting_member_who_is_on_the_target_already_stays_there(
    client: httpx2.Client, stranger: httpx2.Client, reader: Reader, target: int
) -> None:
    source = new_list(client, confirm_required=True)["id"]
    reader.joins(target)
    subscribe(stranger, source, reader.email)
    assert data(move(client, source, reader.user_id, target)) == 1
    assert reader.stands(target) == ("active", True)


def test_the_destination_must_be_the_callers_own(
    client: httpx2.Client, neighbour: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    theirs, archived = new_list(neighbour)["id"], new_list(client)["id"]
    assert data(client.delete(f"/lists/{archived}")) == 1
    problem(move(client, list_id, reader.user_id, list_id), 400, "transfer.same_list")
    problem(move(client, list_id, reader.user_id, theirs), 403, "list.not_owner")
    problem(move(neighbour, list_id, reader.user_id, theirs), 403, "list.not_owner")
    problem(move(client, list_id, reader.user_id, archived), 404, "list.not_found")
    problem(move(client, archived, reader.user_id, list_id), 404, "list.not_found")
    for unknown in (0, 1, UINT64_MAX):
        problem(move(client, list_id, reader.user_id, unknown), 404, "list.not_found")
    for bad in ("", "a", -1, UINT64_MAX + 1, "1.5"):
        problem(move(client, list_id, reader.user_id, bad), 400, "request.invalid")
    path = f"/subscriptions/{list_id}/members/{reader.user_id}/transfer"
    body = problem(client.post(path), 400, "request.invalid")
    assert [each["field"] for each in body["errors"]] == ["query.dst_list_id"]
    assert reader.stands(list_id) == ("active", True)
    assert members(neighbour, theirs) == []


def test_who_is_on_neither_list_is_404(
    client: httpx2.Client, reader: Reader, list_id: int, target: int
) -> None:
    problem(move(client, list_id, reader.user_id, target), 404, "member.not_found")
    reader.joins(target)
    problem(move(client, list_id, reader.user_id, target), 404, "member.not_found")
    assert reader.stands(target) == ("active", True)
