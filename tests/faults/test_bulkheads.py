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

UPLOADS = 24
SUBSCRIBERS = 60
# Above a few times what a call takes on this machine while nothing hangs: a small part of what it
# would wait for what hangs.
PROMPT_SECONDS = 2.0


@pytest.fixture
def start_api(probes: Bench, fleet: Fleet) -> Callable[..., Stack]:
    def start(**environment: str) -> Stack:
        fleet.end()
        probes.stack.start_api(None, **environment)
        return probes.stack

    return start


class Promptly:
    """Makes calls which nothing that hangs may hold up."""

    def __init__(self, usual: Callable[[], httpx2.Response]) -> None:
        """The slowest of three usual calls says how fast this machine is."""
        self._most = PROMPT_SECONDS + 5 * max(self._timed(usual)[0] for _ in range(3))

    def __call__(self, call: Callable[[], httpx2.Response]) -> httpx2.Response:
        seconds, reply = self._timed(call)
        assert seconds < self._most, reply.request.url
        return reply

    def _timed(self, call: Callable[[], httpx2.Response]) -> tuple[float, httpx2.Response]:
        began = time.monotonic()
        reply = call()
        return time.monotonic() - began, reply


def _await_readiness(client: httpx2.Client) -> None:
    """On a busy machine the first connection to the database takes longer than `/readyz` waits."""
    eventually(lambda: client.get("/readyz").status_code == 200, what="the process is ready")


def test_uploads_to_a_hanging_object_store_delay_no_other_call(
    start_api: Callable[..., Stack], silent_server_url: str
) -> None:
    stack = start_api(PRESSROOM_S3_ENDPOINT=f"http://{silent_server_url}")
    owner = stack.create_owner()
    metrics = {"Authorization": f"Bearer {stack.environment['PRESSROOM_METRICS_TOKEN']}"}
    with ThreadPoolExecutor(UPLOADS) as threads, stack.client(owner.key) as client:
        _await_readiness(client)
        promptly = Promptly(lambda: client.get("/lists"))
        uploads = [threads.submit(_upload, stack, owner) for _ in range(UPLOADS)]
        time.sleep(0.3)
        for _ in range(10):
            assert promptly(lambda: client.get("/auxilia/credits/balance")).status_code == 200
            charged = promptly(
                lambda: client.post(
                    "/auxilia/credits/consume", json={"amount_credit": 1, "source_id": "x"}
                )
            )
            assert charged.json()["code"] == "credits.insufficient"
            assert promptly(lambda: client.get("/lists")).status_code == 200
            ready = promptly(lambda: client.get("/readyz"))
            assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
            assert ready.json()["dependencies"]["objects"] == "unavailable"
            assert promptly(lambda: client.get("/metrics", headers=metrics)).status_code == 200
        assert not any(each.done() and each.result() == 200 for each in uploads)


def _upload(stack: Stack, owner: Owner, *, wait: int = 8) -> int:
    files, prefer = {"file": ("photo.jpg", photo(64, 48))}, {"Prefer": f"wait={wait}"}
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
    owner, other = stack.create_owner(), stack.create_owner()
    with stack.client(owner.key) as client, stack.client(other.key) as another:
        list_id, their_list = new_list(client), new_list(another)
        leaver, silent = subscribe(stack, list_id), subscribe(stack, list_id)
        promptly = Promptly(lambda: another.get("/auxilia/credits/balance"))
        locker = psycopg2.connect(stack.owner_url)
        locker.cursor().execute("SELECT pg_advisory_xact_lock(%s)", (list_id,))
        with ThreadPoolExecutor(SUBSCRIBERS) as threads:
            joining = [threads.submit(_join, stack, list_id) for _ in range(SUBSCRIBERS)]
            time.sleep(0.2)
            for _ in range(5):
                assert promptly(lambda: another.get("/auxilia/credits/balance")).status_code == 200
            body = {"email": f"{time.time_ns()}@example.com"}
            assert (
                promptly(
                    lambda: another.post(f"/subscriptions/{their_list}", json=body)
                ).status_code
                == 200
            )
            trace = {"trace_id": leaver.trace_id}
            with stack.client() as stranger:
                left = promptly(lambda: stranger.delete(f"/subscriptions/{list_id}", params=trace))
                assert data(left) == 1
                seen = data(stranger.get("/subscriptions/opponent", params=trace))
                assert seen["sub"]["status"] == "unsubscribed"
                assert leaver.stands() == ("active", True), "the record itself is still locked"
                page = promptly(lambda: stranger.get(leaver.unsubscribe_url))
                assert "left" in page.text
                trace = {"trace_id": silent.trace_id}
                clicked = promptly(
                    lambda: stranger.post(f"/subscriptions/{list_id}/delete", params=trace)
                )
                assert data(clicked) == 1
            refused = [each.result() for each in joining]
        assert {reply.status_code for reply in refused} == {503}
        assert {reply.json()["code"] for reply in refused} == {"list.busy"}
        assert all(reply.headers["retry-after"] == "1" for reply in refused)
        locker.close()
        stack.start_worker("maintenance", concurrency=1)
        eventually(lambda: leaver.stands() == ("unsubscribed", True), what="the record follows")
        eventually(lambda: silent.stands() == ("active", False), what="the mail's record follows")


