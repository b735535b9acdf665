"""Tests of members whom the owner transfers to another list."""

import httpx2
import pytest

from core.ids import PersonId
from devstack.harness.stack import Stack
from services.accounts import mailed_tokens
from services.accounts.mailed_tokens import Purpose
from services.subscriptions import sign_up
from services.subscriptions.members.changes import Actor, ActorKind, Via
from tests.support.http.replies import data, problem
from tests.support.lists.subscribers import (
    Reader,
    fetch_members,
    new_address,
    new_list,
    read_subscriber_count,
    require_member,
    subscribe,
    trace_for,
)

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
    target_member = require_member(client, target_list_id, reader.email)
    assert {name: target_member[name] for name in fields} == fields
    assert (target_member["status"], target_member["email_enabled"], target_member["source"]) == (
        "active",
        True,
        "transfer",
    )
    assert reader.read_status(list_id) == ("removed", True)
    assert (
        read_subscriber_count(client, list_id),
        read_subscriber_count(client, target_list_id),
    ) == (0, 1)


def test_repeated_transfer_changes_nothing(
    client: httpx2.Client, reader: Reader, list_id: int, target_list_id: int
) -> None:
    reader.joins(list_id)
    assert data(transfer(client, list_id, reader.user_id, target_list_id)) == 1
    standing_before = reader.read_membership(target_list_id)
    assert data(transfer(client, list_id, reader.user_id, target_list_id)) == 0
    assert reader.read_membership(target_list_id) == standing_before


def test_member_transferred_back_keeps_the_latest_tier(
    client: httpx2.Client, reader: Reader, list_id: int, target_list_id: int
) -> None:
    reader.joins(list_id)
    edit(client, list_id, reader.user_id, type="gold", paid_expiry=LATER_EXPIRY)
    assert data(transfer(client, list_id, reader.user_id, target_list_id)) == 1
    edit(client, target_list_id, reader.user_id, type="silver", paid_expiry=EARLIER_EXPIRY)
    assert data(transfer(client, target_list_id, reader.user_id, list_id)) == 1
    member = require_member(client, list_id, reader.email)
    # The tier and expiry from before the first move are not restored.
    assert (member["status"], member["type"], member["paid_expiry"]) == (
        "active",
        "silver",
        EARLIER_EXPIRY,
    )
    assert reader.read_status(target_list_id)[0] == "removed"
    assert (
        read_subscriber_count(client, list_id),
        read_subscriber_count(client, target_list_id),
    ) == (1, 0)


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
    [member] = fetch_members(client, target_list_id)
    assert (member["type"], member["paid_expiry"]) == expected
    assert (member["name"], member["source"]) == ("Of here", "login")
    assert (reader.read_status(list_id)[0], reader.read_status(target_list_id)[0]) == (
        "removed",
        "active",
    )


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
    assert reader.read_status(list_id) == ("unsubscribed", True)
    query = {"trace_id": trace_for(stack, list_id, reader.user_id)}
    assert stranger.post("/unsubscribe", params=query, data={"action": "undo"}).is_redirect
    assert reader.read_status(list_id) == ("active", True)


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
    assert reader.read_status(target_list_id)[0] == "unsubscribed"
    assert read_subscriber_count(client, target_list_id) == 0
    path = f"/subscriptions/{target_list_id}/members/{reader.user_id}/email"
    problem(client.put(path, json={"enabled": True}), 409, "subscription.opted_out")
    subscribe(stranger, target_list_id, reader.email)
    assert reader.read_status(target_list_id)[0] == "pending"


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
    assert reader.read_status(target_list_id) == ("active", False)
    path = f"/subscriptions/{target_list_id}/members/{reader.user_id}/email"
    problem(client.put(path, json={"enabled": True}), 409, "subscription.opted_out")
    reader.wants_mail(target_list_id, enabled=True)
    assert reader.read_status(target_list_id) == ("active", True)


def test_opt_out_from_one_list_survives_a_transfer_and_a_rejoin_of_another_list(
    client: httpx2.Client, reader: Reader, list_id: int, target_list_id: int
) -> None:
    reader.joins(list_id).leaves(list_id)
    assert data(transfer(client, list_id, reader.user_id, target_list_id)) == 1
    reader.joins(target_list_id)
    assert data(transfer(client, target_list_id, reader.user_id, list_id)) == 1
    # The reader has rejoined the target list, but has not rejoined the first list.
    assert reader.read_status(list_id)[0] == "unsubscribed"
    reader.joins(list_id)
    assert reader.read_status(list_id) == ("active", True)


@pytest.mark.parametrize("side", ["source", "target"])
def test_transfer_keeps_mail_off_that_the_owner_switched_off(
    client: httpx2.Client, reader: Reader, list_id: int, target_list_id: int, side: str
) -> None:
    reader.joins(list_id).joins(target_list_id)
    muted_list_id = {"source": list_id, "target": target_list_id}[side]
    path = f"/subscriptions/{muted_list_id}/members/{reader.user_id}/email"
    assert data(client.put(path, json={"enabled": False})) == 1
    assert data(transfer(client, list_id, reader.user_id, target_list_id)) == 1
    assert reader.read_status(target_list_id) == ("active", False)
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
    assert (reader.read_status(source_id)[0], reader.read_status(target_list_id)[0]) == (
        "removed",
        "pending",
    )
    assert read_subscriber_count(client, target_list_id) == 0
    confirm(stack, token)
    assert (reader.read_status(source_id)[0], reader.read_status(target_list_id)) == (
        "removed",
        ("active", True),
    )


def create_confirmation_token(stack: Stack, list_id: int, user_id: int) -> str:
    """Create the token of a confirmation link, as a mail would contain it."""
    with stack.resources.unit_of_work() as uow:
        purpose = Purpose.CONFIRM_SUBSCRIPTION
        return mailed_tokens.create_token(
            uow, purpose, person_id=PersonId(user_id), list_id=list_id
        )


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
    source_member = require_member(client_without_workers, source_id, email)
    assert (
        data(transfer(client_without_workers, source_id, source_member["user_id"], target_id)) == 1
    )
    target_member = require_member(client_without_workers, target_id, email)
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
    assert reader.read_status(target_list_id) == ("active", True)


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
    assert reader.read_status(list_id) == ("active", True)
    assert fetch_members(other_owner, foreign_id) == []


def test_transfer_of_a_person_who_is_not_on_the_source_list_returns_404(
    client: httpx2.Client, reader: Reader, list_id: int, target_list_id: int
) -> None:
    problem(transfer(client, list_id, reader.user_id, target_list_id), 404, "member.not_found")
    reader.joins(target_list_id)
    problem(transfer(client, list_id, reader.user_id, target_list_id), 404, "member.not_found")
    assert reader.read_status(target_list_id) == ("active", True)
