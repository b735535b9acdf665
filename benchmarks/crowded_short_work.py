"""Measures how long short work waits during an import of a million rows.

Each queue has one worker process.
"""

import gzip
import io
import secrets
import time
from collections.abc import Callable

import httpx2
from PIL import Image

from benchmarks.measure import Finding, is_full_size, measure_seconds
from benchmarks.own_stack import own_stack
from core.queues import Queue
from models import FINISHED

ROWS = 1_000_000 if is_full_size() else 300_000
SHORT_ROWS = 100
MAX_SECONDS = 5.0
_COMPUTING_QUEUES = {Queue.MEDIA, Queue.EXPORT, Queue.BULK}
_PAUSE_SECONDS = 0.5
_WAIT = {"Prefer": "wait=60"}
_PICTURE_SIZE = (220, 150)


def measure() -> list[Finding]:
    with own_stack("short-work") as stack:
        stack.start_api(PRESSROOM_LOG_LEVEL="warning")
        for queues in (_COMPUTING_QUEUES, set(Queue) - _COMPUTING_QUEUES):
            stack.start_worker(*queues, concurrency=1, PRESSROOM_LOG_LEVEL="warning")
        busy, neighbour = stack.create_owner(), stack.create_owner()
        with stack.client(busy.key) as busy_client, stack.client(neighbour.key) as client:
            work = _build_short_work(client)
            job_path = _begin_import(busy_client)
            times = _measure_beside(busy_client, job_path, work)
    return [_build_finding(name, seconds) for name, seconds in times.items()]


def _begin_import(client: httpx2.Client) -> str:
    """Begin the import of many rows, and return the path of its job."""
    rows = "".join(f"long{number}@example.com,Person {number}\n" for number in range(ROWS))
    file = gzip.compress(f"email,name\n{rows}".encode(), 1)
    reply = client.post(
        f"/lists/{_create_list(client)}/imports",
        files={"file": ("members.csv.gz", file)},
        headers={"Prefer": "respond-async"},
    )
    return str(reply.raise_for_status().headers["Location"])


def _create_list(client: httpx2.Client) -> int:
    body = {"title": "A list", "slug": f"list-{secrets.token_hex(4)}"}
    return int(client.post("/lists", json=body).raise_for_status().json()["data"]["id"])


def _build_short_work(client: httpx2.Client) -> dict[str, Callable[[], object]]:
    list_id = _create_list(client)
    picture = io.BytesIO()
    Image.effect_noise(_PICTURE_SIZE, 40).save(picture, "JPEG", quality=80)

    def create_addresses() -> list[str]:
        mark = secrets.token_hex(4)
        return [f"{mark}-{number}@example.org" for number in range(SHORT_ROWS)]

    def add_members() -> None:
        members = [{"email": address} for address in create_addresses()]
        path = f"/auxilia/subscriptions/{list_id}/members/add"
        _require_success(client.post(path, json={"members": members}, headers=_WAIT))

    def preview() -> None:
        file = "\n".join(["email", *create_addresses()]).encode()
        files = {"file": ("members.csv", file)}
        path = f"/lists/{list_id}/imports?dry_run=1"
        _require_success(client.post(path, files=files, headers=_WAIT))

    def upload() -> None:
        files = {"file": ("picture.jpg", picture.getvalue())}
        _require_success(client.post("/attachments", files=files, headers=_WAIT))

    return {"100 members": add_members, "preview": preview, "20 KB picture": upload}


def _require_success(reply: httpx2.Response) -> None:
    assert reply.status_code == 200, f"answered {reply.status_code}: {reply.text[:200]}"


def _measure_beside(
    client: httpx2.Client, job_path: str, work: dict[str, Callable[[], object]]
) -> dict[str, list[float]]:
    """Repeat the short work until the import ends, and return the times of each kind of work."""
    times: dict[str, list[float]] = {name: [] for name in work}
    while True:
        for name, action in work.items():
            times[name].append(measure_seconds(action))
        job = client.get(job_path).raise_for_status().json()["data"]
        if job["status"] in FINISHED:
            assert job["status"] == "succeeded", job["error"]
            return times
        time.sleep(_PAUSE_SECONDS)


def _build_finding(name: str, seconds: list[float]) -> Finding:
    longest = max(seconds)
    is_met = longest <= MAX_SECONDS
    spread = (min(seconds), longest)
    bar = f"each ≤ {MAX_SECONDS:g} s"
    details = {"times": len(seconds)}
    return Finding(
        f"crowded: {name} beside {ROWS:,} rows", longest, "s", bar, is_met, spread, details
    )
