"""Tests that processes of release 1.1.0 handle the data of this release during an upgrade.

The tests run the code of release 1.1.0 from the repository's history.
"""

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from devstack.harness.free_ports import free_port
from devstack.harness.running import Running
from devstack.harness.stack import Owner, Stack, plain_client
from devstack.supervisor.programs import is_responding
from services.subscriptions.exports import LIMITED_ROSTER_JOB
from services.subscriptions.members.traces import read_trace_id
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import (
    await_job,
    build_address_file,
    export,
    export_rows,
    fetch_rows,
    import_members_file,
)
from tests.support.lists.subscribers import Reader, new_list, new_reader
from tests.support.people.limited_keys import create_limited_key
from tests.support.prerequisites import skip_or_fail
from tests.support.repository.tracked_files import run_git

pytestmark = pytest.mark.tier("processes")

# The commit of release 1.1.0.
RELEASE_COMMIT = "58c960e6bf03f7da48e2e3807b3b7aaa8c0da717"


@pytest.fixture(scope="module")
def former_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the code of release 1.1.0."""
    folder = tmp_path_factory.mktemp("release")
    archive = folder / "release.tar"
    try:
        run_git("archive", "--output", str(archive), RELEASE_COMMIT)
    except subprocess.CalledProcessError:
        skip_or_fail("This checkout doesn't contain the commit of release 1.1.0.")
    with tarfile.open(archive) as content:
        content.extractall(folder / "code", filter="data")
    return folder / "code"


@pytest.fixture(scope="module")
def upgraded_stack(empty_stack: Stack) -> Stack:
    """A stack with an API process of this release, and without workers."""
    empty_stack.start_api()
    return empty_stack


def start_former(stack: Stack, code: Path, name: str, *words: str, port: int | None) -> Running:
    """Start a program of release 1.1.0. ``port``: the port on which the program listens, if any."""
    ready_file = stack.home / f"former-{name}.ready"
    argv = ("env", "-C", str(code), sys.executable, "-m", "cli.main", *words)
    return stack.run(
        f"former-{name}",
        argv,
        ready=lambda: is_responding(port, "/healthz") if port else ready_file.exists(),
        port=port,
        environment={"PYTHONPATH": str(code), "PRESSROOM_READY_FILE": str(ready_file)},
    )


@pytest.fixture(scope="module")
def former_api(upgraded_stack: Stack, former_code: Path) -> str:
    """The URL of an API process of release 1.1.0."""
    port = free_port()
    start_former(*(upgraded_stack, former_code, "api"), *("serve", "--port", str(port)), port=port)
    return f"http://127.0.0.1:{port}"


@pytest.fixture
def list_id(upgraded_client: httpx2.Client) -> int:
    return int(new_list(upgraded_client)["id"])


@pytest.fixture
def upgraded_owner(upgraded_stack: Stack) -> Owner:
    return upgraded_stack.create_owner()


@pytest.fixture
def upgraded_client(upgraded_stack: Stack, upgraded_owner: Owner) -> Iterator[httpx2.Client]:
    with upgraded_stack.client(upgraded_owner.key) as upgraded_client:
        yield upgraded_client


@pytest.fixture
def reader(upgraded_stack: Stack, list_id: int) -> Iterator[Reader]:
    with new_reader(upgraded_stack) as reader:
        yield reader.joins(list_id)


def test_former_api_rejects_limited_keys_and_can_revoke_them(
    upgraded_stack: Stack, former_api: str, upgraded_owner: Owner, list_id: int
) -> None:
    key = create_limited_key(upgraded_stack, upgraded_owner, list_id)
    headers = {"Authorization": f"Bearer {key['key']}"}
    with plain_client(base_url=former_api, headers=headers) as sending_program:
        for reply in (
            sending_program.get("/users/me"),
            export(sending_program, list_id, "delivery"),
        ):
            problem(reply, 401, "auth.invalid_credentials")
    assert upgraded_stack.is_accepted(key["key"])
    headers = {"Authorization": f"Bearer {upgraded_owner.key}"}
    with plain_client(base_url=former_api, headers=headers) as owner_client:
        assert key["id"] in {each["id"] for each in data(owner_client.get("/apikeys"))}
        assert data(owner_client.delete(f"/apikeys/{key['id']}")) == 1
    assert not upgraded_stack.is_accepted(key["key"])


def test_former_worker_leaves_limited_rosters_to_this_release_and_former_api_lets_people_leave(
    *,
    upgraded_stack: Stack,
    former_api: str,
    former_code: Path,
    upgraded_owner: Owner,
    upgraded_client: httpx2.Client,
    reader: Reader,
    list_id: int,
) -> None:
    key = create_limited_key(upgraded_stack, upgraded_owner, list_id)
    words = ("worker", "--queue", "export", "--concurrency", "1")
    former_worker = start_former(upgraded_stack, former_code, "worker", *words, port=None)
    with upgraded_stack.client(key["key"]) as sending_program:
        job = data(export(sending_program, list_id, "delivery", Prefer="wait=0"), 202)
        assert job["kind"] == LIMITED_ROSTER_JOB.name
        # The former worker runs jobs of the same queue, but not this one.
        assert [row["email"] for row in export_rows(upgraded_client, list_id)] == [reader.email]
        assert data(sending_program.get(f"/jobs/{job['id']}"))["status"] == "queued"
        former_worker.stop()
        upgraded_stack.start_worker("export", concurrency=1)
        finished_job = await_job(sending_program, job["id"], within=60)
    [row] = fetch_rows(finished_job["result"]["url"])
    trace_id = row["trace_id"]
    assert read_trace_id(upgraded_stack.resources.keyring, trace_id).is_limited
    with plain_client(base_url=former_api) as stranger:
        path = f"/subscriptions/{list_id}"
        query = {"trace_id": trace_id}
        one_click = {"List-Unsubscribe": "One-Click"}
        assert data(stranger.post(f"{path}/delete", params=query, data=one_click)) == 1
        assert reader.read_status(list_id) == ("active", False)
        assert data(stranger.delete(path, params=query)) == 1
        assert reader.read_status(list_id)[0] == "unsubscribed"
        assert stranger.post("/report", params=query).status_code == 303


def test_bounces_that_a_former_worker_imports_differ_from_other_opt_outs(
    *,
    upgraded_stack: Stack,
    former_code: Path,
    upgraded_client: httpx2.Client,
    reader: Reader,
    list_id: int,
) -> None:
    words = ("worker", "--queue", "bulk", "--concurrency", "1")
    former_worker = start_former(upgraded_stack, former_code, "bulk-worker", *words, port=None)
    file = build_address_file(reader.email)
    import_members_file(upgraded_client, list_id, file, kind="bounces")
    former_worker.stop()
    history = data(upgraded_client.get(f"/lists/{list_id}/members/{reader.user_id}/history"))
    entry = history["items"][0]
    assert (entry["action"], entry["left_reason"]) == ("bounced", "bounced")
