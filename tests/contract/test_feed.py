"""Tests of the event feed, which shows an owner's events in order, and only to the owner."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from core.scopes import Scope
from devstack.harness.stack import Owner, Stack
from services.feed.catalogue import CATALOGUE, FeedEventType
from services.senders.intake import MAX_REFUSED_CALLS_PER_HOUR
from services.subscriptions.watches.comparing import MAX_SINGLE_EVENTS
from tests.support.credits import credits, topups
from tests.support.credits.payments import SandboxPayments
from tests.support.feed.causes import events, page
from tests.support.http.replies import TIMESTAMP, data, problem, send
from tests.support.imports.bulk import (
    COUNT_NAMES,
    add,
    build_address_file,
    build_addresses,
    export_rows,
    import_members_file,
)
from tests.support.lists.segments import ALL_MEMBERS_FILTER
from tests.support.lists.subscribers import (
    Reader,
    insert_members,
    new_address,
    new_list,
    subscribe,
)
from tests.support.lists.watched_segments import WatchedSegment, watch_segment
from tests.support.people.erasure import erase
from tests.support.people.oauth import log_in, register
from tests.support.senders.mailings import new_mailing
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import bounce, deliver, delivery_for, reject_calls, report


@dataclass(frozen=True)
class Scene:
    """The people, clients and sandbox that an action in ``ACTIONS`` needs.

    Before the action, the owner has one list, and the reader hasn't joined any list.
    """

    stack: Stack
    owner: Owner
    client: httpx2.Client
    stranger: httpx2.Client
    reader: Reader
    sandbox: SandboxPayments
    list_id: int

    @property
    def member(self) -> str:
        """Return the API path of the reader's membership in the list."""
        return f"/subscriptions/{self.list_id}/members/{self.reader.user_id}"


def _subscribe(scene: Scene) -> None:
    data(subscribe(scene.stranger, scene.list_id, new_address()))


def _confirm(scene: Scene) -> None:
    data(scene.client.patch(f"/lists/{scene.list_id}", json={"confirm_required": True}))
    data(subscribe(scene.stranger, scene.list_id, scene.reader.email))
    scene.reader.joins(scene.list_id)


def _leave(scene: Scene) -> None:
    scene.reader.joins(scene.list_id).leaves(scene.list_id)


def _switch_email_off(scene: Scene) -> None:
    scene.reader.joins(scene.list_id).wants_mail(scene.list_id, False)


def _switch_email_on(scene: Scene) -> None:
    _switch_email_off(scene)
    scene.reader.wants_mail(scene.list_id, True)


def _remove(scene: Scene) -> None:
    scene.reader.joins(scene.list_id)
    assert data(scene.client.delete(scene.member)) == 1


def _transfer(scene: Scene) -> None:
    scene.reader.joins(scene.list_id)
    target = new_list(scene.client)["id"]
    reply = scene.client.post(f"{scene.member}/transfer", params={"dst_list_id": target})
    assert data(reply) == 1


def _change(scene: Scene) -> None:
    scene.reader.joins(scene.list_id)
    path = f"/lists/{scene.list_id}/members/{scene.reader.user_id}"
    data(scene.client.patch(path, json={"type": "gold"}))


def _import(scene: Scene) -> None:
    import_members_file(scene.client, scene.list_id, build_address_file(*build_addresses(5)))


def _export(scene: Scene) -> None:
    export_rows(scene.client, scene.list_id)


def _undo_import(scene: Scene) -> None:
    result = import_members_file(
        scene.client, scene.list_id, build_address_file(*build_addresses(5))
    )
    assert data(scene.client.delete(f"/imports/{result['import_id']}/members")) == 5


def _upload(scene: Scene) -> None:
    data(send(scene.client))


def _fail_upload(scene: Scene) -> None:
    reply = send(scene.client, b"\x89PNG\r\n\x1a\n")
    problem(reply, 422, reply.json()["code"])


def _delete_upload(scene: Scene) -> None:
    record = data(send(scene.client))
    assert data(scene.client.delete(f"/attachments/{record['hash_id']}")) == 1


def _pay_order(scene: Scene) -> int:
    return topups.create_paid_order(scene.stack, scene.client, scene.sandbox)