def _join(stack: Stack, list_id: int) -> httpx2.Response:
    body = {"email": f"joins.{time.time_ns()}@example.com"}
    with stack.client() as stranger:
        return stranger.post(f"/subscriptions/{list_id}", json=body)


def test_process_without_redis_is_ready_but_degraded(
    start_api: Callable[..., Stack], silent_server_url: str
) -> None:
    stack = start_api(PRESSROOM_REDIS_URL=f"redis://{silent_server_url}/0")
    with stack.client() as client:
        _await_readiness(client)
        promptly = Promptly(lambda: client.get("/healthz"))
        for _ in range(3):
            reply = promptly(lambda: client.get("/readyz"))
            assert reply.status_code == 200
            there = {"database": "ok", "objects": "ok"}
            away = {"redis": "unavailable", "broker": "unavailable"}
            assert reply.json() == {"status": "degraded", "dependencies": there | away}


def test_process_without_database_is_not_ready(
    start_api: Callable[..., Stack], silent_server_url: str
) -> None:
    stack = start_api(PRESSROOM_DATABASE_URL=f"postgresql+psycopg2://x:x@{silent_server_url}/x")
    with stack.client() as client:
        promptly = Promptly(lambda: client.get("/healthz"))
        for _ in range(3):
            reply = promptly(lambda: client.get("/readyz"))
            assert (reply.status_code, reply.json()["status"]) == (503, "unavailable")
            assert reply.json()["dependencies"]["database"] == "unavailable"


def test_process_is_ready_with_its_own_or_newer_schema_but_not_with_older(
    start_api: Callable[..., Stack],
) -> None:
    stack = start_api()
    [(own,)] = stack.query("SELECT version_num FROM alembic_version")
    with stack.client() as client:

        def status() -> str:
            status: str = client.get("/readyz").json()["dependencies"]["database"]
            return status

        try:
            for revision, expected in (("9999", "ok"), ("0001", "outdated")):
                stack.query("UPDATE alembic_version SET version_num = %s", revision)
                eventually(lambda: status() == expected, what=expected)  # noqa: B023
        finally:
            stack.query("UPDATE alembic_version SET version_num = %s", own)
        eventually(lambda: client.get("/readyz").status_code == 200, what="ready")


def test_terminating_api_answers_waiting_callers_before_exit(
    start_api: Callable[..., Stack],
) -> None:
    """No worker runs: they would wait for a minute, and the server gives them twenty seconds."""
    stack = start_api()
    [api] = [each for each in stack.processes if each.name == "api"]
    owner = stack.create_owner()
    with ThreadPoolExecutor(2) as threads:
        upload = threads.submit(_upload, stack, owner, wait=60)
        asked = threads.submit(_ask, stack, owner)
        eventually(lambda: stack.query("SELECT 1 FROM jobs"), what="the upload's job")
        eventually(lambda: stack.resources.redis.keys("pressroom:input:*"), what="the question")
        began = time.monotonic()
        api.terminate()
        assert upload.result() == 202
        answer = asked.result()
        assert (answer.status_code, answer.json()["code"]) == (503, "queue.unavailable")
        assert answer.headers["retry-after"] == "1"
        api.process.wait(15)
        assert time.monotonic() - began < 15


def _ask(stack: Stack, owner: Owner) -> httpx2.Response:
    body = {"title": "Bread", "content": "Bread needs flour, water, salt and time. " * 20}
    with stack.client(owner.key) as client:
        return client.post("/composer/metadata", json=body)
