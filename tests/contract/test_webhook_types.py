"""An endpoint's types change: one that is added begins then, and no event of the others is lost."""

import threading
from typing import Any

import httpx2
import pytest

from services.feed.catalogue import FeedEventType
from tests.contract.replies import data
from tests.hooks import CREATED, LEFT, HookReceiver, event_ids, happen, new_endpoint
from tests.stack import Owner, Stack, eventually

PATH = "/webhook-endpoints"
CHANGED = FeedEventType.SUBSCRIPTION_CHANGED


def change(client: httpx2.Client, endpoint: dict[str, Any], **to: object) -> None:
    data(client.patch(f"{PATH}/{endpoint['id']}", json=to))


def happen_and_be_seen(
    stack: Stack, owner: Owner, client: httpx2.Client, kind: FeedEventType, *, count: int = 1
) -> None:
    """While an older transaction of another test is open, an event counts as one to come."""

    happen(stack, owner, kind, count=count)
    all_of_them = len(event_ids(stack, owner, kind))
    query = {"type": kind.value}
    eventually(
        lambda: len(data(client.get("/events", params=query))["items"]) == all_of_them,
        what="the events",
    )


def arrived(receiver: HookReceiver, expected: list[str]) -> bool:
    """Whether these events came, in their order; none comes twice while nothing fails."""
    assert set(receiver.ids) <= set(expected), "an event that is none of the endpoint's"
    return receiver.ids == expected


def test_added_type_begins_with_what_happens_from_now_on(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    endpoint = new_endpoint(client, receiver.url, LEFT)
    happen(stack, owner, LEFT)
    eventually(lambda: receiver.hooks, what="the first event")
    happen_and_be_seen(stack, owner, client, CREATED, count=3)
    change(client, endpoint, types=[LEFT, CREATED])
    happen(stack, owner, CREATED)
    happen(stack, owner, LEFT)
    created, left = event_ids(stack, owner, CREATED), event_ids(stack, owner, LEFT)
    expected = [left[0], created[-1], left[1]]
    eventually(lambda: arrived(receiver, expected), what="what is new")


def test_paused_endpoint_gets_what_it_missed_of_its_former_types_and_nothing_old_of_others(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    endpoint = new_endpoint(client, receiver.url, LEFT)
    change(client, endpoint, state="paused")
    happen(stack, owner, LEFT)
    happen(stack, owner, CHANGED)
    happen_and_be_seen(stack, owner, client, CREATED)
    change(client, endpoint, types=[LEFT, CREATED])
    happen(stack, owner, LEFT)
    happen_and_be_seen(stack, owner, client, CREATED)
    happen_and_be_seen(stack, owner, client, CHANGED)
    # What was added before keeps where it began.
    change(client, endpoint, types=[LEFT, CREATED, CHANGED])
    for kind in (CHANGED, CREATED):
        happen(stack, owner, kind)
    created, left = event_ids(stack, owner, CREATED), event_ids(stack, owner, LEFT)
    changed = event_ids(stack, owner, CHANGED)
    change(client, endpoint, state="active")
    expected = [left[0], left[1], created[1], changed[2], created[2]]
    eventually(lambda: arrived(receiver, expected), what="what it missed")


def test_type_that_is_taken_away_and_added_again_begins_anew(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    endpoint = new_endpoint(client, receiver.url, LEFT, CREATED)
    change(client, endpoint, state="paused")
    happen(stack, owner, LEFT)
    happen(stack, owner, CREATED)
    change(client, endpoint, types=[LEFT])
    happen_and_be_seen(stack, owner, client, CREATED)
    change(client, endpoint, types=[LEFT, CREATED])
    happen(stack, owner, CREATED)
    change(client, endpoint, state="active")
    expected = [event_ids(stack, owner, LEFT)[0], event_ids(stack, owner, CREATED)[-1]]
    eventually(lambda: arrived(receiver, expected), what="what it is to get")


@pytest.mark.full("faults")
def test_no_event_is_lost_while_types_change_and_events_are_taken(
    stack: Stack, owner: Owner, client: httpx2.Client, receiver: HookReceiver
) -> None:
    endpoint = new_endpoint(client, receiver.url, LEFT)
    enough = threading.Event()

    def go_on() -> None:
        while not enough.is_set():
            for kind in (LEFT, CREATED, CHANGED):
                happen(stack, owner, kind)

    def add(kind: FeedEventType) -> None:
        with stack.client(owner.key) as other:
            change(other, endpoint, types=[LEFT, CREATED, kind])

    writer = threading.Thread(target=go_on)
    writer.start()
    eventually(lambda: len(receiver.hooks) > 5, what="the first events")
    # One of them finds CREATED there already.
    adding = [threading.Thread(target=add, args=[kind]) for kind in (CREATED, CHANGED)]
    for each in adding:
        each.start()
    for each in adding:
        each.join()
    known = len(event_ids(stack, owner, CREATED))
    eventually(lambda: len(event_ids(stack, owner, CREATED)) > known + 5, what="more events")
    enough.set()
    writer.join()
    left, created = event_ids(stack, owner, LEFT), event_ids(stack, owner, CREATED)
    later = {*left, *created[known:]}
    eventually(lambda: later <= set(receiver.ids), what="all events", within=60)
    got = [each for each in receiver.ids if each in created]
    assert got == created[-len(got) :]
    assert len(got) < len(created)