def _refund(scene: Scene) -> None:
    order_id = _pay_order(scene)
    scene.sandbox.refund(order_id)
    topups.await_status(scene.stack, order_id, "refunded")


def _dispute(scene: Scene) -> None:
    order_id = _pay_order(scene)
    scene.sandbox.dispute(order_id)
    topups.await_status(scene.stack, order_id, "disputed")


def _review(scene: Scene) -> None:
    order_id = topups.create_order(scene.client)["order_id"]
    scene.sandbox.alter(order_id, amount=499)
    scene.sandbox.pay(order_id)
    topups.await_status(scene.stack, order_id, "review")


def _spend_most_credits(scene: Scene) -> None:
    credits.grant(scene.stack, scene.owner.user_id, "150")
    data(credits.consume(scene.client, "60"))


def _make_key(scene: Scene) -> None:
    data(scene.client.post("/apikeys", json={"name": "one"}))


def _end_key(scene: Scene) -> None:
    key = data(scene.client.post("/apikeys", json={"name": "one"}))
    assert data(scene.client.delete(f"/apikeys/{key['id']}")) == 1


def _grant_access(scene: Scene) -> None:
    person = log_in(scene.stack, scene.owner)
    with person.browser:
        register(scene.stack).tokens(person, "credit.read")


def _revoke_access(scene: Scene) -> None:
    _grant_access(scene)
    [grant] = data(scene.client.get("/grants"))
    assert data(scene.client.delete(f"/grants/{grant['id']}")) == 1


def _fail_sender(scene: Scene) -> dict[str, Any]:
    sender = new_sender(scene.client)
    reject_calls(scene.client, sender, count=MAX_REFUSED_CALLS_PER_HOUR)
    return sender


def _recover_sender(scene: Scene) -> None:
    sender = _fail_sender(scene)
    events(scene.client, type=FeedEventType.SENDER_FAILING.value)
    deliver(scene.stack, scene.client, sender, report("delivered", email=new_address()))


def _bounce_mailing(scene: Scene) -> None:
    scene.reader.joins(scene.list_id)
    mailing_id = new_mailing(scene.stack, scene.list_id, rows=500, figures={"hard_bounced": 24})
    delivery_id = delivery_for(scene.stack, scene.list_id, scene.reader.user_id, mailing_id)
    deliver(scene.stack, scene.client, new_sender(scene.client), bounce(delivery_id=delivery_id))


def _enter_segment(scene: Scene) -> WatchedSegment:
    segment = watch_segment(scene.stack, scene.client, scene.list_id, ALL_MEMBERS_FILTER)
    scene.reader.joins(scene.list_id)
    segment.compare()
    return segment


def _leave_segment(scene: Scene) -> None:
    segment = _enter_segment(scene)
    scene.reader.leaves(scene.list_id)
    segment.compare()


def _fill_segment(scene: Scene) -> None:
    segment = watch_segment(scene.stack, scene.client, scene.list_id, ALL_MEMBERS_FILTER)
    insert_members(scene.stack, scene.list_id, build_addresses(MAX_SINGLE_EVENTS + 1))
    segment.compare()


_TYPE = FeedEventType


# Maps each event type to an action after which the owner's newest event has this type.
ACTIONS: Mapping[FeedEventType, Callable[[Scene], object]] = {
    _TYPE.SUBSCRIPTION_CREATED: _subscribe,
    _TYPE.SUBSCRIPTION_CONFIRMED: _confirm,
    _TYPE.SUBSCRIPTION_LEFT: _leave,
    _TYPE.SUBSCRIPTION_EMAIL_OFF: _switch_email_off,
    _TYPE.SUBSCRIPTION_EMAIL_ON: _switch_email_on,
    _TYPE.SUBSCRIPTION_REMOVED: _remove,
    _TYPE.SUBSCRIPTION_TRANSFERRED: _transfer,
    _TYPE.SUBSCRIPTION_CHANGED: _change,
    _TYPE.SEGMENT_ENTERED: _enter_segment,
    _TYPE.SEGMENT_LEFT: _leave_segment,
    _TYPE.SEGMENT_MANY: _fill_segment,
    _TYPE.IMPORT_ENDED: _import,
    _TYPE.EXPORT_ENDED: _export,
    _TYPE.BULK_ENDED: _undo_import,
    _TYPE.ATTACHMENT_READY: _upload,
    _TYPE.ATTACHMENT_FAILED: _fail_upload,
    _TYPE.ATTACHMENT_DELETED: _delete_upload,
    _TYPE.ORDER_PAID: _pay_order,
    _TYPE.ORDER_REFUNDED: _refund,
    _TYPE.ORDER_DISPUTED: _dispute,
    _TYPE.ORDER_REVIEW: _review,
    _TYPE.CREDITS_LOW: _spend_most_credits,
    _TYPE.KEY_CREATED: _make_key,
    _TYPE.KEY_ENDED: _end_key,
    _TYPE.GRANT_CREATED: _grant_access,
    _TYPE.GRANT_ENDED: _revoke_access,
    _TYPE.SENDER_FAILING: _fail_sender,
    _TYPE.SENDER_RECOVERED: _recover_sender,
    _TYPE.MAILING_ALARM: _bounce_mailing,
}


