"""A queue in which messages wait for long takes no more, and says so before anything is stored."""

from collections.abc import Callable, Iterator

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from tests.support.images.pictures import photo
from tests.support.lists.subscribers import new_list

CANARIES = "pressroom:canaries"


@pytest.fixture(scope="module")
def idle(make_stack: Callable[[str], Stack]) -> Stack:
    """Without workers: what a test says of the queues stays."""
    stack = make_stack("queue-ages")
    stack.start_sandbox()
    stack.start_api()
    return stack


@pytest.fixture
def caller(idle: Stack) -> Iterator[httpx2.Client]:
    with idle.client(idle.new_owner().key) as client:
        yield client
    idle.resources.redis.delete(CANARIES)


def make_older(stack: Stack, queue: str, seconds: float) -> None:
    """As if the queue's canary had been under way for so long."""
    redis = stack.resources.redis
    now, _ = redis.time()
    redis.hset(CANARIES, f"{queue}:waiting", str(now - seconds))


def upload(caller: httpx2.Client, prefer: str) -> httpx2.Response:
    return caller.post(
        "/attachments", files={"file": ("a.jpg", photo())}, headers={"Prefer": prefer}
    )


def is_error(send: Callable[[], httpx2.Response]) -> bool:
    reply = send()
    if reply.status_code != 503:
        return False
    assert reply.json()["code"] == "queue.overloaded"
    assert 31 <= int(reply.headers["Retry-After"]) <= 60
    return True


def test_upload_that_would_wait_too_long_is_refused_and_leaves_nothing(
    idle: Stack, caller: httpx2.Client
) -> None:
    make_older(idle, "media", 40)
    eventually(lambda: is_error(lambda: upload(caller, "wait=1")), what="an error")
    before = idle.query("SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM attachments)")
    assert is_error(lambda: upload(caller, "wait=1"))
    after = idle.query("SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM attachments)")
    assert after == before
    # Who does not wait may be served late, and another queue is not the fault of this one.
    assert upload(caller, "respond-async").status_code == 202
    list_id = new_list(caller)["id"]
    path = f"/auxilia/subscriptions/{list_id}/members/add"
    assert caller.post(path, json=[], headers={"Prefer": "wait=1"}).status_code != 503


def test_queue_that_stands_still_takes_nothing(idle: Stack, caller: httpx2.Client) -> None:
    make_older(idle, "media", 700)
    eventually(lambda: is_error(lambda: upload(caller, "respond-async")), what="an error")


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
def test_every_call_that_waits_in_a_queue_asks_how_old_it_is(
    idle: Stack, caller: httpx2.Client, queue: str, path: str, body: object
) -> None:
    path = path.format(list_id=new_list(caller)["id"])
    make_older(idle, queue, 40)

    def send() -> httpx2.Response:
        return caller.post(path, json=body, headers={"Prefer": "wait=1"})

    eventually(lambda: is_error(send), what="an error")
    idle.resources.redis.delete(CANARIES)
    eventually(lambda: not is_error(send), what="the end of the errors")
