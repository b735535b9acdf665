"""Tests that senders get a timely response while the database, Redis or another host hangs."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.proxy import Proxy
from devstack.harness.running import Running
from devstack.harness.stack import Stack
from tests.support.http.replies import data, problem
from tests.support.lists.subscribers import new_address
from tests.support.probe.bench import Bench
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import body_of, post_body, report, signed
from tests.support.senders.provider_posts import new_topic, post_events

pytestmark = pytest.mark.stack

SNS = {"x-amz-sns-message-type": "Notification"}
CALLS = 24
# Amazon SNS waits 15 seconds for a response, and all other mail providers wait even longer.
MAX_SECONDS = 15.0
# A response that doesn't wait for a hanging server takes much less than ``PROMPT_SECONDS``.
PROMPT_SECONDS = 2.0


@pytest.fixture
def intake_client(probes: Bench, api: Running) -> Iterator[httpx2.Client]:
    with probes.stack.client(probes.stack.create_owner().key) as client:
        yield client


def timed(call: Callable[[], httpx2.Response]) -> tuple[httpx2.Response, float]:
    """Return the response to a call, and the duration of the call in seconds."""
    began_at = time.monotonic()
    return call(), time.monotonic() - began_at


def test_reports_are_refused_in_time_while_the_database_hangs(
    intake_client: httpx2.Client, postgres_proxy: Proxy
) -> None:
    sender = new_sender(intake_client)
    body = body_of(report("delivered", email=new_address()))
    headers = signed(sender["secret"], body)

    def post(is_sns: bool) -> tuple[httpx2.Response, float]:
        sns_headers = SNS if is_sns else {}
        return timed(lambda: post_body(intake_client, sender["id"], body, headers | sns_headers))

    assert post(False)[0].status_code == 200
    with postgres_proxy.misbehaving(Proxy.hang), ThreadPoolExecutor(CALLS) as threads:
        replies = list(threads.map(post, [True, False] * (CALLS // 2)))
    for (reply, seconds), is_sns in zip(replies, [True, False] * (CALLS // 2), strict=True):
        problem(reply, 503 if is_sns else 429, "sender.busy")
        assert int(reply.headers["retry-after"]) > 0
        assert seconds < MAX_SECONDS
    eventually(lambda: post(False)[0].status_code == 200, what="the intake works again")


def test_reports_are_accepted_and_rejected_in_time_while_redis_hangs(
    intake_client: httpx2.Client, redis_proxy: Proxy
) -> None:
    sender = new_sender(intake_client)
    body = body_of(report("delivered", email=new_address()))
    headers = signed(sender["secret"], body)
    with redis_proxy.misbehaving(Proxy.hang):
        for _ in range(3):
            reply, seconds = timed(lambda: post_body(intake_client, sender["id"], body, headers))
            assert (reply.status_code, seconds < PROMPT_SECONDS) == (200, True), seconds
            reply, seconds = timed(lambda: post_body(intake_client, sender["id"], body, {}))
            assert (reply.status_code, seconds < MAX_SECONDS) == (401, True), seconds


def test_messages_of_sns_delay_no_other_sender_while_the_certificate_host_hangs(
    stack: Stack, client: httpx2.Client, silent_server_url: str
) -> None:
    sender = new_sender(client)
    body = body_of(report("delivered", email=new_address()))
    topics = [new_topic() for _ in range(4)]
    ses_senders = [
        {**new_sender(client, provider="ses", topic_arn=topic), "topic_arn": topic}
        for topic in topics
    ]
    with (
        stack.run_second_api(PRESSROOM_SNS_BASE_URL=f"http://{silent_server_url}") as api,
        api.client() as other_client,
        ThreadPoolExecutor(CALLS) as threads,
    ):

        def post_message(ses_sender: dict[str, Any]) -> tuple[list[int], float]:
            url = f"{api.api_url}/senders/{ses_sender['id']}/events"
            began_at = time.monotonic()
            statuses = post_events(api, ses_sender, [{"kind": "delivered"}], url=url)
            return statuses, time.monotonic() - began_at

        def post_report() -> httpx2.Response:
            headers = signed(sender["secret"], body)
            return post_body(other_client, sender["id"], body, headers)

        messages = [threads.submit(post_message, each) for each in ses_senders * (CALLS // 4)]
        while not all(each.done() for each in messages):
            reply, seconds = timed(post_report)
            assert (data(reply), seconds < PROMPT_SECONDS) == (1, True), seconds
        for message in messages:
            statuses, seconds = message.result()
            assert (statuses, seconds < MAX_SECONDS) == ([503], True), seconds