LOW_BALANCE_PATH = "/auxilia/credits/low-balance"


@pytest.fixture
def scene(
    *,
    stack: Stack,
    owner: Owner,
    client: httpx2.Client,
    stranger: httpx2.Client,
    reader: Reader,
    sandbox_payments: SandboxPayments,
    list_id: int,
) -> Scene:
    """The people and the mailing list that appear in the event feed."""
    return Scene(stack, owner, client, stranger, reader, sandbox_payments, list_id)


@pytest.mark.parametrize("kind", FeedEventType)
def test_every_event_type_is_emitted_by_its_action_and_matches_its_schema(
    scene: Scene, kind: FeedEventType
) -> None:
    ACTIONS[kind](scene)
    *_, event = events(scene.client, type=kind.value)
    assert TIMESTAMP.fullmatch(event["occurred_at"])
    catalogue_entry = CATALOGUE[kind]
    assert event["subject"]["kind"] == catalogue_entry.subject
    assert set(event["data"]) == set(catalogue_entry.data.model_fields)
    catalogue_entry.data.model_validate(event["data"], strict=True)
    assert event["list_id"] is None or event["list_id"] == scene.list_id or "transfer" in kind
    # The action must not create an event of this type in the feed of another owner.
    with scene.stack.client(scene.stack.create_owner().key) as other_client:
        assert (
            kind == FeedEventType.KEY_CREATED or page(other_client, type=kind.value)["items"] == []
        )


def test_member_event_contains_address_and_name_until_the_member_is_erased(
    scene: Scene,
) -> None:
    scene.reader.joins(scene.list_id)
    [event] = events(scene.client, list_id=scene.list_id)
    event_data = {
        "user_id": scene.reader.user_id,
        "action": "subscribed",
        "via": "login",
        "status": "active",
        "email_enabled": True,
        "email": scene.reader.email,
        "name": scene.reader.name,
        "changed": None,
        "reason": None,
    }
    assert event["data"] == event_data
    erase(scene.stack.resources, scene.reader.email)
    created_event, removed_event = events(scene.client, 2, list_id=scene.list_id)
    assert created_event == {**event, "data": {**event_data, "email": None, "name": None}}
    assert removed_event["type"] == "subscription.removed"
    expected = {"user_id": event_data["user_id"], "action": "erased", "email": None, "name": None}
    assert expected.items() <= removed_event["data"].items()


def test_member_events_appear_in_the_order_in_which_they_happened(scene: Scene) -> None:
    reader, list_id = scene.reader, scene.list_id
    reader.joins(list_id).leaves(list_id).joins(list_id)
    reader.wants_mail(list_id, False)
    data(scene.client.delete(scene.member))
    reader.joins(list_id)
    actions = [each["type"].partition(".")[2] for each in events(scene.client, 6, list_id=list_id)]
    assert actions == ["created", "left", "created", "email_off", "removed", "created"]


def test_transfer_emits_an_event_on_both_lists(scene: Scene) -> None:
    ACTIONS[FeedEventType.SUBSCRIPTION_TRANSFERRED](scene)
    source_event, target_event = events(scene.client, 2, type="subscription.transferred")
    assert source_event["list_id"] == source_event["data"]["from_list_id"] == scene.list_id
    assert target_event["list_id"] == target_event["data"]["to_list_id"] != scene.list_id
    assert (source_event["data"]["status"], target_event["data"]["status"]) == ("removed", "active")
    # Apart from `subscription.transferred`, the transfer emits no event about the source list.
    assert [each["type"] for each in events(scene.client, 2, list_id=scene.list_id)] == [
        "subscription.created",
        "subscription.transferred",
    ]


