import base64
import json
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx2
import pytest
from standardwebhooks import WebhookVerificationError

from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Owner, Stack
from devstack.supervisor.programs import is_responding
from services.feed.catalogue import FeedEventType
from tests.support.clients.javascript_client import JAVASCRIPT_FOLDER, find_node
from tests.support.http.replies import data
from tests.support.http.webhook_receiver import (
    OK,
    Answer,
    Hook,
    end_retry_pauses,
    event_ids,
    new_endpoint,
    running_receiver,
)
from tests.support.imports.bulk import build_address_file, import_members_file
from tests.support.lists.subscribers import new_list
from tests.support.sizes import sized

SEED = 20_261_121
EVENT_COUNT = sized(60, 10_000)
WRITERS = 3
MIN_KILLS = sized(4, 100)
# A process takes some seconds to start. With `SIZE=full`, the pauses between kills are so long that
# all processes run most of the time.
BETWEEN_KILLS_SECONDS = (sized(300, 1_000) / 1000, sized(1_200, 5_000) / 1000)
MAX_SECONDS = sized(100, 3_600)
# After a failed delivery, Pressroom pauses before the next attempt. The test regularly ends all
# pauses between delivery attempts early. With `SIZE=full`, the test does so only every 20 seconds,
# so that many events wait for the end of a pause.
BETWEEN_PASSES_SECONDS = sized(500, 20_000) / 1000
EVENT_TYPE = FeedEventType.SUBSCRIPTION_CHANGED


class RandomKills:
    """Kills random processes of a test stack, and restarts each of them."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._dice = random.Random(SEED)
        self.kills = self._received = 0
        self._api = stack.start_api()
        self._workers = [self._start_worker() for _ in range(2)]

    def kill_random_process(self, received: int) -> None:
        """Kill the API or a worker, or flush Redis.

        Kill no process that is still starting, because on a slow machine a start takes longer than
        the pause between two kills.

        ``received``: the number of webhooks that the receiver has received.
        """
        match self._dice.randrange(5):
            case 0 if is_responding(self._stack.api_port, "/healthz"):
                self._api.kill()
                port = str(self._stack.api_port)
                self._api = self._stack.start("api", "serve", "--port", port)
            case 1:
                # Pressroom must continue without the data in Redis.
                self._stack.resources.redis.flushdb()
            case 2 | 3 | 4 if received > self._received:
                self._received = received
                worker_number = self._dice.randrange(len(self._workers))
                self._workers[worker_number].kill()
                self._workers[worker_number] = self._start_worker()
            case _:
                return
        self.kills += 1

    def draw_pause_seconds(self) -> float:
        return self._dice.uniform(*BETWEEN_KILLS_SECONDS)

    def await_api(self) -> None:
        eventually(
            lambda: is_responding(self._stack.api_port, "/healthz"),
            what="the API's return",
            within=60,
        )

    def stop(self) -> None:
        for running in (self._api, *self._workers):
            running.kill()

    def _start_worker(self) -> Running:
        words = ("worker", "--queue", "webhooks", "--concurrency", "2")
        return self._stack.start("worker-webhooks", *words)


@pytest.fixture
def random_kills(empty_stack: Stack) -> Iterator[RandomKills]:
    created_kills = RandomKills(empty_stack)
    yield created_kills
    created_kills.stop()


def test_webhook_receiver_gets_exactly_the_published_events_despite_kills_and_errors(
    empty_stack: Stack, random_kills: RandomKills
) -> None:
    owner = empty_stack.create_owner()
    killed_enough = threading.Event()
    random_kills.await_api()
    dice = random.Random(SEED)
    lock = threading.Lock()

    def fail_often(hook: Hook) -> Answer:
        verifiers.verify(hook)
        with lock:
            return (500, {}) if dice.random() < 1 / 3 else OK

    with running_receiver() as receiver, empty_stack.client(owner.key) as client:
        receiver.answer = fail_often
        paths = _add_members(empty_stack, client)
        endpoint = new_endpoint(client, receiver.url, EVENT_TYPE)
        verifiers = Verifiers(endpoint["secret"])
        writers = [
            threading.Thread(
                target=_rename_member,
                args=(empty_stack, owner, path, number, killed_enough),
                daemon=True,
            )
            for number, path in enumerate(paths)
        ]
        for writer in writers:
            writer.start()
        began_at = time.monotonic()
        ends_by = began_at + MAX_SECONDS
        passed_at = began_at
        while any(writer.is_alive() for writer in writers):
            random_kills.kill_random_process(len(receiver.hooks))
            if time.monotonic() > passed_at + BETWEEN_PASSES_SECONDS:
                end_retry_pauses(empty_stack, endpoint["id"])
                passed_at = time.monotonic()
            time.sleep(random_kills.draw_pause_seconds())
            if random_kills.kills >= MIN_KILLS:
                killed_enough.set()
            assert time.monotonic() < ends_by
        random_kills.await_api()
        _await_all_deliveries(empty_stack, owner, endpoint["id"], ends_by)
        expected = event_ids(empty_stack, owner, EVENT_TYPE)
        assert len(expected) >= EVENT_COUNT
        assert set(receiver.ids) == set(expected)
        verifiers.require_no_errors()


def _add_members(stack: Stack, client: httpx2.Client) -> list[str]:
    """Create a list with one member per writer thread, and return the members' API paths."""
    list_id = new_list(client)["id"]
    worker = stack.start_worker("bulk", concurrency=1)
    addresses = [f"member{number}.{list_id}@example.com" for number in range(WRITERS)]
    import_members_file(client, list_id, build_address_file(*addresses))
    worker.kill()
    rows = stack.query("SELECT user_id FROM subscriptions WHERE list_id = %s", list_id)
    return [f"/lists/{list_id}/members/{user_id}" for (user_id,) in rows]


