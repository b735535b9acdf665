"""Tests that calls for a slow queue are rejected before anything is stored."""

from collections.abc import Callable, Iterator

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from tests.support.images.pictures import photo
from tests.support.lists.subscribers import new_list

CANARIES_KEY = "pressroom:canaries"


@pytest.fixture(scope="module")
def idle_stack(make_stack: Callable[[str], Stack]) -> Stack:
    """A test stack without workers, because workers would change the queue ages that tests set."""
    stack = make_stack("queue-ages")
    stack.start_sandbox()
    stack.start_api()
    return stack


@pytest.fixture
def queue_client(idle_stack: Stack) -> Iterator[httpx2.Client]:
    """An HTTP client with the API key of a new owner.

    After the test, the fixture deletes all queue ages from Redis.
    """
    with idle_stack.client(idle_stack.create_owner().key) as client:
        yield client
    idle_stack.resources.redis.delete(CANARIES_KEY)


def set_queue_age(stack: Stack, queue: str, seconds: float) -> None:
    """Make the API believe that a message has waited in the queue for ``seconds``."""
    redis = stack.resources.redis
    now, _ = redis.time()
    redis.hset(CANARIES_KEY, f"{queue}:waiting", str(now - seconds))


def upload(queue_client: httpx2.Client, prefer: str) -> httpx2.Response:
    return queue_client.post(
        "/attachments", files={"file": ("a.jpg", photo())}, headers={"Prefer": prefer}
    )


def is_rejected(send: Callable[[], httpx2.Response]) -> bool:
    reply = send()
    if reply.status_code != 503:
        return False
    assert reply.json()["code"] == "queue.overloaded"
    assert 31 <= int(reply.headers["Retry-After"]) <= 60
    return True


def test_upload_that_would_wait_too_long_is_rejected_before_anything_is_stored(
    idle_stack: Stack, queue_client: httpx2.Client
) -> None:
    set_queue_age(idle_stack, "media", 40)
    eventually(lambda: is_rejected(lambda: upload(queue_client, "wait=1")), what="an error")
    counts_before = idle_stack.query(
        "SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM attachments)"
    )
    assert is_rejected(lambda: upload(queue_client, "wait=1"))
    counts_after = idle_stack.query(
        "SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM attachments)"
    )
    assert counts_after == counts_before
    # While the queue for uploads is slow, the API accepts uploads that don't wait for a result, and
    # calls whose jobs run in another queue.
    assert upload(queue_client, "respond-async").status_code == 202
    list_id = new_list(queue_client)["id"]
    path = f"/auxilia/subscriptions/{list_id}/members/add"
    assert queue_client.post(path, json=[], headers={"Prefer": "wait=1"}).status_code != 503


def test_stalled_queue_rejects_even_uploads_that_do_not_wait(
    idle_stack: Stack, queue_client: httpx2.Client
) -> None:
    set_queue_age(idle_stack, "media", 700)
    eventually(lambda: is_rejected(lambda: upload(queue_client, "respond-async")), what="an error")


@pytest.mark.parametrize(
    ("queue", "path", "body"),
    [
        ("bulk", "/auxilia/subscriptions/{list_id}/members/add", [{"email": "a@example.com"}]),
        ("export", "/lists/{list_id}/exports", {"kind": "members"}),
        (
            "money",
            "/auxilia/credits/topup",
            {"credit_amount": 100, "currency": "USD", "redirect_url": "http://127.0.0.1/"},
        ),
    ],
)
def test_calls_that_wait_for_a_slow_queue_are_rejected_until_the_queue_recovers(
    idle_stack: Stack, queue_client: httpx2.Client, queue: str, path: str, body: object
) -> None:
    path = path.format(list_id=new_list(queue_client)["id"])
    set_queue_age(idle_stack, queue, 40)

    def send() -> httpx2.Response:
        return queue_client.post(path, json=body, headers={"Prefer": "wait=1"})

    eventually(lambda: is_rejected(send), what="an error")
    idle_stack.resources.redis.delete(CANARIES_KEY)
    eventually(lambda: not is_rejected(send), what="the end of the errors")