def test_bulk_action_on_many_members_emits_one_event_with_counts(
    stack: Stack, client: httpx2.Client, owner: Owner, list_id: int
) -> None:
    result = import_members_file(
        client, list_id, build_address_file(*build_addresses(50), "not an address")
    )
    assert data(add(client, list_id, *build_addresses(3))) == 3
    assert data(client.delete(f"/imports/{result['import_id']}/members")) == 50
    import_event, add_event, undo_event = events(client, 3, list_id=list_id)
    assert {*COUNT_NAMES, "updated"} <= import_event["data"].keys()
    assert {name: result[name] for name in COUNT_NAMES}.items() <= import_event["data"].items()
    assert (import_event["data"]["source"], add_event["data"]["source"]) == ("file", "members")
    assert add_event["data"]["added"] == 3
    assert (undo_event["type"], undo_event["data"]["changed"]) == ("bulk.ended", 50)
    job = data(client.get(import_event["data"]["path"]))
    assert (job["id"], job["result"]["added"]) == (import_event["data"]["job_id"], 50)
    count_events = "SELECT count(*) FROM feed_events WHERE user_id = %s AND list_id = %s"
    assert stack.query(count_events, owner.user_id, list_id) == [(3,)]


def test_failed_import_emits_an_import_ended_event(client: httpx2.Client, list_id: int) -> None:
    reply = add(client, list_id, "not an address")
    problem(reply, 422, reply.json()["code"])
    [event] = events(client, type="import.ended")
    assert (event["data"]["status"], event["data"]["invalid"]) == ("failed", 1)


def test_low_balance_event_is_emitted_only_when_the_balance_falls_below_the_threshold(
    stack: Stack, client: httpx2.Client, owner: Owner
) -> None:
    credits.grant(stack, owner.user_id, "150")
    # A rejected charge emits no event.
    problem(credits.consume(client, "151"), 402, "credits.insufficient")
    for amount in ("49.9999", "0.0001", "0.0001", "60"):
        data(credits.consume(client, amount))
    credits.grant(stack, owner.user_id, "70")
    assert [each["data"] for each in events(client, type="credits.low")] == [
        {"balance_credit": 99.9999, "below": 100.0}
    ]
    data(credits.consume(client, "11"))
    low_events = events(client, 2, type="credits.low")
    assert [each["data"]["balance_credit"] for each in low_events] == [99.9999, 98.9999]


def test_owner_changes_the_low_balance_threshold(
    stack: Stack, client: httpx2.Client, owner: Owner
) -> None:
    assert data(client.get(LOW_BALANCE_PATH)) == {"below_credit": 100}
    threshold = {"below_credit": 250.5}
    assert [data(client.put(LOW_BALANCE_PATH, json=threshold)) for _ in range(2)] == [1, 0]
    assert data(client.get(LOW_BALANCE_PATH)) == {"below_credit": 250.5}
    credits.grant(stack, owner.user_id, "251")
    data(credits.consume(client, "1"))
    [event] = events(client, type="credits.low")
    assert event["data"] == {"balance_credit": 250.0, "below": 250.5}
    assert data(client.put(LOW_BALANCE_PATH, json={"below_credit": 0})) == 1
    data(credits.consume(client, "250"))
    assert len(events(client, type="credits.low")) == 1


@pytest.mark.parametrize("threshold", ["-1", "0.00001", "1e12", "1e400", '"1"', "true", "null"])
def test_malformed_low_balance_threshold_is_rejected(client: httpx2.Client, threshold: str) -> None:
    headers = {"Content-Type": "application/json"}
    reply = client.put(
        LOW_BALANCE_PATH, content=f'{{"below_credit": {threshold}}}', headers=headers
    )
    problem(reply, 422, reply.json()["code"])
    assert data(client.get(LOW_BALANCE_PATH)) == {"below_credit": 100}