def _rename_member(
    stack: Stack, owner: Owner, path: str, number: int, killed_enough: threading.Event
) -> None:
    """Rename a member again and again. Repeat a call that fails because the API was killed.

    If all changes are made before the test has killed enough processes, make more changes.
    """
    change_count = 0
    with stack.client(owner.key) as client:
        while change_count * WRITERS < EVENT_COUNT or not killed_enough.is_set():
            with suppress(httpx2.HTTPError):
                reply = client.patch(path, json={"name": f"Name {number} {change_count}"})
                change_count += reply.status_code == 200
            time.sleep(0.05)


def _await_all_deliveries(stack: Stack, owner: Owner, endpoint_id: int, ends_by: float) -> None:
    """Wait until each event is delivered. End the pauses between delivery attempts early."""
    delivered = (
        "SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = %s AND status = 'delivered'"
    )
    while stack.query(delivered, endpoint_id) != [(len(event_ids(stack, owner, EVENT_TYPE)),)]:
        end_retry_pauses(stack, endpoint_id)
        time.sleep(BETWEEN_PASSES_SECONDS)
        assert time.monotonic() < ends_by, "not all events were delivered"


class Verifiers:
    """Verify webhooks with the Python and the JavaScript library of Standard Webhooks.

    Verify each webhook as soon as it arrives, because the libraries reject webhooks that are older
    than five minutes.
    """

    def __init__(self, secret: str) -> None:
        self.errors: list[Exception] = []
        self._secret = secret
        self._lock = threading.Lock()
        self._count = 0
        self._node = subprocess.Popen(
            [find_node(), "hooks.mjs"],
            cwd=JAVASCRIPT_FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def verify(self, hook: Hook) -> None:
        request = {"secret": self._secret, "headers": hook.headers, "body": hook.body.decode()}
        with self._lock:
            self._count += 1
            try:
                hook.check(self._secret)
                assert self._node.stdin is not None
                self._node.stdin.write(json.dumps(request) + "\n")
                self._node.stdin.flush()
            except (WebhookVerificationError, OSError) as error:
                self.errors.append(error)

    def require_no_errors(self) -> None:
        with self._lock:
            output, error_output = self._node.communicate()
        assert self._node.returncode == 0, error_output
        assert not self.errors
        assert json.loads(output) == {"verified": self._count}


def test_webhook_event_is_sent_again_after_killed_worker(empty_stack: Stack) -> None:
    """The worker is killed after it sent the webhook, and before it recorded the response."""
    owner = empty_stack.create_owner()
    api = empty_stack.start_api()
    worker = empty_stack.start_worker("webhooks")

    def kill(hook: Hook) -> Answer:
        if len(receiver.hooks) == 1:
            worker.kill()
        return OK

    with running_receiver() as receiver, empty_stack.client(owner.key) as client:
        receiver.answer = kill
        endpoint = new_endpoint(client, receiver.url, FeedEventType.KEY_CREATED)
        data(client.post("/apikeys", json={"name": "an event"}))
        eventually(lambda: receiver.hooks, what="the first attempt")
        successor = empty_stack.start_worker("webhooks")
        eventually(lambda: len(receiver.hooks) == 2, what="the second attempt", within=40)
        first, second = receiver.hooks
        assert first.id == second.id
        second.check(endpoint["secret"])
        eventually(
            lambda: (
                empty_stack.query(
                    "SELECT attempts FROM webhook_deliveries"
                    " WHERE endpoint_id = %s AND status = 'delivered'",
                    endpoint["id"],
                )
                == [(2,)]
            ),
            what="both delivery attempts in the database",
        )
    for running in (api, successor):
        running.kill()


def test_webhook_listener_continues_after_api_restart(empty_stack: Stack) -> None:
    owner = empty_stack.create_owner()
    secret = "whsec_" + base64.b64encode(bytes(32)).decode()
    api = empty_stack.start_api()
    with running_receiver() as receiver, empty_stack.client(owner.key) as client:
        listener = empty_stack.start(
            "listener",
            *("listen", "--forward-to", receiver.url, "--key", owner.key, "--secret", secret),
            *("--api", empty_stack.api_url),
        )
        eventually(lambda: "Forwarding events to" in listener.log.read_text(), what="the listener")
        data(client.post("/apikeys", json={"name": "first"}))
        eventually(lambda: len(receiver.hooks) == 1, what="the first event")
        api.kill()
        api = empty_stack.start_api()
        data(client.post("/apikeys", json={"name": "second"}))
        eventually(lambda: len(receiver.hooks) == 2, what="the second event")
        assert len(set(receiver.ids)) == 2
        for hook in receiver.hooks:
            hook.check(secret)
    for running in (api, listener):
        running.kill()
