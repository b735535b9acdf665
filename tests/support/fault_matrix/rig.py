"""The stack on which the faults happen: real processes, and a proxy before each dependency."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import httpx2

from devstack.harness.proxy import Proxy
from devstack.harness.stack import Owner, Stack
from tests.support.composer.composing import METADATA
from tests.support.composer.modelling import post
from tests.support.credits import credits
from tests.support.http.replies import data
from tests.support.images.pictures import photo
from tests.support.lists.people_on_lists import Subscriber, new_list, subscribe
from tests.support.sizes import sized
from tests.support.stack.proxied_dependencies import proxy_each_dependency

# As in the development stack, with fewer of each.
WORKERS = {("request", "photos", "money", "mail", "maintenance"): 6, ("media", "export", "bulk"): 1}
# Callers who leave, enough for the calls of one fault in the full form.
LEAVING = sized(24, 240)
SETTLED_WITHIN_SECONDS = 90.0
RECOVERED_WITHIN_SECONDS = 10.0


@dataclass
class Rig:
    stack: Stack
    proxies: dict[str, Proxy]
    owner: Owner
    list_id: int
    confirmed_list_id: int
    media_path: str
    ended_job: int
    # People of the list, each to leave once.
    leaving: list[Subscriber] = field(default_factory=list)

    def client(self) -> httpx2.Client:
        return self.stack.client(self.owner.key)

    def refill(self, count: int) -> None:
        """While nothing is wrong, bring people onto the list who will leave it."""
        self.leaving += [
            subscribe(self.stack, self.list_id) for _ in range(count - len(self.leaving))
        ]

    def accept(self, client: httpx2.Client) -> None:
        """Have work accepted that the fault will find under way.

        The breaker of the fault before may still be open, for as long as recovery may take.
        """
        until = time.monotonic() + RECOVERED_WITHIN_SECONDS
        files = {"file": ("photo.jpg", photo(320, 240))}
        while True:
            reply = client.post("/attachments", files=files, headers={"Prefer": "respond-async"})
            if reply.status_code != 503 or time.monotonic() > until:
                break
            time.sleep(0.1)
        assert reply.status_code == 202, reply.text

    def lost(self, since: int) -> list[tuple[object, ...]]:
        """What was accepted since the job of this id, and has not ended well in time."""
        until = time.monotonic() + SETTLED_WITHIN_SECONDS
        while self._unfinished(since) and time.monotonic() < until:
            time.sleep(0.1)
        # A payment page that comes too late is of no use to its caller, who has heard so.
        return self.stack.query(
            "SELECT kind, status, error::text FROM jobs"
            " WHERE id > %s AND status <> 'succeeded' AND kind <> 'topup.open'",
            since,
        )

    def last_job(self) -> int:
        return int(str(self.stack.query("SELECT coalesce(max(id), 0) FROM jobs")[0][0]))

    def _unfinished(self, since: int) -> list[tuple[object, ...]]:
        return self.stack.query(
            "SELECT id FROM jobs WHERE id > %s AND status IN ('queued', 'running')", since
        )


@contextmanager
def open_rig(stack: Stack) -> Iterator[Rig]:
    with ExitStack() as opened:
        proxies = _start(stack, opened)
        owner = stack.create_owner()
        credits.grant(stack, owner.user_id, "1000000")
        with stack.client(owner.key) as client:
            list_id = new_list(client)
            confirmed = new_list(client, confirm_required=True)
            files = {"file": ("photo.jpg", photo(320, 240))}
            upload = client.post("/attachments", files=files, headers={"Prefer": "wait=60"})
            path = f"/media/{data(upload)['filename']}"
            # The worker reads its writers' libraries at the first call.
            prefer = {"Prefer": "wait=45"}
            client.post(METADATA, json=post(), headers=prefer).raise_for_status()
        [[job_id]] = stack.query("SELECT max(id) FROM jobs")
        yield Rig(stack, proxies, owner, list_id, confirmed, path, int(str(job_id)))


def _start(stack: Stack, opened: ExitStack) -> dict[str, Proxy]:
    stack.start_sandbox()
    proxies, through = proxy_each_dependency(stack, opened)
    # A limit that no caller reaches, so that calls are counted.
    through["PRESSROOM_RATE_LIMIT_DEFAULT"] = "1000000/minute"
    stack.start_api(None, **through)
    for queues, concurrency in WORKERS.items():
        stack.start_worker(*queues, concurrency=concurrency, **through)
    return proxies
