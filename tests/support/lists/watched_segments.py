"""Watches segments, compares them at chosen times, and reads their events and changes."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2

from devstack.harness.stack import Stack
from services.subscriptions.watches import comparing
from tests.support.feed.causes import events
from tests.support.http.replies import data
from tests.support.lists.segments import VIP, new_segment, set_member
from tests.support.lists.subscribers import new_address

# A function that creates a segment, and watches it.
Watch = Callable[..., "WatchedSegment"]

SEGMENT_TYPES = ("segment.entered", "segment.left", "segment.many")


@dataclass
class WatchedSegment:
    """A watched segment of a list. Comparisons run in the test's process, at the chosen times."""

    stack: Stack
    client: httpx2.Client
    list_id: int
    id: int

    @property
    def path(self) -> str:
        return f"/lists/{self.list_id}/segments/{self.id}"

    def read_watch(self) -> dict[str, Any]:
        items = data(self.client.get(f"/lists/{self.list_id}/segments"))["items"]
        [watch] = [each["watch"] for each in items if each["id"] == self.id]
        assert watch is not None
        return dict(watch)

    def change(self, **fields: Any) -> dict[str, Any]:
        return dict(data(self.client.patch(self.path, json=fields)))

    def compare(self, now: datetime | None = None) -> None:
        """Compare the segment at a time, which must not be before its last comparison."""
        watch_id = self.find_watch_id()
        if now is None:
            # The stack's worker compares due watches too, so that the watch must not be due yet.
            self.stack.query(
                "UPDATE segment_watches SET due_at = now() + interval '1 minute' WHERE id = %s",
                watch_id,
            )
            now = datetime.now(UTC) + timedelta(minutes=1, seconds=5)
        comparing.compare_watch(self.stack.resources, watch_id, now)

    def compare_after(self, **duration: float) -> datetime:
        """Compare the segment when the duration has passed, and return that time."""
        now = datetime.now(UTC) + timedelta(**duration)
        self.compare(now)
        return now

    def find_watch_id(self) -> int:
        [(watch_id,)] = self.stack.query(
            "SELECT id FROM segment_watches WHERE segment_id = %s", self.id
        )
        return int(str(watch_id))

    def list_events(self, count: int = 0) -> list[dict[str, Any]]:
        """Return the segment's events, and wait until there are ``count``."""
        found = events(self.client, count, type=list(SEGMENT_TYPES)) if count else self._read_now()
        return [each for each in found if each["data"]["segment_id"] == self.id]

    def _read_now(self) -> list[dict[str, Any]]:
        rows = self.stack.query(
            "SELECT type, data FROM feed_events WHERE list_id = %s AND type LIKE 'segment.%%'"
            " ORDER BY id",
            self.list_id,
        )
        return [{"type": kind, "data": values} for kind, values in rows]

    def list_happenings(self) -> list[tuple[str, int]]:
        """Return the type and the entry of each event."""
        return [
            (each["type"].removeprefix("segment."), each["data"].get("entry"))
            for each in self.list_events()
        ]

    def list_changes(self, **query: Any) -> list[dict[str, Any]]:
        return list(data(self.client.get(f"{self.path}/changes", params=query))["items"])


def watch_segment(
    stack: Stack, client: httpx2.Client, list_id: int, written: Any = VIP, **settings: Any
) -> WatchedSegment:
    """Create a segment, watch it, and compare it for the first time."""
    segment = WatchedSegment(stack, client, list_id, new_segment(client, list_id, written)["id"])
    segment.change(watch=settings)
    segment.compare()
    return segment


def put_member(segment: WatchedSegment, email: str | None = None, **values: Any) -> str:
    """Create or change a member without an import, and return the address."""
    email = email or new_address()
    data(segment.client.put(f"/lists/{segment.list_id}/members/{email}", json=values))
    return email


def tag(segment: WatchedSegment, email: str, *, has_tag: bool = True) -> None:
    change = {"add_tags": ["vip"]} if has_tag else {"remove_tags": ["vip"]}
    set_member(segment.client, segment.list_id, email, **change)
