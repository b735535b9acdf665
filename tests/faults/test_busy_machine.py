"""Tests that work beside other programs which keep the processor busy is slow, but never fails."""

from collections.abc import Iterator

import httpx2
import pytest

from devstack.harness.busy_loops import busy_loops
from devstack.harness.polling import eventually
from devstack.harness.running import Running
from tests.support.http.replies import data, send
from tests.support.images.pictures import photo
from tests.support.imports.bulk import await_job, upload
from tests.support.imports.importing import csv_of, new_addresses
from tests.support.lists.subscribers import new_list
from tests.support.probe.bench import Bench
from tests.support.sizes import sized

pytestmark = pytest.mark.tier("faults")

LOOPS = 20
PATIENCE_SECONDS = 1200.0
_READY = 2


@pytest.fixture
def owner_client(probes: Bench, api: Running, media_worker: Running) -> Iterator[httpx2.Client]:
    with probes.stack.client(probes.stack.create_owner().key) as client:
        yield client


@pytest.mark.parametrize("in_one_session", [False, True], ids=["own sessions", "one session"])
def test_upload_and_import_beside_twenty_busy_loops_succeed(
    probes: Bench, owner_client: httpx2.Client, *, in_one_session: bool
) -> None:
    probes.start_worker("bulk", concurrency=1)
    row_count = sized(2_000, 10_000)
    content = csv_of([[each, "A name"] for each in new_addresses(row_count)])
    with busy_loops(LOOPS, max_seconds=PATIENCE_SECONDS, in_one_session=in_one_session):
        images = [
            data(send(owner_client, photo(4000, 3000), prefer="respond-async"), 202)
            for _ in range(sized(1, 20))
        ]
        job = data(
            upload(owner_client, new_list(owner_client)["id"], content, prefer="respond-async"), 202
        )
        job = await_job(owner_client, job["id"], within=PATIENCE_SECONDS)
        assert (job["status"], job["error"]) == ("succeeded", None)
        assert job["result"]["added"] == row_count
        for image in images:
            _await_image(owner_client, f"/attachments/{image['hash_id']}")
    assert probes.stack.query("SELECT max(crashes) FROM jobs") == [(0,)]


def _await_image(client: httpx2.Client, path: str) -> None:
    eventually(
        lambda: data(client.get(path))["status"] >= _READY,
        within=PATIENCE_SECONDS,
        what="the end of the conversion",
    )
    record = data(client.get(path))
    assert (record["status"], record["error"]) == (_READY, None)
