"""The stack of the fault matrix: real processes, with a proxy in front of each dependency."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import httpx2

from devstack.harness.proxy import Proxy
from devstack.harness.stack import Stack
from tests.support.composer.composer_stack import build_unique_post
from tests.support.composer.composing import METADATA
from tests.support.credits import credits
from tests.support.faults.faults import ProxiedSite
from tests.support.http.replies import data
from tests.support.images.pictures import photo
from tests.support.lists.people_on_lists import Subscriber, new_list, subscribe
from tests.support.sizes import sized
from tests.support.stack.proxied_dependencies import proxy_each_dependency

# Maps the queues of each worker to the worker's concurrency. The workers of the development stack
# have the same queues, but run more tasks concurrently than the workers in these tests.
WORKERS = {("request", "photos", "money", "mail", "maintenance"): 6, ("media", "export", "bulk"): 1}
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
        """Return the jobs that haven't succeeded within ``SETTLED_WITHIN_SECONDS``.

        Ignore jobs whose id is ``since`` or lower.
        """
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


@contextmanager
def open_rig(stack: Stack) -> Iterator[Rig]:
    with ExitStack() as opened:
        proxies = _start_processes(stack, opened)
        owner = stack.create_owner()
        credits.grant(stack, owner.user_id, "1000000")
        with stack.client(owner.key) as client:
            list_id = new_list(client)
            confirmed = new_list(client, confirm_required=True)
            files = {"file": ("photo.jpg", photo(320, 240))}
            upload = client.post("/attachments", files=files, headers={"Prefer": "wait=60"})
            path = f"/media/{data(upload)['filename']}"
            # The first call of the composer is slow, because the worker loads its language
            # libraries.
            prefer = {"Prefer": "wait=45"}
            client.post(METADATA, json=build_unique_post(), headers=prefer).raise_for_status()
        [[job_id]] = stack.query("SELECT max(id) FROM jobs")
        yield Rig(stack, proxies, owner, list_id, confirmed, path, int(str(job_id)))


def _start_processes(stack: Stack, opened: ExitStack) -> dict[str, Proxy]:
    stack.start_sandbox()
    proxies, through = proxy_each_dependency(stack, opened)
    # Set a rate limit that no caller reaches. Without a rate limit, the API wouldn't count requests
    # in Redis, so the tests wouldn't cover the counting.
    through["PRESSROOM_RATE_LIMIT_DEFAULT"] = "1000000/minute"
    stack.start_api(None, **through)
    for queues, concurrency in WORKERS.items():
        stack.start_worker(*queues, concurrency=concurrency, **through)
    return proxies
