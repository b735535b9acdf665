"""Tests that slow and incomplete uploads use limited time, memory and threads."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import pytest

from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Owner, Stack
from tests.support.images.pictures import photo
from tests.support.lists.subscribers import new_list
from tests.support.security.attackers import read_answer, running_attacker, trickling

MEGABYTE = 1024 * 1024
SLOW_UPLOAD_COUNT = 200


@contextmanager
def slow_upload(
    stack: Stack, owner: Owner, *, declared: int, first_bytes: bytes, address: str = "127.0.0.1"
) -> Iterator[socket.socket]:
    """Open a connection, and send the request head and the first bytes of a file."""
    api_address = ("127.0.0.1", stack.api_port)
    head = (
        "POST /attachments HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {owner.key}\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\n"
        f"Content-Length: {declared}\r\n\r\n"
        '--b\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n'
    )
    with socket.create_connection(
        api_address, timeout=30, source_address=(address, 0)
    ) as connection:
        connection.sendall(head.encode() + first_bytes)
        yield connection


def read_status(upload: socket.socket) -> int:
    return read_answer(upload)[0]


def read_process_status(pid: int, name: str) -> int:
    """Return a value of a process, such as `VmRSS` in kilobytes, from `/proc`."""
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
    assert match is not None
    return int(match[1])


@pytest.mark.parametrize("trickles", [False, True])
def test_silent_or_trickling_upload_ends_with_408(
    impatient_api: tuple[Stack, Running], impatient_owner: Owner, trickles: bool
) -> None:
    with (
        slow_upload(
            impatient_api[0], impatient_owner, declared=100_000, first_bytes=b"x"
        ) as upload,
        trickling(upload) if trickles else nullcontext(),
    ):
        assert read_status(upload) == 408


def test_trickling_import_file_ends_with_408(
    impatient_api: tuple[Stack, Running], impatient_owner: Owner
) -> None:
    stack = impatient_api[0]
    with stack.client(impatient_owner.key) as client:
        path = f"/lists/{new_list(client)['id']}/imports"
    with running_attacker(stack.api_port, "192.0.2.1") as attacker:
        connection = attacker.begin_request(
            f"POST {path}", declares=MEGABYTE, sends=1, key=impatient_owner.key
        )
        with trickling(connection):
            assert read_answer(connection) == (408, "body.too_slow")


def test_slow_uploads_hold_no_threads_and_other_uploads_are_served(
    impatient_api: tuple[Stack, Running], impatient_owner: Owner
) -> None:
    stack, api = impatient_api
    threads = read_process_status(api.pid, "Threads")
    with ExitStack() as opened:
        uploads = [
            opened.enter_context(
                slow_upload(
                    stack, owner, declared=100_000, first_bytes=b"x" * 1000, address=address
                )
            )
            for address, owner in (
                ("127.0.0.2", impatient_owner),
                ("127.0.0.3", stack.create_owner()),
            )
            for _ in range(SLOW_UPLOAD_COUNT // 2)
        ]
        with stack.client(impatient_owner.key) as client:
            reply = client.post("/attachments", files={"file": ("a.jpg", photo())})
        assert reply.status_code == 200, reply.text
        # The API may add threads for short database work, but no thread for a slow upload.
        assert read_process_status(api.pid, "Threads") <= threads + 30
        assert set(map(read_status, uploads)) == {408}


@contextmanager
def waiting_upload(
    stack: Stack, owner: Owner, piece: bytes, address: str = "127.0.0.1"
) -> Iterator[socket.socket]:
    """Start an upload, and keep it open by sending a few bytes at a time."""
    with (
        slow_upload(
            stack, owner, declared=4 * MEGABYTE, first_bytes=piece, address=address
        ) as upload,
        trickling(upload),
    ):
        yield upload


def test_unfinished_bodies_of_one_owner_use_bounded_memory(
    impatient_api: tuple[Stack, Running], impatient_owner: Owner
) -> None:
    stack, api = impatient_api
    before = read_process_status(api.pid, "VmRSS")
    piece = b"x" * (2 * MEGABYTE - 64 * 1024)
    with ExitStack() as opened:
        uploads = [
            opened.enter_context(waiting_upload(stack, impatient_owner, piece)) for _ in range(12)
        ]
        statuses = list(map(read_status, uploads))
    assert statuses.count(429) >= 12 - 4 * MEGABYTE // len(piece)
    assert set(statuses) == {408, 429}
    assert read_process_status(api.pid, "VmRSS") - before < 64 * 1024


def test_unfinished_bodies_of_all_owners_use_bounded_memory(
    impatient_api: tuple[Stack, Running],
) -> None:
    stack, api = impatient_api
    # Create the owners first, so that all uploads start before the first upload times out.
    owners = {f"127.0.0.{number}": stack.create_owner() for number in range(2, 14)}
    before = read_process_status(api.pid, "VmRSS")
    piece = b"x" * (2 * MEGABYTE - 64 * 1024)
    with ExitStack() as opened:
        uploads = [
            opened.enter_context(waiting_upload(stack, owner, piece, address))
            for address, owner in owners.items()
            for _ in range(2)
        ]
        statuses = list(map(read_status, uploads))
    assert statuses.count(503) >= len(uploads) - 32 * MEGABYTE // len(piece)
    assert set(statuses) == {408, 503}
    assert read_process_status(api.pid, "VmRSS") - before < 96 * 1024


def test_body_budget_is_released_after_each_stored_upload(
    impatient_api: tuple[Stack, Running], impatient_owner: Owner
) -> None:
    stack, _ = impatient_api
    large = photo(3000, 2200, quality=92)
    assert len(large) > MEGABYTE
    with stack.client(impatient_owner.key) as client:
        for _ in range(10):
            headers = {"Prefer": "respond-async"}
            files = {"file": ("a.jpg", large)}
            reply = client.post("/attachments", files=files, headers=headers)
            assert reply.status_code in (200, 202), reply.text


def find_originals(stack: Stack) -> set[str]:
    return set(stack.stored("originals/"))


def test_upload_shorter_than_its_content_length_stores_nothing(
    impatient_api: tuple[Stack, Running], impatient_owner: Owner
) -> None:
    stack, _ = impatient_api
    # Some original files may disappear from the object storage during this test, because a worker
    # may delete the original files of other tests.
    before = find_originals(stack)
    with slow_upload(stack, impatient_owner, declared=100_000, first_bytes=b"x") as upload:
        upload.shutdown(socket.SHUT_WR)
        upload.settimeout(10)
        assert upload.recv(4096)[9:12] in (b"", b"400", b"408")
    rows = stack.query(
        "SELECT count(*) FROM attachments WHERE user_id = %s", impatient_owner.user_id
    )
    assert rows == [(0,)]
    assert eventually(lambda: find_originals(stack) <= before)
