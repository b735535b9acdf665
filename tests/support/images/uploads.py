"""Uploads images through the API, also in the background while the test goes on."""

import httpx2

from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from tests.support.images.pictures import photo


def upload(
    stack: Stack,
    owner: Owner,
    *,
    wait: int = 60,
    key: str | None = None,
    picture: bytes | None = None,
    renditions: bool = False,
) -> httpx2.Response:
    headers = {"Prefer": f"wait={wait}"} | ({"Idempotency-Key": key} if key else {})
    files = {"file": ("photo.jpg", picture or photo(320, 240))}
    with stack.client(owner.key) as client:
        params = {"renditions": str(int(renditions))}
        return client.post(
            "/attachments", files=files, headers=headers, params=params, timeout=wait + 30
        )


def await_jobs(stack: Stack, count: int, status: str) -> None:
    statement = "SELECT count(*) FROM jobs WHERE kind = 'attachment.process' AND status = %s"
    eventually(
        lambda: stack.query(statement, status) >= [(count,)], what=f"{count} {status} uploads"
    )


def count_ready_attachments(stack: Stack) -> int:
    rows = stack.query("SELECT count(*) FROM attachments WHERE status = 2")
    return int(str(rows[0][0]))
