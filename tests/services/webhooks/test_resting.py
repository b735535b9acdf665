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
    announce_events,
    end_retry_pauses,
    new_endpoint,
    running_receiver,
)

THREAD_COUNT = 2
SILENT_OWNER_COUNT = 6
RESTS_QUERY = "SELECT silences, rests_until > now() FROM webhook_endpoints WHERE id = %s"


@pytest.fixture(scope="module")
def stack(make_stack: Callable[[str], Stack]) -> Stack:
    """A stack whose webhook worker waits only 1.2 seconds for the response of a receiver."""
    stack = make_stack("resting")
    stack.start_api()
    stack.start_worker(
        "webhooks", concurrency=THREAD_COUNT, module="tests.support.probe.impatient_sender"
    )
    return stack


@pytest.fixture
def silent_receiver() -> Iterator[HookReceiver]:
    """A receiver of webhooks that sends no response before the test has ended."""
    test_ended = threading.Event()

    def keep_waiting(_: Hook) -> tuple[int, dict[str, str]]:
        test_ended.wait(120)
        return OK

    with running_receiver() as receiver:
        receiver.answer = keep_waiting
        yield receiver
        test_ended.set()


def wait_until_resting(stack: Stack, endpoint_id: int) -> None:
    """Skip the pauses between retries until Pressroom stops sending events to the endpoint.

    After two calls in a row without a response, Pressroom sends an endpoint no events for at least
    half a minute.
    """

    def is_resting_now() -> bool:
        end_retry_pauses(stack, endpoint_id)
        [(_, is_resting)] = stack.query(RESTS_QUERY, endpoint_id)
        return bool(is_resting)

    eventually(is_resting_now, within=60, what="its rest")


@pytest.mark.tier("faults")
def test_unresponsive_webhook_receivers_block_no_worker_threads_for_other_owners(
    stack: Stack, owner: Owner, client: httpx2.Client, silent_receiver: HookReceiver
) -> None:
    silent_owners = [stack.create_owner() for _ in range(SILENT_OWNER_COUNT)]
    resting_endpoint_ids = []
    for silent_owner in silent_owners:
        with stack.client(silent_owner.key) as silent_client:
            resting_endpoint_ids.append(new_endpoint(silent_client, silent_receiver.url)["id"])
        announce_events(stack, silent_owner, count=5)
    for endpoint_id in resting_endpoint_ids:
        wait_until_resting(stack, endpoint_id)
    call_count = len(silent_receiver.hooks)
    with running_receiver() as receiver:
        new_endpoint(client, receiver.url)
        announce_events(stack, owner, count=3)
        for endpoint_id in resting_endpoint_ids:
            end_retry_pauses(stack, endpoint_id)
        eventually(lambda: len(receiver.hooks) == 3, what="the other owner's events")
    assert len(silent_receiver.hooks) == call_count


def test_resting_webhook_endpoint_is_called_on_request_and_resumes_after_a_response(
    stack: Stack, owner: Owner, client: httpx2.Client, silent_receiver: HookReceiver
) -> None:
    with running_receiver() as receiver:
        endpoint_id = new_endpoint(client, silent_receiver.url)["id"]
        announce_events(stack, owner)
        wait_until_resting(stack, endpoint_id)
        # The receiver may record a call after the caller has timed out.
        eventually(lambda: len(silent_receiver.hooks) >= 2, what="the calls before its rest")
        call_count = len(silent_receiver.hooks)
        assert data(client.get(f"/webhook-endpoints/{endpoint_id}"))["rests_until"] is not None
        # The owner can request a test event even while Pressroom sends the endpoint no other events
        # because of timeouts. The test event shows whether the receiver responds again.
        assert client.post(f"/webhook-endpoints/{endpoint_id}/test").is_success
        eventually(
            lambda: len(silent_receiver.hooks) > call_count,
            what="the call that the owner asked for",
        )
        wait_until_resting(stack, endpoint_id)
        # After timeouts, Pressroom sends an endpoint no events for a while. Changing the endpoint's
        # URL ends this pause immediately, because the new receiver may respond.
        response = client.patch(f"/webhook-endpoints/{endpoint_id}", json={"url": receiver.url})
        assert data(response)["url"] == receiver.url
        eventually(lambda: receiver.hooks, what="the event")
        [(silences, is_resting)] = stack.query(RESTS_QUERY, endpoint_id)
        assert (silences, is_resting) == (0, None)
