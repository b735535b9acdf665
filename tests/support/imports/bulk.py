"""Imports and exports members through the API: builds the files, and reads the results."""

import csv
import gzip
import io
import secrets
from collections.abc import Sequence
from typing import Any

import httpx2

import workers.task_table  # noqa: F401 - registers the kinds of all jobs, which `claim_job` needs
from core.errors import DomainError
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack, plain_client
from services.jobs import transitions
from tests.support.http.replies import data
from tests.support.lists.subscribers import fetch_members

COUNT_NAMES = ("received", "added", "already", "opted_out", "invalid", "duplicate", "denied")
# The columns that Pressroom adds to a file of rejected rows.
ADDED_COLUMNS = ["line", "code", "reason"]
FINISHED_STATUSES = {"succeeded", "failed", "cancelled"}


def build_addresses(count: int) -> list[str]:
    return [f"m{number}.{secrets.token_hex(5)}@example.com" for number in range(count)]


def build_csv(header: Sequence[str], *rows: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    return text.getvalue().encode()


def build_address_file(*emails: str) -> bytes:
    return build_csv(["Email"], *([email] for email in emails))


def upload(
    client: httpx2.Client,
    list_id: int,
    content: bytes,
    name: str = "members.csv",
    *,
    prefer: str | None = "wait=30",
    **params: str,
) -> httpx2.Response:
    return client.post(
        f"/lists/{list_id}/imports",
        files={"file": (name, content)},
        params=params,
        headers={"Prefer": prefer} if prefer else {},
    )


def import_members_file(
    client: httpx2.Client, list_id: int, content: bytes, name: str = "members.csv", **params: str
) -> dict[str, Any]:
    job = data(upload(client, list_id, content, name, **params))
    assert job["status"] == "succeeded"
    result: dict[str, Any] = job["result"]
    assert result["received"] == sum(result[name] for name in COUNT_NAMES[1:])
    return result


def nonzero_counts(result: dict[str, Any]) -> dict[str, int]:
    return {name: result[name] for name in (*COUNT_NAMES, "updated") if result[name]}


def add(
    client: httpx2.Client,
    list_id: int,
    *people: str | dict[str, Any],
    prefer: str | None = None,
    key: str | None = None,
) -> httpx2.Response:
    headers = {"Prefer": prefer, "Idempotency-Key": key}
    return client.post(
        f"/auxilia/subscriptions/{list_id}/members/add",
        json={"members": [{"email": each} if isinstance(each, str) else each for each in people]},
        headers={name: value for name, value in headers.items() if value is not None},
    )


def await_job(client: httpx2.Client, job_id: int, within: float = 20) -> dict[str, Any]:
    def find_ended_job() -> dict[str, Any] | None:
        job: dict[str, Any] = data(client.get(f"/jobs/{job_id}"))
        return job if job["status"] in FINISHED_STATUSES else None

    return eventually(find_ended_job, within=within, what="the job's end")


def fail_job(stack: Stack, job_id: int, error: DomainError) -> None:
    with stack.resources.unit_of_work() as uow:
        lease = transitions.claim_job(uow, job_id)
        assert lease is not None
        transitions.fail_job(uow, lease, error)


def newest_job(client: httpx2.Client) -> dict[str, Any]:
    return dict(data(client.get("/jobs", params={"limit": 1}))["items"][0])


def fetch_rejected_rows(url: str) -> list[dict[str, Any]]:
    """Return the rows that were not added, fetched without credentials."""
    text = _download(url).decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text)))


def export(client: httpx2.Client, list_id: int, kind: object, **headers: str) -> httpx2.Response:
    return client.post(f"/lists/{list_id}/exports", json={"kind": kind}, headers=headers)


def export_file(client: httpx2.Client, list_id: int, kind: str = "members", **choice: Any) -> str:
    """Export members, and return the URL of the file."""
    job = data(client.post(f"/lists/{list_id}/exports", json={"kind": kind, **choice}))
    assert job["status"] == "succeeded"
    return str(job["result"]["url"])


def export_rows(client: httpx2.Client, list_id: int, kind: str = "members") -> list[dict[str, str]]:
    return fetch_rows(export_file(client, list_id, kind))


def export_emails(
    client: httpx2.Client, list_id: int, kind: str = "members", **choice: Any
) -> list[str]:
    return [row["email"] for row in fetch_rows(export_file(client, list_id, kind, **choice))]


def fetch_rows(url: str) -> list[dict[str, str]]:
    """Download an exported file, decompress it, and return its rows."""
    text = gzip.decompress(_download(url)).decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def _download(url: str) -> bytes:
    with plain_client() as anonymous_client:
        reply = anonymous_client.get(url)
    assert reply.status_code == 200, reply.text
    return reply.content


def active_members(client: httpx2.Client, list_id: int) -> dict[str, dict[str, Any]]:
    """Map the address of each active member to the member, as the API returns it."""
    return {each["email"]: each for each in fetch_members(client, list_id, limit=1000)}


def list_stored_keys(stack: Stack, kind: str = "imports") -> set[str]:
    """Return the object storage keys of all files of one kind, by default of imports."""
    return set(stack.stored(f"{kind}/"))