def test_event_pages_continue_with_cursors_and_the_last_page_has_a_cursor_too(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    for _ in range(5):
        data(subscribe(stranger, list_id, new_address()))
    all_events = events(client, 5, list_id=list_id)
    paged_events = []
    query = {"list_id": list_id, "limit": 2}
    for has_more in (True, True, False, False):
        events_page = page(client, **query)
        assert events_page["pagination"]["limit"] == 2
        assert events_page["pagination"]["has_more"] is has_more
        paged_events += events_page["items"]
        query["cursor"] = events_page["pagination"]["next_cursor"]
    assert paged_events == all_events
    assert events_page["items"] == []
    data(subscribe(stranger, list_id, new_address()))
    [new_event] = events(client, cursor=query["cursor"], list_id=list_id)
    assert new_event["id"] not in [each["id"] for each in all_events]


def test_empty_event_feed_returns_a_cursor_that_finds_later_events(stack: Stack) -> None:
    owner = stack.create_owner()
    key = stack.create_key(owner.user_id, Scope.SUBSCRIPTION_READ)
    with stack.client(key) as reading_client, stack.client(owner.key) as client:
        empty_page = page(reading_client)
        assert empty_page["items"] == []
        with stack.client() as stranger:
            data(subscribe(stranger, new_list(client)["id"], new_address()))
        [event] = events(reading_client, cursor=empty_page["pagination"]["next_cursor"])
        assert event["type"] == "subscription.created"


@pytest.mark.parametrize("cursor", ["", "1", "1-", "-1-2", "1-2-3", "1.5-2", "²-1", f"{2**53}-1"])
def test_event_feed_rejects_malformed_cursors(client: httpx2.Client, cursor: str) -> None:
    reply = client.get("/events", params={"cursor": cursor})
    problem(reply, 400, "cursor.invalid")


def test_event_feed_rejects_unknown_types_and_limits_and_lists(client: httpx2.Client) -> None:
    for query in ("type=subscription.sold", "type=", "limit=0", "limit=1001", "list_id=x"):
        problem(client.get(f"/events?{query}"), 400, "request.invalid")
    for unknown_list_id in (2**64 - 1, 1):
        problem(client.get(f"/events?list_id={unknown_list_id}"), 404, "list.not_found")


def test_api_key_sees_only_event_types_of_its_scopes(
    stack: Stack, client: httpx2.Client, owner: Owner, read_only_client: httpx2.Client, list_id: int
) -> None:
    data(send(client))
    import_members_file(client, list_id, build_address_file(*build_addresses(1)))
    expected_types = {"attachment.ready", "import.ended", "key.created"}
    assert {each["type"] for each in events(client, 3)} >= expected_types
    assert {each["type"] for each in events(read_only_client)} == {"import.ended"}
    for kind, code in (
        ("attachment.ready", "auth.insufficient_scope"),
        ("key.created", "auth.restricted_credential"),
    ):
        params = {"type": ["import.ended", kind]}
        problem(read_only_client.get("/events", params=params), 403, code)
    with stack.client(stack.create_key(owner.user_id, Scope.COMPOSER)) as composer_client:
        assert page(composer_client)["items"] == []
    with stack.client(stack.create_key(owner.user_id, Scope.SUBSCRIPTION_FULL)) as full_client:
        assert [each["type"] for each in events(full_client)] == ["import.ended"]


def test_oauth_client_sees_only_event_types_of_its_granted_scopes(
    stack: Stack, owner: Owner
) -> None:
    person = log_in(stack, owner)
    with person.browser, stack.client(owner.key) as client:
        tokens = register(stack).tokens(person, "attachment")
        data(send(client))
        with stack.client(tokens["access_token"]) as program:
            assert [each["type"] for each in events(program)] == ["attachment.ready"]
            reply = program.get("/events", params={"type": "grant.created"})
            problem(reply, 403, "auth.restricted_credential")


def test_event_feed_returns_several_types_in_chronological_order(
    client: httpx2.Client, list_id: int
) -> None:
    for _ in range(2):
        import_members_file(client, list_id, build_address_file(*build_addresses(1)))
        data(send(client))
    requested_types = ["attachment.ready", "import.ended"]
    types = [each["type"] for each in events(client, 4, type=requested_types)]
    assert types == ["import.ended", "attachment.ready"] * 2
