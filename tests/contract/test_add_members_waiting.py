"""Waiting for members to be added."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from core.errors import DomainError, Kind
from services.jobs import lease as leases
from tests.contract.bulk import (
    add,
    addresses,
    everybody,
    finished,
)
from tests.contract.replies import data, problem
from tests.contract.subscribers import (
    member,
    new_address,
    new_list,
)
from tests.contract.test_body_limits import Raw
from tests.stack import Owner, Stack, eventually

_BROKEN = DomainError(Kind.DAMAGED, "job.x", "M")


@pytest.mark.parametrize("prefer", ["respond-async", "wait=0"])
def test_who_does_not_wait_gets_the_jobs_id(
    client: httpx.Client, list_id: int, prefer: str
) -> None:
    reply = add(client, list_id, *addresses(2), prefer=prefer)
    job_id = data(reply, 202)
    assert reply.headers["location"] == f"/jobs/{job_id}"
    assert finished(client, job_id)["result"]["added"] == 2


def test_a_wait_that_runs_out_is_202_and_its_job_can_be_cancelled(
    quiet_client: httpx.Client,
) -> None:
    list_id = new_list(quiet_client)["id"]
    reply = add(quiet_client, list_id, *addresses(2), prefer="wait=1")
    job_id = data(reply, 202)
    assert data(quiet_client.delete(f"/jobs/{job_id}")) == 1
    [record] = data(quiet_client.get("/imports"))["items"]
    assert (record["status"], record["error"]["code"]) == ("cancelled", "job.cancelled")
    assert record["finished_at"]


def test_the_work_goes_on_when_the_caller_hangs_up(
    stack: Stack, owner: Owner, client: httpx.Client, list_id: int
) -> None:
    email = new_address()
    body = json.dumps({"members": [{"email": email}]}).encode()
    head = (
        f"POST /auxilia/subscriptions/{list_id}/members/add HTTP/1.1",
        f"Authorization: Bearer {owner.key}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    with Raw(stack, *head) as request:
        request.send(body)
        eventually(lambda: data(client.get("/jobs"))["items"])
    eventually(lambda: member(client, list_id, email))


@pytest.mark.parametrize(
    ("end", "status", "code"),
    [
        (leases.cancel, 409, "job.cancelled"),
        (
            lambda uow, lease: leases.fail(uow, lease, DomainError(Kind.INVALID, "a.b", "M")),
            422,
            "a.b",
        ),
        (
            lambda uow, lease: leases.fail(uow, lease, DomainError(Kind.DAMAGED, "job.x", "M")),
            500,
            "job.x",
        ),
    ],
)
def test_who_waits_is_told_how_the_job_ended(
    *, quiet: Stack, quiet_client: httpx.Client, end: Any, status: int, code: str
) -> None:
    list_id = new_list(quiet_client)["id"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(add, quiet_client, list_id, new_address(), prefer="wait=30")
        found = eventually(
            lambda: quiet.query(
                "SELECT max(j.id) FROM jobs j JOIN imports i"
                " ON i.id = j.subject_id WHERE i.list_id = %s",
                list_id,
            )[0][0]
        )
        with quiet.resources.unit_of_work() as uow:
            lease = leases.claim(uow, int(str(found)))
        assert lease is not None
        with quiet.resources.unit_of_work() as uow:
            end(uow, lease)
        problem(waiting.result(30), status, code)


def test_the_list_of_many_members_is_counted_exactly(client: httpx.Client, list_id: int) -> None:
    emails = addresses(150)
    assert data(add(client, list_id, *emails)) == 150
    assert set(everybody(client, list_id)) == set(emails)
