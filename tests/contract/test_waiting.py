"""Slow work: how long a call waits, and what it answers when the wait runs out."""

import threading
import time

import httpx2
import pytest

from storage.redis.notifications import job_topic
from tests.contract.replies import data, problem, send
from tests.pictures import photo
from tests.stack import Stack, eventually


@pytest.mark.parametrize(
    "prefer",
    ["respond-async", "Respond-Async", "wait=0", "WAIT = 0", "return=minimal, respond-async"],
)
def test_respond_async_is_202_at_once(quiet_client: httpx2.Client, prefer: str) -> None:
    reply = send(quiet_client, prefer=prefer)
    record = data(reply, 202)
    assert record["status"] == 1
    assert reply.headers["location"] == f"/attachments/{record['hash_id']}"
    assert data(quiet_client.get(reply.headers["location"])) == record
    assert (record["size"], record["checksum"], record["width"]) == (0, "", None)


@pytest.mark.parametrize("prefer", ["wait=1, wait=50", "respond-async, wait=1", 'wait="1"'])
def test_wait_that_runs_out_is_202(quiet_client: httpx2.Client, prefer: str) -> None:
    started = time.monotonic()
    data(send(quiet_client, prefer=prefer), 202)
    assert time.monotonic() - started > 0.9


@pytest.mark.parametrize(
    "prefer", ["wait", "wait=-1", "wait=abc", "wait=1e1", ",,;", "wait=3600", "wait=99999999999"]
)
def test_preferences_too_long_or_not_understood_are_those_of_a_plain_call(
    client: httpx2.Client, prefer: str
) -> None:
    assert data(send(client, prefer=prefer))["status"] == 2


def test_work_answered_with_202_goes_on(client: httpx2.Client) -> None:
    reply = send(client, prefer="respond-async")
    record = data(reply, 200, 202)
    path = f"/attachments/{record['hash_id']}"
    eventually(lambda: data(client.get(path))["status"] == 2, what="the conversion")


def test_work_whose_caller_hangs_up_goes_on(client: httpx2.Client) -> None:
    from tests.pictures import photo

    with pytest.raises(httpx2.ReadTimeout):
        client.post(
            "/attachments",
            files={"file": ("a.jpg", photo(4000, 3000, quality=60))},
            timeout=httpx2.Timeout(20.0, read=0.5),
        )

    def converted() -> bool:
        items = data(client.get("/attachments"))["items"]
        return [each["status"] for each in items] == [2]

    eventually(converted, what="the conversion")


def test_list_prefers_nothing(client: httpx2.Client) -> None:
    data(client.get("/attachments", headers={"Prefer": "respond-async"}))
    problem(client.get("/jobs/1", headers={"Prefer": "wait=0"}), 404, "job.not_found")


def test_word_of_another_deployments_job_does_not_end_a_wait(
    stack: Stack, client: httpx2.Client
) -> None:
    # Redis' channels know no databases: whoever shares the server is heard.
    ended = threading.Event()

    def lie() -> None:
        while not ended.is_set():
            (newest,) = stack.query("SELECT coalesce(max(id), 0) FROM jobs")[0]
            stack.resources.notifier.tell(job_topic(int(str(newest))), "succeeded")
            time.sleep(0.01)

    liar = threading.Thread(target=lie)
    liar.start()
    try:
        reply = client.post("/attachments", files={"file": ("p.jpg", photo(3000, 2000))})
    finally:
        ended.set()
        liar.join()
    assert reply.status_code == 200, reply.text
