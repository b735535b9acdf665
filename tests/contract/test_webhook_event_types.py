"""Tests that a change of a webhook's event types affects only later events."""

import threading
from typing import Any

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from services.feed.catalogue import FeedEventType
from tests.support.http.replies import data
from tests.support.http.webhook_receiver import (
    CREATED,
    LEFT,
    HookReceiver,
    announce_events,
    event_ids,
    new_endpoint,
)

CHANGED = FeedEventType.SUBSCRIPTION_CHANGED


def change_endpoint(client: httpx2.Client, endpoint: dict[str, Any], **changes: object) -> None:
    data(client.patch(f"/webhook-endpoints/{endpoint['id']}", json=changes))


def record_visible_events(
    stack: Stack, owner: Owner, client: httpx2.Client, event_type: FeedEventType, *, count: int = 1
) -> None:
    """Record events, and wait until they are visible in the event feed.

    The event feed hides an event as long as an older transaction is open, for example of another
    test.
    """

    announce_events(stack, owner, event_type, count=count)
    expected_count = len(event_ids(stack, owner, event_type))
    query = {"type": event_type.value}
    eventually(
        lambda: len(data(client.get("/events", params=query))["items"]) == expected_count,
        what="the events",
    )


def have_arrived(receiver: HookReceiver, expected: list[str]) -> bool:
    """Return whether exactly the expected events have arrived, once each and in order."""
    assert set(receiver.ids) <= set(expected), "an event that is none of the endpoint's"
    return receiver.ids == expected


def test_event_type_added_to_a_webhook_endpoint_delivers_only_later_events(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    endpoint = new_endpoint(client, receiver.url, LEFT)
    announce_events(stack, owner, LEFT)
    eventually(lambda: receiver.hooks, what="the first event")
    record_visible_events(stack, owner, client, CREATED, count=3)
    change_endpoint(client, endpoint, types=[LEFT, CREATED])
    announce_events(stack, owner, CREATED)
    announce_events(stack, owner, LEFT)
    created_ids = event_ids(stack, owner, CREATED)
    left_ids = event_ids(stack, owner, LEFT)
    expected_ids = [left_ids[0], created_ids[-1], left_ids[1]]
    eventually(lambda: have_arrived(receiver, expected_ids), what="what is new")


def test_resumed_webhook_gets_missed_events_only_of_types_configured_at_that_time(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    endpoint = new_endpoint(client, receiver.url, LEFT)
    change_endpoint(client, endpoint, state="paused")
    announce_events(stack, owner, LEFT)
    announce_events(stack, owner, CHANGED)
    record_visible_events(stack, owner, client, CREATED)
    change_endpoint(client, endpoint, types=[LEFT, CREATED])
    announce_events(stack, owner, LEFT)
    record_visible_events(stack, owner, client, CREATED)
    record_visible_events(stack, owner, client, CHANGED)
    # Adding the event type CHANGED doesn't change which events of the types LEFT and CREATED the
    # endpoint gets.
    change_endpoint(client, endpoint, types=[LEFT, CREATED, CHANGED])
    for event_type in (CHANGED, CREATED):
        announce_events(stack, owner, event_type)
    created_ids = event_ids(stack, owner, CREATED)
    left_ids = event_ids(stack, owner, LEFT)
    changed_ids = event_ids(stack, owner, CHANGED)
    change_endpoint(client, endpoint, state="active")
    expected_ids = [left_ids[0], left_ids[1], created_ids[1], changed_ids[2], created_ids[2]]
    eventually(lambda: have_arrived(receiver, expected_ids), what="what it missed")


def test_event_type_removed_and_added_again_delivers_only_later_events(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    endpoint = new_endpoint(client, receiver.url, LEFT, CREATED)
    change_endpoint(client, endpoint, state="paused")
    announce_events(stack, owner, LEFT)
    announce_events(stack, owner, CREATED)
    change_endpoint(client, endpoint, types=[LEFT])
    record_visible_events(stack, owner, client, CREATED)
    change_endpoint(client, endpoint, types=[LEFT, CREATED])
    announce_events(stack, owner, CREATED)
    change_endpoint(client, endpoint, state="active")
    expected_ids = [event_ids(stack, owner, LEFT)[0], event_ids(stack, owner, CREATED)[-1]]
    eventually(lambda: have_arrived(receiver, expected_ids), what="what it is to get")


@pytest.mark.tier("faults")
def test_concurrent_event_type_changes_lose_no_webhook_event(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    endpoint = new_endpoint(client, receiver.url, LEFT)
    can_stop = threading.Event()

    def record_events() -> None:
        while not can_stop.is_set():
            for event_type in (LEFT, CREATED, CHANGED):
                announce_events(stack, owner, event_type)

    def add_event_type(event_type: FeedEventType) -> None:
        with stack.client(owner.key) as other_client:
            change_endpoint(other_client, endpoint, types=[LEFT, CREATED, event_type])

    writer = threading.Thread(target=record_events)
    writer.start()
    eventually(lambda: len(receiver.hooks) > 5, what="the first events")
    # Both threads add the event type CREATED to the webhook endpoint, so the endpoint already has
    # CREATED when the second thread adds CREATED.
    threads = [
        threading.Thread(target=add_event_type, args=[event_type])
        for event_type in (CREATED, CHANGED)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    count_before = len(event_ids(stack, owner, CREATED))
    eventually(lambda: len(event_ids(stack, owner, CREATED)) > count_before + 5, what="more events")
    can_stop.set()
    writer.join()
    left_ids = event_ids(stack, owner, LEFT)
    created_ids = event_ids(stack, owner, CREATED)
    later_ids = {*left_ids, *created_ids[count_before:]}
    eventually(lambda: later_ids <= set(receiver.ids), what="all events", within=60)
    delivered_ids = [thread for thread in receiver.ids if thread in created_ids]
    assert delivered_ids == created_ids[-len(delivered_ids) :]
    assert len(delivered_ids) < len(created_ids)
