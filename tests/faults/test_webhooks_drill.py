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
from tests.support.clients.javascript_client import FOLDER, node
from tests.support.http.replies import data
from tests.support.http.webhook_receiver import (
    OK,
    Answer,
    Hook,
    event_ids,
    hooked,
    let_pauses_pass,
    new_endpoint,
)
from tests.support.imports.bulk import imported, of_addresses
from tests.support.lists.subscribers import new_list
from tests.support.sizes import sized

SEED = 20_261_121
CHANGES = sized(60, 10_000)
WRITERS = 3
LEAST_KILLS = sized(4, 100)
# A process takes some seconds to start: in the full form most of the time all are there.
BETWEEN_KILLS_SECONDS = (sized(300, 1_000) / 1000, sized(1_200, 5_000) / 1000)
MAX_SECONDS = sized(100, 3_600)
# In the long form an endpoint falls behind between, and then sends what comes after a failure.
BETWEEN_PASSES_SECONDS = sized(500, 20_000) / 1000
CHANGED = FeedEventType.SUBSCRIPTION_CHANGED


class Fate:
    """Kills processes at random, each of which is started anew."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._dice = random.Random(SEED)
        self.kills = self._received = 0
        self._api = stack.start_api()
        self._workers = [self._worker() for _ in range(2)]

    def strike(self, received: int) -> None:
        """Kill one that works: on a slow machine a start takes longer than the time between two."""
        match self._dice.randrange(5):
            case 0 if is_responding(self._stack.api_port, "/healthz"):
                self._api.kill()
                port = str(self._stack.api_port)
                self._api = self._stack.start("api", "serve", "--port", port)
            case 1:
                # What Redis holds is not dear.
                self._stack.resources.redis.flushdb()
            case 2 | 3 | 4 if received > self._received:
                self._received = received
                place = self._dice.randrange(len(self._workers))
                self._workers[place].kill()
                self._workers[place] = self._worker()
            case _:
                return
        self.kills += 1

    def rest(self) -> float:
        return self._dice.uniform(*BETWEEN_KILLS_SECONDS)

    def end(self) -> None:
        eventually(
            lambda: is_responding(self._stack.api_port, "/healthz"),
            what="the API's return",
            within=60,
        )

    def stop(self) -> None:
        for running in (self._api, *self._workers):
            running.kill()

    def _worker(self) -> Running:
        words = ("worker", "--queue", "webhooks", "--concurrency", "2")
        return self._stack.start("worker-webhooks", *words)


@pytest.fixture
def random_kills(empty_stack: Stack) -> Iterator[Fate]:
    fate = Fate(empty_stack)
    yield fate
    fate.stop()


def test_webhook_receiver_gets_exactly_the_published_events_despite_kills_and_errors(
    empty_stack: Stack, random_kills: Fate
) -> None:
    owner, enough = empty_stack.create_owner(), threading.Event()
    random_kills.end()
    dice, lock = random.Random(SEED), threading.Lock()

    def often_bad(hook: Hook) -> Answer:
        verifiers.see(hook)
        with lock:
            return (500, {}) if dice.random() < 1 / 3 else OK

    with hooked() as receiver, empty_stack.client(owner.key) as client:
        receiver.answer = often_bad
        paths = _members(empty_stack, client)
        endpoint = new_endpoint(client, receiver.url, CHANGED)
        verifiers = Verifiers(endpoint["secret"])
        writers = [
            threading.Thread(
                target=_change, args=(empty_stack, owner, path, number, enough), daemon=True
            )
            for number, path in enumerate(paths)
        ]
        for writer in writers:
            writer.start()
        began = time.monotonic()
        ends_by, passed = began + MAX_SECONDS, began
        while any(writer.is_alive() for writer in writers):
            random_kills.strike(len(receiver.hooks))
            if time.monotonic() > passed + BETWEEN_PASSES_SECONDS:
                let_pauses_pass(empty_stack, endpoint["id"])
                passed = time.monotonic()
            time.sleep(random_kills.rest())
            if random_kills.kills >= LEAST_KILLS:
                enough.set()
            assert time.monotonic() < ends_by
        random_kills.end()
        _settle(empty_stack, owner, endpoint["id"], ends_by)
        expected = event_ids(empty_stack, owner, CHANGED)
        assert len(expected) >= CHANGES
        assert set(receiver.ids) == set(expected)
        verifiers.end()


def _members(stack: Stack, client: httpx2.Client) -> list[str]:
    """The paths of some members of a list."""
    list_id = new_list(client)["id"]
    worker = stack.start_worker("bulk", concurrency=1)
    addresses = [f"member{number}.{list_id}@example.com" for number in range(WRITERS)]
    imported(client, list_id, of_addresses(*addresses))
    worker.kill()
    rows = stack.query("SELECT user_id FROM subscriptions WHERE list_id = %s", list_id)
    return [f"/lists/{list_id}/members/{user_id}" for (user_id,) in rows]


def _change(stack: Stack, owner: Owner, path: str, number: int, enough: threading.Event) -> None:
    """Changes by one caller, who asks again where the API was killed meanwhile.

    However quick the machine is, they go on until enough processes were killed.
    """
    made = 0
    with stack.client(owner.key) as client:
        while made * WRITERS < CHANGES or not enough.is_set():
            with suppress(httpx2.HTTPError):
                reply = client.patch(path, json={"name": f"Name {number} {made}"})
                made += reply.status_code == 200
            time.sleep(0.05)


def _settle(stack: Stack, owner: Owner, endpoint_id: int, ends_by: float) -> None:
    """Until each event was answered well; the pauses between tries are cut short."""
    done = "SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = %s AND status = 'delivered'"
    while stack.query(done, endpoint_id) != [(len(event_ids(stack, owner, CHANGED)),)]:
        let_pauses_pass(stack, endpoint_id)
        time.sleep(BETWEEN_PASSES_SECONDS)
        assert time.monotonic() < ends_by, "not all events were delivered"


class Verifiers:
    """Both libraries of Standard Webhooks, which believe no message older than five minutes.

    So each request is verified as it comes.
    """

    def __init__(self, secret: str) -> None:
        self.errors: list[Exception] = []
        self._secret, self._lock, self._count = secret, threading.Lock(), 0
        self._node = subprocess.Popen(
            [node(), "hooks.mjs"],
            cwd=FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def see(self, hook: Hook) -> None:
        whole = {"secret": self._secret, "headers": hook.headers, "body": hook.body.decode()}
        with self._lock:
            self._count += 1
            try:
                hook.check(self._secret)
                assert self._node.stdin is not None
                self._node.stdin.write(json.dumps(whole) + "\n")
                self._node.stdin.flush()
            except (WebhookVerificationError, OSError) as error:
                self.errors.append(error)

    def end(self) -> None:
        with self._lock:
            told, complaints = self._node.communicate(timeout=60)
        assert self._node.returncode == 0, complaints
        assert not self.errors
        assert json.loads(told) == {"verified": self._count}


def test_webhook_event_is_sent_again_after_killed_worker(empty_stack: Stack) -> None:
    """A worker is killed between the call and what it would have written of the answer."""
    owner = empty_stack.create_owner()
    api, worker = empty_stack.start_api(), empty_stack.start_worker("webhooks")

    def kill(hook: Hook) -> Answer:
        if len(receiver.hooks) == 1:
            worker.kill()
        return OK

    with hooked() as receiver, empty_stack.client(owner.key) as client:
        receiver.answer = kill
        endpoint = new_endpoint(client, receiver.url, FeedEventType.KEY_CREATED)
        data(client.post("/apikeys", json={"name": "an event"}))
        eventually(lambda: receiver.hooks, what="the first try")
        successor = empty_stack.start_worker("webhooks")
        eventually(lambda: len(receiver.hooks) == 2, what="the second try", within=40)
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
            what="both tries in the row",
        )
    for running in (api, successor):
        running.kill()


def test_webhook_listener_continues_after_api_restart(empty_stack: Stack) -> None:
    owner, secret = empty_stack.create_owner(), "whsec_" + base64.b64encode(bytes(32)).decode()
    api = empty_stack.start_api()
    with hooked() as receiver, empty_stack.client(owner.key) as client:
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
