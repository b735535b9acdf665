import threading
from collections.abc import Callable, Iterator

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from tests.support.http.replies import data
from tests.support.http.webhook_receiver import (
    OK,
    Hook,
    HookReceiver,
    happen,
    hooked,
    let_pauses_pass,
    new_endpoint,
)

THREADS, HANGING_OWNERS = 2, 6
RESTS = "SELECT silences, rests_until > now() FROM webhook_endpoints WHERE id = %s"


@pytest.fixture(scope="module")
def stack(make_stack: Callable[[str], Stack]) -> Stack:
    """A stack whose webhook worker waits only 1.2 seconds for the response of a receiver."""
    stack = make_stack("resting")
    stack.start_api()
    stack.start_worker(
        "webhooks", concurrency=THREADS, module="tests.support.probe.impatient_sender"
    )
    return stack


@pytest.fixture
def silent_receiver() -> Iterator[HookReceiver]:
    """A receiver of webhooks that sends no response before the test has ended."""
    over = threading.Event()

    def keep_waiting(_: Hook) -> tuple[int, dict[str, str]]:
        over.wait(120)
        return OK

    with hooked() as receiver:
        receiver.answer = keep_waiting
        yield receiver
        over.set()


def let_rest(stack: Stack, endpoint_id: int) -> None:
    """Have the endpoint's pauses pass until two calls in a row were in vain."""

    def rests() -> bool:
        let_pauses_pass(stack, endpoint_id)
        [(_, is_resting)] = stack.query(RESTS, endpoint_id)
        return bool(is_resting)

    eventually(rests, within=60, what="its rest")


@pytest.mark.tier("faults")
def test_unresponsive_webhook_receivers_block_no_worker_threads_for_other_owners(
    stack: Stack, owner: Owner, client: httpx2.Client, silent_receiver: HookReceiver
) -> None:
    crowd = [stack.create_owner() for _ in range(HANGING_OWNERS)]
    resting = []
    for each in crowd:
        with stack.client(each.key) as theirs:
            resting.append(new_endpoint(theirs, silent_receiver.url)["id"])
        happen(stack, each, count=5)
    for endpoint_id in resting:
        let_rest(stack, endpoint_id)
    called = len(silent_receiver.hooks)
    with hooked() as receiver:
        new_endpoint(client, receiver.url)
        happen(stack, owner, count=3)
        for endpoint_id in resting:
            let_pauses_pass(stack, endpoint_id)
        eventually(lambda: len(receiver.hooks) == 3, what="the other owner's events")
    assert len(silent_receiver.hooks) == called


def test_resting_webhook_endpoint_is_called_on_request_and_resumes_after_a_response(
    stack: Stack, owner: Owner, client: httpx2.Client, silent_receiver: HookReceiver
) -> None:
    with hooked() as receiver:
        endpoint_id = new_endpoint(client, silent_receiver.url)["id"]
        happen(stack, owner)
        let_rest(stack, endpoint_id)
        # The receiver may note a call after its caller has given it up.
        eventually(lambda: len(silent_receiver.hooks) >= 2, what="the calls before its rest")
        called = len(silent_receiver.hooks)
        assert data(client.get(f"/webhook-endpoints/{endpoint_id}"))["rests_until"] is not None
        # One more call, since its receiver may answer now.
        assert client.post(f"/webhook-endpoints/{endpoint_id}/test").is_success
        eventually(
            lambda: len(silent_receiver.hooks) > called, what="the call that the owner asked for"
        )
        let_rest(stack, endpoint_id)
        # Another receiver has nothing to do with it.
        changed = client.patch(f"/webhook-endpoints/{endpoint_id}", json={"url": receiver.url})
        assert data(changed)["url"] == receiver.url
        eventually(lambda: receiver.hooks, what="the event")
        [(silences, is_resting)] = stack.query(RESTS, endpoint_id)
        assert (silences, is_resting) == (0, None)
