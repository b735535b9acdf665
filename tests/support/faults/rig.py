"""The stack of the fault matrix: real processes, with a proxy in front of each dependency."""

import time
from dataclasses import dataclass, field

import httpx2

from tests.support.faults.faults import ProxiedSite
from tests.support.images.pictures import photo
from tests.support.lists.people_on_lists import Subscriber, subscribe
from tests.support.sizes import sized

# Before each fault, the tests add subscribers until ``LEAVING_SUBSCRIBERS`` subscribers of the list
# can unsubscribe.
LEAVING_SUBSCRIBERS = sized(24, 240)
SETTLED_WITHIN_SECONDS = 90.0
RECOVERED_WITHIN_SECONDS = 10.0


@dataclass
class Rig(ProxiedSite):
    confirmed_list_id: int
    media_path: str
    ended_job: int
    # Subscribers of the list who haven't unsubscribed yet.
    leaving: list[Subscriber] = field(default_factory=list)

    def refill(self, count: int) -> None:
        """Add subscribers until ``count`` subscribers of the list can unsubscribe.

        Call ``refill`` only while all dependencies work, because each call subscribes people.
        """
        self.leaving += [
            subscribe(self.stack, self.list_id) for _ in range(count - len(self.leaving))
        ]

    def accept(self, client: httpx2.Client) -> None:
        """Upload a file without waiting, so that its job is in progress when the fault begins.

        Retry while the circuit breaker is still open because of the previous fault.
        """
        deadline = time.monotonic() + RECOVERED_WITHIN_SECONDS
        files = {"file": ("photo.jpg", photo(320, 240))}
        while True:
            reply = client.post("/attachments", files=files, headers={"Prefer": "respond-async"})
            if reply.status_code != 503 or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        assert reply.status_code == 202, reply.text

    def lost(self, since: int) -> list[tuple[object, ...]]:
        """Return the jobs that haven't succeeded within ``SETTLED_WITHIN_SECONDS``."""
        deadline = time.monotonic() + SETTLED_WITHIN_SECONDS
        while self._find_unfinished(since) and time.monotonic() < deadline:
            time.sleep(0.1)
        # Ignore the jobs that open payment pages, because the API returns an error to the caller if
        # a payment page isn't opened in time.
        return self.stack.query(
            "SELECT kind, status, error::text FROM jobs"
            " WHERE id > %s AND status <> 'succeeded' AND kind <> 'topup.open'",
            since,
        )

    def last_job(self) -> int:
        return int(str(self.stack.query("SELECT coalesce(max(id), 0) FROM jobs")[0][0]))

    def _find_unfinished(self, since: int) -> list[tuple[object, ...]]:
        return self.stack.query(
            "SELECT id FROM jobs WHERE id > %s AND status IN ('queued', 'running')", since
        )
