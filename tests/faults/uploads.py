"""Uploads as clients make them, some of them while the test does something else."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import httpx

from tests.pictures import photo
from tests.probe.bench import PROBE_WORKER
from tests.stack import Owner, Running, Stack, eventually


def start_media_worker(
    stack: Stack, *, concurrency: int = 1, await_ready: bool = True, **environment: str
) -> Running:
    # The probe's worker, since any worker sweeps jobs of every kind.
    if await_ready:
        return stack.start_worker(
            "media", concurrency=concurrency, module=PROBE_WORKER, **environment
        )
    words = ("worker", "--lane", "media", "--concurrency", str(concurrency))
    return stack.start("worker-media", *words, module=PROBE_WORKER, environment=environment)


def upload(
    stack: Stack,
    owner: Owner,
    *,
    wait: int = 40,
    key: str | None = None,
    picture: bytes | None = None,
) -> httpx.Response:
    headers = {"Prefer": f"wait={wait}"} | ({"Idempotency-Key": key} if key else {})
    files = {"file": ("photo.jpg", picture or photo(320, 240))}
    with stack.client(owner.key) as client:
        return client.post("/attachments", files=files, headers=headers)


@contextmanager
def uploading(
    stack: Stack, owner: Owner, count: int = 1, *, picture: bytes | None = None
) -> Iterator[list[Future[httpx.Response]]]:
    """So many uploads under way; their replies are awaited at the block's end."""
    with ThreadPoolExecutor(count) as threads:
        yield [threads.submit(upload, stack, owner, picture=picture) for _ in range(count)]


def await_jobs(stack: Stack, count: int, status: str) -> None:
    statement = "SELECT count(*) FROM jobs WHERE kind = 'attachment.process' AND status = %s"
    eventually(
        lambda: stack.query(statement, status) >= [(count,)], what=f"{count} {status} uploads"
    )


def ready(stack: Stack) -> int:
    rows = stack.query("SELECT count(*) FROM attachments WHERE status = 2")
    return int(str(rows[0][0]))
