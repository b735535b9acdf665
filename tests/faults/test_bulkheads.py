"""Tests that calls aren't delayed by a hanging service or a locked list that they don't use."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx2
import psycopg2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from tests.support.http.replies import data
from tests.support.images.pictures import photo
from tests.support.lists.people_on_lists import new_list, subscribe
from tests.support.probe.bench import Bench
from tests.support.stack.fleet import Fleet

UPLOAD_COUNT = 24
SUBSCRIBER_COUNT = 60
# How many seconds more than usual a call may take while a service hangs. A call that waits for the
# hanging service takes many seconds more than ``PROMPT_SECONDS``.
PROMPT_SECONDS = 2.0


@pytest.fixture
def start_api(probes: Bench, fleet: Fleet) -> Callable[..., Stack]:
    def start(**environment: str) -> Stack:
        fleet.end()
        probes.stack.start_api(None, **environment)
        return probes.stack

    return start


class PromptCaller:
    """Makes API calls, and checks that each call ends promptly although a service hangs."""

    def __init__(self, usual: Callable[[], httpx2.Response]) -> None:
        """Call ``usual`` three times, to measure how long this call takes on this machine."""
        self._max_seconds = PROMPT_SECONDS + 5 * max(self._timed(usual)[0] for _ in range(3))

    def __call__(self, call: Callable[[], httpx2.Response]) -> httpx2.Response:
        seconds, reply = self._timed(call)
        assert seconds < self._max_seconds, reply.request.url
        return reply

    def _timed(self, call: Callable[[], httpx2.Response]) -> tuple[float, httpx2.Response]:
        began_at = time.monotonic()
        reply = call()
        return time.monotonic() - began_at, reply


def _await_readiness(client: httpx2.Client) -> None:
    """Wait until the API is ready.

    On a busy machine, the first connection to the database takes longer than `/readyz` waits.
    """
    eventually(lambda: client.get("/readyz").status_code == 200, what="the process is ready")


def test_uploads_to_a_hanging_object_store_delay_no_other_call(
    start_api: Callable[..., Stack], silent_server_url: str
) -> None:
    stack = start_api(PRESSROOM_S3_ENDPOINT=f"http://{silent_server_url}")
    owner = stack.create_owner()
    metrics = {"Authorization": f"Bearer {stack.environment['PRESSROOM_METRICS_TOKEN']}"}
    with ThreadPoolExecutor(UPLOAD_COUNT) as threads, stack.client(owner.key) as client:
        _await_readiness(client)
        promptly = PromptCaller(lambda: client.get("/lists"))
        uploads = [threads.submit(_upload, stack, owner) for _ in range(UPLOAD_COUNT)]
        time.sleep(0.3)
        for _ in range(10):
            assert promptly(lambda: client.get("/auxilia/credits/balance")).status_code == 200
            charge = promptly(
                lambda: client.post(
                    "/auxilia/credits/consume", json={"amount_credit": 1, "source_id": "x"}
                )
            )
            assert charge.json()["code"] == "credits.insufficient"
            assert promptly(lambda: client.get("/lists")).status_code == 200
            ready = promptly(lambda: client.get("/readyz"))
            assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
            assert ready.json()["dependencies"]["objects"] == "unavailable"
            assert promptly(lambda: client.get("/metrics", headers=metrics)).status_code == 200
        assert not any(each.done() and each.result() == 200 for each in uploads)


def _upload(stack: Stack, owner: Owner, *, wait: int = 8) -> int:
    files = {"file": ("photo.jpg", photo(64, 48))}
    prefer = {"Prefer": f"wait={wait}"}
    with stack.client(owner.key) as client:
        try:
            reply = client.post("/attachments", files=files, headers=prefer, timeout=wait)
        except httpx2.TimeoutException:
            return 0
        return reply.status_code


def test_locked_list_delays_no_other_list_and_no_unsubscribe(
    start_api: Callable[..., Stack],
) -> None:
    stack = start_api()
    owner = stack.create_owner()
    other_owner = stack.create_owner()
    with stack.client(owner.key) as client, stack.client(other_owner.key) as other_client:
        list_id = new_list(client)
        other_list_id = new_list(other_client)
        api_leaver = subscribe(stack, list_id)
        page_leaver = subscribe(stack, list_id)
        promptly = PromptCaller(lambda: other_client.get("/auxilia/credits/balance"))
        locker = psycopg2.connect(stack.owner_url)
        locker.cursor().execute("SELECT pg_advisory_xact_lock(%s)", (list_id,))
        with ThreadPoolExecutor(SUBSCRIBER_COUNT) as threads:
            subscription_calls = [
                threads.submit(_subscribe, stack, list_id) for _ in range(SUBSCRIBER_COUNT)
            ]
            time.sleep(0.2)
            for _ in range(5):
                assert (
                    promptly(lambda: other_client.get("/auxilia/credits/balance")).status_code
                    == 200
                )
            body = {"email": f"{time.time_ns()}@example.com"}
            assert (
                promptly(
                    lambda: other_client.post(f"/subscriptions/{other_list_id}", json=body)
                ).status_code
                == 200
            )
            trace = {"trace_id": api_leaver.trace_id}
            with stack.client() as stranger:
                reply = promptly(lambda: stranger.delete(f"/subscriptions/{list_id}", params=trace))
                assert data(reply) == 1
                preferences = data(stranger.get("/subscriptions/opponent", params=trace))
                assert preferences["sub"]["status"] == "unsubscribed"
                assert api_leaver.read_status() == ("active", True), (
                    "the record itself is still locked"
                )
                page = promptly(lambda: stranger.get(api_leaver.unsubscribe_url))
                assert "left" in page.text
                trace = {"trace_id": page_leaver.trace_id}
                reply = promptly(
                    lambda: stranger.post(f"/subscriptions/{list_id}/delete", params=trace)
                )
                assert data(reply) == 1
            refusals = [each.result() for each in subscription_calls]
        assert {reply.status_code for reply in refusals} == {503}
        assert {reply.json()["code"] for reply in refusals} == {"list.busy"}
        assert all(reply.headers["retry-after"] == "1" for reply in refusals)
        locker.close()
        stack.start_worker("maintenance", concurrency=1)
        eventually(
            lambda: api_leaver.read_status() == ("unsubscribed", True),
            what="the first record's update",
        )
        eventually(
            lambda: page_leaver.read_status() == ("active", False), what="the other record's update"
        )


def _subscribe(stack: Stack, list_id: int) -> httpx2.Response:
    body = {"email": f"joins.{time.time_ns()}@example.com"}
    with stack.client() as stranger:
        return stranger.post(f"/subscriptions/{list_id}", json=body)


def test_process_without_redis_is_ready_but_degraded(
    start_api: Callable[..., Stack], silent_server_url: str
) -> None:
    stack = start_api(PRESSROOM_REDIS_URL=f"redis://{silent_server_url}/0")
    with stack.client() as client:
        _await_readiness(client)
        promptly = PromptCaller(lambda: client.get("/healthz"))
        for _ in range(3):
            reply = promptly(lambda: client.get("/readyz"))
            assert reply.status_code == 200
            available = {"database": "ok", "objects": "ok"}
            unavailable = {"redis": "unavailable", "broker": "unavailable"}
            assert reply.json() == {"status": "degraded", "dependencies": available | unavailable}


def test_process_without_database_is_not_ready(
    start_api: Callable[..., Stack], silent_server_url: str
) -> None:
    stack = start_api(PRESSROOM_DATABASE_URL=f"postgresql+psycopg2://x:x@{silent_server_url}/x")
    with stack.client() as client:
        promptly = PromptCaller(lambda: client.get("/healthz"))
        for _ in range(3):
            reply = promptly(lambda: client.get("/readyz"))
            assert (reply.status_code, reply.json()["status"]) == (503, "unavailable")
            assert reply.json()["dependencies"]["database"] == "unavailable"


def test_process_is_ready_with_its_own_or_newer_schema_but_not_with_older(
    start_api: Callable[..., Stack],
) -> None:
    stack = start_api()
    [(own_revision,)] = stack.query("SELECT version_num FROM alembic_version")
    with stack.client() as client:

        def status() -> str:
            status: str = client.get("/readyz").json()["dependencies"]["database"]
            return status

        try:
            for revision, expected in (("9999", "ok"), ("0001", "outdated")):
                stack.query("UPDATE alembic_version SET version_num = %s", revision)
                eventually(lambda: status() == expected, what=expected)  # noqa: B023
        finally:
            stack.query("UPDATE alembic_version SET version_num = %s", own_revision)
        eventually(lambda: client.get("/readyz").status_code == 200, what="ready")


def test_terminating_api_answers_waiting_callers_before_exit(
    start_api: Callable[..., Stack],
) -> None:
    """The upload and the composer call would wait a minute for a worker, because no worker runs.

    When the API is terminated, it must end both calls and exit within 15 seconds.
    """
    stack = start_api()
    [api] = [each for each in stack.processes if each.name == "api"]
    owner = stack.create_owner()
    with ThreadPoolExecutor(2) as threads:
        upload = threads.submit(_upload, stack, owner, wait=60)
        composer_call = threads.submit(_call_composer, stack, owner)
        eventually(lambda: stack.query("SELECT 1 FROM jobs"), what="the upload's job")
        eventually(
            lambda: stack.resources.redis.keys("pressroom:input:*"), what="the composer call"
        )
        began_at = time.monotonic()
        api.terminate()
        assert upload.result() == 202
        answer = composer_call.result()
        assert (answer.status_code, answer.json()["code"]) == (503, "queue.unavailable")
        assert answer.headers["retry-after"] == "1"
        api.process.wait(15)
        assert time.monotonic() - began_at < 15


def _call_composer(stack: Stack, owner: Owner) -> httpx2.Response:
    body = {"title": "Bread", "content": "Bread needs flour, water, salt and time. " * 20}
    with stack.client(owner.key) as client:
        return client.post("/composer/metadata", json=body)
