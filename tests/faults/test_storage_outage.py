"""Tests that uploads and deletions are completed after an outage of the object storage."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest

from devstack.harness.embedded_services import Services
from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Owner, Stack
from tests.support.http.replies import data
from tests.support.images.uploads import await_jobs, count_ready_attachments, upload
from tests.support.probe.bench import PROBE_WORKER, Bench
from tests.support.stack.fleet import Fleet
from tests.support.stack.signals import pause_process, resume_process

_FAILING = "SELECT last_reason FROM jobs WHERE status = 'queued' AND failing_since IS NOT NULL"


@contextmanager
def storage_outage(services: Services, fault: str) -> Iterator[None]:
    """Make the object storage hang or refuse connections during the block."""
    server = services.group["s3"]
    server.send_signal(signal.SIGSTOP if fault == "hangs" else signal.SIGKILL)
    try:
        yield
    finally:
        if fault == "hangs":
            server.send_signal(signal.SIGCONT)
        else:
            services.restart("s3")


def accept_uploads(stack: Stack, media_worker: Running, owner: Owner, count: int) -> None:
    """Pause the media worker, and upload ``count`` pictures, which the API accepts with 202."""
    pause_process(media_worker)
    replies = [upload(stack, owner, wait=0) for _ in range(count)]
    assert {reply.status_code for reply in replies} == {202}


@pytest.mark.parametrize("fault", ["hangs", "refuses"])
def test_accepted_uploads_finish_after_a_storage_outage_of_one_hour(
    probes: Bench, api: Running, media_worker: Running, services: Services, fault: str
) -> None:
    stack = probes.stack
    accept_uploads(stack, media_worker, stack.create_owner(), 3)
    with storage_outage(services, fault):
        resume_process(media_worker)
        reasons = eventually(
            lambda: (rows := stack.query(_FAILING)) and len(rows) == 3 and rows,
            within=60,
            what="three jobs that wait for a retry",
        )
        assert isinstance(reasons, list)
        assert all(str(reason).startswith("The object storage") for (reason,) in reasons)
        # Pretend that the outage of the object storage began an hour ago.
        stack.query("UPDATE jobs SET failing_since = failing_since - interval '1 hour'")
    stack.query("UPDATE jobs SET run_at = now(), send_after = now() WHERE status = 'queued'")
    eventually(
        lambda: count_ready_attachments(stack) == 3, within=60, what="three ready attachments"
    )
    assert stack.query("SELECT DISTINCT crashes, failing_since, last_reason FROM jobs") == [
        (0, None, None)
    ]


def test_failed_upload_keeps_its_original_and_can_be_retried(
    probes: Bench, fleet: Fleet, api: Running, services: Services
) -> None:
    stack = probes.stack
    owner = probes.stack.create_owner()
    fleet.end()
    fleet.start_api()
    impatient = stack.start_worker(
        "media", concurrency=1, module=PROBE_WORKER, PRESSROOM_PATIENCE="0"
    )
    accept_uploads(stack, impatient, owner, 1)
    with storage_outage(services, "hangs"):
        resume_process(impatient)
        await_jobs(stack, 1, "failed")
    impatient.kill()
    stack.start_worker("media", concurrency=1, module=PROBE_WORKER)
    [(job_id, error)] = stack.query("SELECT id, error FROM jobs")
    assert isinstance(error, dict)
    assert error["code"] == "job.given_up"
    assert stack.query("SELECT status FROM attachments") == [(3,)]
    with stack.client(owner.key) as client:
        assert retry_job(client, job_id) == 200
        eventually(
            lambda: count_ready_attachments(stack) == 1, within=60, what="the ready attachment"
        )
        assert retry_job(client, job_id) == 409
        [record] = data(client.get("/attachments"))["items"]
    hash_id = record["hash_id"]
    thumbnail = f"renditions/{hash_id}/{record['thumbnail']['filename']}"
    stored_keys = {key for key in stack.stored() if hash_id in key}
    assert stored_keys == {record["pathname"], thumbnail}


def retry_job(client: httpx2.Client, job_id: object) -> int:
    """Retry a job, and return the status code of the response."""
    return client.post(f"/jobs/{job_id}/retry").status_code


def test_attachments_deleted_during_storage_outage_are_removed_afterwards(
    probes: Bench, api: Running, media_worker: Running, services: Services
) -> None:
    stack = probes.stack
    owner = probes.stack.create_owner()
    for _ in range(3):
        assert upload(stack, owner).status_code == 200
    hash_ids = [str(row[0]) for row in stack.query("SELECT hash_id FROM attachments")]
    with storage_outage(services, "hangs"), stack.client(owner.key) as client:
        for hash_id in hash_ids:
            assert client.delete(f"/attachments/{hash_id}").status_code == 200
        # Pretend that the worker was killed during its first attempt to delete the images from the
        # object storage.
        stack.query("UPDATE object_removals SET tries = 1, try_at = now()")

    def find_objects() -> list[str]:
        return [key for key in stack.stored() if any(each in key for each in hash_ids)]

    eventually(lambda: not find_objects(), within=60, what="the removal of all objects")
