"""Causes a feed event of each type through the API or the sandbox, and reads the feed."""

from typing import Any

import httpx2

from devstack.harness.polling import eventually
from tests.support.http.replies import data

Event = dict[str, Any]


def page(client: httpx2.Client, **query: Any) -> dict[str, Any]:
    return dict(data(client.get("/events", params=query)))


def events(client: httpx2.Client, count: int = 1, **query: Any) -> list[Event]:
    """Wait until the owner's feed contains ``count`` events, and return the events.

    An event appears in the feed only after all older transactions have ended, so a transaction of
    another test can delay the event.
    """

    def find_events() -> list[Event]:
        items: list[Event] = page(client, limit=1000, **query)["items"]
        return items if len(items) >= count else []

    return eventually(find_events, what=f"{count} events")
