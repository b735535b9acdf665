"""Tests of the calls that show, watch, cancel or await a job."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest

from core.ids import PersonId
from core.scopes import Scope
from devstack import LOOPBACK
from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from devstack.supervisor.programs import is_responding
from services.access import sessions
from storage.redis.notifications import build_job_topic
from tests.support.commands.running import run_json_command
from tests.support.http.replies import TIMESTAMP, data, objects_of, problem, send
from tests.support.images.pictures import photo
from tests.support.people.oauth import log_in
from tests.support.people.visiting import SESSION_COOKIE


@pytest.fixture
def queued_job(client_without_workers: httpx2.Client) -> dict[str, Any]:
    """A job that stays queued because its test stack runs no workers."""
    data(send(client_without_workers, prefer="respond-async"), 202)
    [job] = data(client_without_workers.get("/jobs"))["items"]
    assert isinstance(job, dict)
    return job


def test_image_upload_creates_a_job_that_reports_its_outcome(client: httpx2.Client) -> None:
    record = data(send(client))
    [job] = data(client.get("/jobs"))["items"]
    assert set(job["progress"]) == {"done", "total", "per_second", "eta_seconds"}
    assert (job["kind"], job["status"]) == ("attachment.process", "succeeded")
    assert job["result"] == {"hash_id": record["hash_id"]}
    assert job["error"] is None
    for time_name in ("created_at", "started_at", "finished_at"):
        assert TIMESTAMP.fullmatch(job[time_name])
    assert job["created_at"] <= job["started_at"] <= job["finished_at"]
    assert data(client.get(f"/jobs/{job['id']}")) == job
    assert data(client.delete(f"/jobs/{job['id']}")) == 0


def test_queued_job_is_cancelled_immediately_and_its_attachment_is_marked_failed(
    stack_without_workers: Stack, client_without_workers: httpx2.Client, queued_job: dict[str, Any]
) -> None:
    path = f"/jobs/{queued_job['id']}"
    assert data(client_without_workers.delete(path)) == 1
    job = data(client_without_workers.get(path))
    assert (job["status"], job["error"]["code"]) == ("cancelled", "job.cancelled")
    assert job["finished_at"]
    [record] = data(client_without_workers.get("/attachments"))["items"]
    assert (record["status"], record["error"]["code"]) == (3, "job.cancelled")
    assert objects_of(stack_without_workers, record) == []
    assert data(client_without_workers.delete(path)) == 0


@pytest.fixture
def job_of_other_release(
    stack_without_workers: Stack, queued_job: dict[str, Any]
) -> dict[str, Any]:
    """A queued job of a kind that only another release of Pressroom knows."""
    stack_without_workers.query(
        "UPDATE jobs SET kind = 'members.divine' WHERE id = %s", queued_job["id"]
    )
    return {**queued_job, "kind": "members.divine"}


def test_job_of_an_unknown_kind_is_shown_and_left_to_workers_of_another_release(
    stack_without_workers: Stack,
    client_without_workers: httpx2.Client,
    job_of_other_release: dict[str, Any],
) -> None:
    path = f"/jobs/{job_of_other_release['id']}"
    assert data(client_without_workers.get("/jobs"))["items"] == [job_of_other_release]
    assert data(client_without_workers.get(path)) == job_of_other_release
    problem(client_without_workers.post(f"{path}/retry"), 409, "job.not_retryable")
    assert data(client_without_workers.delete(path)) == 1
    select_status = "SELECT status, cancel_requested FROM jobs WHERE id = %s"
    assert stack_without_workers.query(select_status, job_of_other_release["id"]) == [
        ("queued", True)
    ]
    cancel_job = "UPDATE jobs SET status = 'cancelled', finished_at = now() WHERE id = %s"
    stack_without_workers.query(cancel_job, job_of_other_release["id"])
    problem(client_without_workers.post(f"{path}/retry"), 409, "job.not_retryable")
    assert data(client_without_workers.delete(path)) == 0
    with client_without_workers.stream("GET", f"{path}/events") as stream:
        assert stream.status_code == 200


def test_job_of_an_unknown_kind_is_hidden_from_restricted_credentials(
    stack_without_workers: Stack, owner_without_workers: Owner, job_of_other_release: dict[str, Any]
) -> None:
    path = f"/jobs/{job_of_other_release['id']}"
    with stack_without_workers.client(
        stack_without_workers.create_key(owner_without_workers.user_id, Scope.ATTACHMENT)
    ) as restricted_client:
        assert data(restricted_client.get("/jobs"))["items"] == []
        problem(restricted_client.get(path), 404, "job.not_found")
        problem(restricted_client.delete(path), 404, "job.not_found")
        problem(restricted_client.post(f"{path}/retry"), 404, "job.not_found")


def read_events(reply: httpx2.Response) -> Iterator[dict[str, Any]]:
    """Yield each server-sent event as a dict from field to value, with its data parsed as JSON."""
    event: dict[str, Any] = {}
    for line in reply.iter_lines():
        if not line and event:
            yield {**event, "data": json.loads(event["data"])}
            event = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(":")
            event[name] = value.removeprefix(" ")


def test_job_event_stream_sends_each_state_with_its_version_and_ends_with_the_job(
    stack_without_workers: Stack, client_without_workers: httpx2.Client, queued_job: dict[str, Any]
) -> None:
    path = f"/jobs/{queued_job['id']}"
    with client_without_workers.stream("GET", f"{path}/events") as reply:
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert reply.headers["cache-control"] == "no-store"
        stream = read_events(reply)
        first_event = next(stream)
        assert first_event["data"] == queued_job
        assert first_event["id"] == _version(stack_without_workers, queued_job)
        data(client_without_workers.delete(path))
        later_events = list(stream)
    assert [each["data"]["status"] for each in later_events] == ["cancelled"]
    assert later_events[-1]["id"] == _version(stack_without_workers, queued_job)
    assert int(later_events[-1]["id"]) > int(first_event["id"])


def _version(stack: Stack, job: dict[str, Any]) -> str:
    [(version,)] = stack.query("SELECT version FROM jobs WHERE id = %s", job["id"])
    return str(version)


def test_job_event_stream_skips_states_that_the_client_has_seen(
    stack_without_workers: Stack, client_without_workers: httpx2.Client, queued_job: dict[str, Any]
) -> None:
    path = f"/jobs/{queued_job['id']}"
    headers_before = {"Last-Event-ID": _version(stack_without_workers, queued_job)}
    with client_without_workers.stream("GET", f"{path}/events", headers=headers_before) as reply:
        data(client_without_workers.delete(path))
        assert [each["data"]["status"] for each in read_events(reply)] == ["cancelled"]
    headers_after = {"Last-Event-ID": _version(stack_without_workers, queued_job)}
    with client_without_workers.stream("GET", f"{path}/events", headers=headers_after) as reply:
        assert list(read_events(reply)) == []


def test_job_event_stream_ignores_a_malformed_last_event_id(client: httpx2.Client) -> None:
    data(send(client))
    [job] = data(client.get("/jobs"))["items"]
    for event_id in ("", "abc", "-1", "\xb2", "9" * 5000):
        headers = httpx2.Headers({"Last-Event-ID": event_id}, encoding="latin-1")
        with client.stream("GET", f"/jobs/{job['id']}/events", headers=headers) as reply:
            assert [each["data"]["status"] for each in read_events(reply)] == ["succeeded"]


@pytest.fixture(scope="module")
def impatient_api_url(stack_without_workers: Stack) -> str:
    """The URL of an API process that rechecks the credentials of event streams every second."""
    port = free_port()
    stack_without_workers.start(
        "checking-api",
        str(port),
        module="tests.support.probe.impatient_api",
        ready=lambda: is_responding(port, "/healthz"),
    )
    return f"http://{LOOPBACK}:{port}"


@pytest.mark.parametrize("ended_credential", ["key", "session", "key's person", "session's person"])
def test_job_event_stream_ends_when_its_credential_is_revoked_or_the_person_erased(
    stack_without_workers: Stack,
    owner_without_workers: Owner,
    queued_job: dict[str, Any],
    impatient_api_url: str,
    ended_credential: str,
) -> None:
    user_id = owner_without_workers.user_id
    with stack_without_workers.resources.unit_of_work() as uow:
        cookie = sessions.begin_session(uow, PersonId(user_id))
    key_headers = {"Authorization": f"Bearer {owner_without_workers.key}"}
    headers = key_headers if "key" in ended_credential else {"Cookie": f"{SESSION_COOKIE}={cookie}"}
    end_credential = {
        "key": "UPDATE api_keys SET revoked_at = now() WHERE user_id = %s",
        "session": "UPDATE user_sessions SET ended_at = now() WHERE user_id = %s",
    }
    erase_person = "UPDATE users SET erased_at = now() WHERE id = %s"
    url = f"{impatient_api_url}/jobs/{queued_job['id']}/events"
    with httpx2.stream("GET", url, headers=headers, timeout=30) as reply:
        stream = read_events(reply)
        assert next(stream)["data"]["status"] == "queued"
        stack_without_workers.query(end_credential.get(ended_credential, erase_person), user_id)
        # The stream ends although the job is still queued.
        assert list(stream) == []
    assert httpx2.get(url, headers=headers).status_code == 401


def test_job_event_stream_ends_when_the_person_leaves_the_team(
    stack_without_workers: Stack,
    owner_without_workers: Owner,
    queued_job: dict[str, Any],
    impatient_api_url: str,
) -> None:
    stack = stack_without_workers
    teammate = stack.create_owner()
    account = str(owner_without_workers.user_id)
    run_json_command(stack, "accounts", "add", account, teammate.email, "--role", "admin")
    url = f"{impatient_api_url}/jobs/{queued_job['id']}/events"
    headers = {"Pressroom-Account": account}
    with log_in(stack, teammate).browser as browser:
        with browser.stream("GET", url, headers=headers, timeout=30) as reply:
            stream = read_events(reply)
            assert next(stream)["data"]["status"] == "queued"
            run_json_command(stack, "accounts", "remove", account, teammate.email)
            assert list(stream) == []
        problem(browser.get(url, headers=headers), 404, "account.not_found")


def test_head_request_of_a_job_event_stream_returns_without_waiting(
    client_without_workers: httpx2.Client, queued_job: dict[str, Any]
) -> None:
    path = f"/jobs/{queued_job['id']}/events"
    for _ in range(15):
        reply = client_without_workers.head(path)
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/event-stream")


def test_user_can_open_at_most_ten_job_event_streams(
    stack_without_workers: Stack, client_without_workers: httpx2.Client, queued_job: dict[str, Any]
) -> None:
    path = f"/jobs/{queued_job['id']}/events"
    with ExitStack() as open_streams:
        for _ in range(10):
            assert (
                open_streams.enter_context(client_without_workers.stream("GET", path)).status_code
                == 200
            )
        rejected_reply = client_without_workers.get(path)
        problem(rejected_reply, 429, "jobs.too_many_streams")
        assert int(rejected_reply.headers["retry-after"]) > 0
        with stack_without_workers.client(stack_without_workers.create_owner().key) as other_client:
            problem(other_client.get(path), 404, "job.not_found")

    def is_accepted() -> bool:
        with client_without_workers.stream("GET", path) as reply:
            return reply.status_code == 200

    eventually(is_accepted, what="room after the streams were closed")


@pytest.mark.parametrize(
    "prefer",
    ["respond-async", "Respond-Async", "wait=0", "WAIT = 0", "return=minimal, respond-async"],
)
def test_image_upload_with_respond_async_returns_202_immediately(
    client_without_workers: httpx2.Client, prefer: str
) -> None:
    reply = send(client_without_workers, prefer=prefer)
    record = data(reply, 202)
    assert record["status"] == 1
    assert reply.headers["location"] == f"/attachments/{record['hash_id']}"
    assert data(client_without_workers.get(reply.headers["location"])) == record
    assert (record["size"], record["checksum"], record["width"]) == (0, "", None)


@pytest.mark.parametrize("prefer", ["wait=1, wait=50", "respond-async, wait=1", 'wait="1"'])
def test_image_upload_returns_202_when_the_requested_wait_expires(
    client_without_workers: httpx2.Client, prefer: str
) -> None:
    started_at = time.monotonic()
    data(send(client_without_workers, prefer=prefer), 202)
    assert time.monotonic() - started_at > 0.9


@pytest.mark.parametrize(
    "prefer", ["wait", "wait=-1", "wait=abc", "wait=1e1", ",,;", "wait=3600", "wait=99999999999"]
)
def test_malformed_or_too_long_prefer_header_is_ignored(client: httpx2.Client, prefer: str) -> None:
    assert data(send(client, prefer=prefer))["status"] == 2


def test_image_upload_job_continues_after_the_client_disconnects(client: httpx2.Client) -> None:
    with pytest.raises(httpx2.ReadTimeout):
        client.post(
            "/attachments",
            files={"file": ("a.jpg", photo(4000, 3000, quality=60))},
            timeout=httpx2.Timeout(20.0, read=0.5),
        )

    def is_converted() -> bool:
        items = data(client.get("/attachments"))["items"]
        return [each["status"] for each in items] == [2]

    eventually(is_converted, what="the conversion")


def test_notification_of_another_deployment_does_not_end_the_wait_for_a_job(
    stack: Stack, client: httpx2.Client
) -> None:
    # Redis channels span all databases, so other deployments on the server can publish to them.
    upload_ended = threading.Event()

    def publish_wrong_notifications() -> None:
        while not upload_ended.is_set():
            (newest_job_id,) = stack.query("SELECT coalesce(max(id), 0) FROM jobs")[0]
            stack.resources.notifier.publish(build_job_topic(int(str(newest_job_id))), "succeeded")
            time.sleep(0.01)

    publisher = threading.Thread(target=publish_wrong_notifications)
    publisher.start()
    try:
        reply = client.post("/attachments", files={"file": ("p.jpg", photo(3000, 2000))})
    finally:
        upload_ended.set()
        publisher.join()
    assert reply.status_code == 200, reply.text
