"""Tests of uploading and deleting files to import, and of error files with rejected rows."""

import asyncio
import codecs
from datetime import timedelta
from typing import Any, cast

import httpx2
import pytest
from starlette.types import Message, Receive, Scope, Send

from api.bodies.upload_stream import store_upload
from api.limits.body_budgets import BodyBudget
from api.middleware.body_limits import LIMITS, BoundedBody
from api.middleware.deadlines import DeadlineMiddleware, extend_deadline
from core import clock
from core.ids import AccountId
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from services.subscriptions import bulk_files
from storage.objects import ObjectStore
from storage.parts import PART_BYTES, PartWriter
from tests.support.http.multipart import MULTIPART_HEADER, make_multipart
from tests.support.http.raw_requests import RawRequest
from tests.support.http.replies import data, problem
from tests.support.images.pictures import encoded
from tests.support.imports.bulk import (
    ADDED_COLUMNS,
    active_members,
    build_address_file,
    build_addresses,
    build_csv,
    fetch_rejected_rows,
    import_members_file,
    list_stored_keys,
    nonzero_counts,
    upload,
)
from tests.support.lists.subscribers import (
    Reader,
    new_address,
    new_list,
    read_subscriber_count,
    require_member,
)

PART = b'name="file"; filename="members.csv"'


def test_import_accepts_a_raw_request_body_as_file(client: httpx2.Client, list_id: int) -> None:
    emails = build_addresses(3)
    reply = client.post(
        f"/lists/{list_id}/imports",
        params={"filename": "people.tsv"},
        content="\n".join(["Email\tName", *(f"{email}\tN" for email in emails)]).encode(),
        headers={"Prefer": "wait=30"},
    )
    result = data(reply)["result"]
    assert nonzero_counts(result) == {"received": 3, "added": 3}
    record = data(client.get(f"/imports/{result['import_id']}"))
    assert (record["filename"], record["description"]["delimiter"]) == ("people.tsv", "\t")


def test_import_decodes_an_encoded_filename_and_derives_the_delimiter(
    client: httpx2.Client, list_id: int
) -> None:
    [email] = build_addresses(1)
    rows = f"Email\tA,B\n{email}\tx,y\n".encode()
    body = make_multipart(b"name=file; filename*=utf-8''%C3%A9t%C3%A9.tsv", rows)
    headers = {"Prefer": "wait=30", **MULTIPART_HEADER}
    reply = client.post(f"/lists/{list_id}/imports", content=body, headers=headers)
    record = data(client.get(f"/imports/{data(reply)['result']['import_id']}"))
    assert (record["filename"], record["description"]["delimiter"]) == ("été.tsv", "\t")


def test_import_rejects_a_body_without_exactly_one_file_and_stores_nothing(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    for body, headers, error_code in [
        (b"", {}, "import.empty"),
        (make_multipart(PART, b""), MULTIPART_HEADER, "import.empty"),
        (
            make_multipart(b'name="other"; filename="a"', b"x"),
            MULTIPART_HEADER,
            "import.file_missing",
        ),
        (make_multipart(b'name="file"', b"x"), MULTIPART_HEADER, "import.file_missing"),
        (make_multipart(PART, b"x", PART, b"y"), MULTIPART_HEADER, "import.several_files"),
        (make_multipart(PART, b"x")[:-8], MULTIPART_HEADER, "body.malformed"),
        (b"no part at all", MULTIPART_HEADER, "body.malformed"),
        (make_multipart(PART, b"x"), {"Content-Type": "multipart/form-data"}, "body.malformed"),
        (b"--" + b"x" * 100_000, MULTIPART_HEADER, "body.malformed"),
    ]:
        objects_before = list_stored_keys(stack)
        reply = client.post(f"/lists/{list_id}/imports", content=body, headers=headers)
        problem(reply, 400, error_code)
        assert list_stored_keys(stack) <= objects_before
        assert data(client.get("/imports"))["items"] == []


@pytest.mark.parametrize(
    ("content", "code", "expected_text"),
    [
        (b"Colour,Shape\nred,round\n", "import.no_email_column", "Colour"),
        (encoded("JPEG"), "import.unknown_format", "The file is a picture (JPEG). "),
        (b'{"email": \n', "import.no_readable_row", "Line 1: Invalid JSON: "),
    ],
    ids=["table", "jpeg", "json"],
)
def test_import_of_an_unreadable_file_fails_and_adds_nobody(
    stack: Stack,
    client: httpx2.Client,
    list_id: int,
    *,
    content: bytes,
    code: str,
    expected_text: str,
) -> None:
    objects_before = list_stored_keys(stack)
    assert expected_text in problem(upload(client, list_id, content), 422, code)["message"]
    assert read_subscriber_count(client, list_id) == 0
    [record] = data(client.get("/imports"))["items"]
    assert (record["status"], record["error"]["code"]) == ("failed", code)
    eventually(lambda: list_stored_keys(stack) <= objects_before)


def test_import_reassembles_a_file_that_was_stored_in_several_parts(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    objects_before = list_stored_keys(stack)
    emails = build_addresses(100)
    # Long cells in an ignored column make a large file with few rows.
    rows = [[email, "x" * 90_000] for email in emails]
    content = build_csv(["Email", "Notes"], *rows)
    assert PART_BYTES < len(content) < 2 * PART_BYTES
    assert nonzero_counts(import_members_file(client, list_id, content)) == {
        "received": 100,
        "added": 100,
    }
    assert set(active_members(client, list_id)) == set(emails)
    eventually(lambda: list_stored_keys(stack) <= objects_before)


class RecordingStore:
    """An object store that records the keys of uploaded objects and discards their content."""

    def __init__(self) -> None:
        self.put_keys: list[str] = []
        self.removed_prefixes: list[str] = []

    def put(self, key: str, _: bytes, __: str) -> None:
        self.put_keys.append(key)


def send_upload(store: RecordingStore, pieces: list[bytes]) -> None:
    """Send a request body in pieces to ``store_upload``."""
    from fastapi import Request

    async def receive() -> Message:
        body = pieces.pop(0) if pieces else b""
        return {"type": "http.request", "body": body, "more_body": bool(pieces)}

    async def run() -> None:
        scope = {"type": "http", "headers": [], "pressroom.extend_deadline": lambda: None}
        scope["pressroom.body"] = BoundedBody(LIMITS[0], receive, BodyBudget())
        writer = PartWriter(cast("ObjectStore", store), "imports/x", b"k" * 32)
        remove_prefix = store.removed_prefixes.append
        await store_upload(
            Request(scope, receive), writer, None, remove_prefix, account_id=AccountId(1)
        )

    asyncio.run(run())


def test_import_upload_enforces_the_size_limit_to_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.bodies.upload_stream.MAX_IMPORT_FILE_BYTES", PART_BYTES + 10)
    store = RecordingStore()
    send_upload(store, [b"x" * PART_BYTES, b"x" * 10])
    assert (len(store.put_keys), store.removed_prefixes) == (2, [])
    store = RecordingStore()
    with pytest.raises(Exception, match="2 GB"):
        send_upload(store, [b"x" * PART_BYTES, b"x" * 11])
    assert store.removed_prefixes == ["imports/x"]


def test_interrupted_import_upload_leaves_no_stored_parts(
    stack: Stack, owner: Owner, client: httpx2.Client, list_id: int
) -> None:
    objects_before = list_stored_keys(stack)
    head = (
        f"POST /lists/{list_id}/imports HTTP/1.1",
        f"Authorization: Bearer {owner.key}",
        f"Content-Length: {3 * PART_BYTES}",
    )
    with RawRequest(stack, *head) as request:
        request.send(b"x" * (PART_BYTES + 1000))
        eventually(lambda: list_stored_keys(stack) - objects_before, what="the first part")
    eventually(lambda: list_stored_keys(stack) <= objects_before, what="the removal of the part")
    assert data(client.get("/imports"))["items"] == []


def run_with_deadline(seconds: float, app: Any) -> list[Message]:
    """Return the messages of an application that must begin its response within ``seconds``."""
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    scope = {"type": "http", "path": "/", "method": "POST", "headers": [], "state": {}}
    asyncio.run(DeadlineMiddleware(app, seconds)(scope, receive, send))
    return messages


def test_request_deadline_is_extended_while_the_body_keeps_arriving() -> None:
    async def app_with_arriving_body(scope: Scope, _: Receive, send: Send) -> None:
        for _piece in range(8):
            await asyncio.sleep(0.05)
            extend_deadline(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def app_without_body(_: Scope, __: Receive, ___: Send) -> None:
        await asyncio.sleep(10)

    assert run_with_deadline(0.2, app_with_arriving_body)[0]["status"] == 200
    assert run_with_deadline(0.2, app_without_body)[0]["status"] == 504


FILE_WITH_REJECTED_ROWS = (
    "Mail,Full name,Notes\r\n"
    '{first},First,"over\nthree\nlines"\r\n'
    "nobody,=2+3,here\r\n"
    "\r\n"
    "{left},Left\r\n"
    "{first},Twice,x,beyond,the header\r\n"
)


@pytest.fixture
def result_with_rejected_rows(
    client: httpx2.Client, reader: Reader, list_id: int
) -> dict[str, Any]:
    """The result of an import in which three rows were rejected."""
    reader.joins(list_id).leaves(list_id)
    text = FILE_WITH_REJECTED_ROWS.format(first=new_address(), left=reader.email)
    return import_members_file(client, list_id, text.encode())


def test_import_error_file_keeps_original_columns_and_names_the_line_of_each_row(
    reader: Reader, result_with_rejected_rows: dict[str, Any]
) -> None:
    rejected_rows = fetch_rejected_rows(result_with_rejected_rows["errors_url"])
    assert list(rejected_rows[0])[:6] == ["Mail", "Full name", "Notes", *ADDED_COLUMNS]
    assert [[each[name] for name in ("line", "code")] for each in rejected_rows] == [
        ["5", "email.invalid"],
        ["7", "member.opted_out"],
        ["8", "row.duplicate"],
    ]
    assert [each["Full name"] for each in rejected_rows] == ["'=2+3", "Left", "Twice"]
    assert rejected_rows[1]["Mail"] == reader.email
    assert rejected_rows[1]["Notes"] == ""
    # Cells beyond the header come after the columns that Pressroom adds.
    assert [*rejected_rows[2].values()][-1] == ["beyond", "the header"]


def test_import_error_file_can_be_corrected_and_imported_again(
    client: httpx2.Client, list_id: int, result_with_rejected_rows: dict[str, Any]
) -> None:
    error_file = httpx2.get(result_with_rejected_rows["errors_url"]).content
    # Without a byte-order mark, Excel would decode the file as Windows-1252.
    assert (error_file.startswith(codecs.BOM_UTF8), error_file.count(codecs.BOM_UTF8)) == (True, 1)
    second_result = import_members_file(client, list_id, error_file, "errors.csv")
    # The address that the file contained twice belongs to a member by now.
    assert nonzero_counts(second_result) == {
        "received": 3,
        "already": 1,
        "opted_out": 1,
        "invalid": 1,
    }
    corrected_email = new_address()
    error_file = httpx2.get(second_result["errors_url"]).content
    corrected_file = error_file.replace(b"nobody", corrected_email.encode())
    third_result = import_members_file(client, list_id, corrected_file, "errors.csv")
    assert nonzero_counts(third_result) == {"received": 3, "added": 1, "already": 1, "opted_out": 1}
    assert require_member(client, list_id, corrected_email)["name"] == "=2+3"
    assert [each["name"] for each in third_result["columns"]][:3] == ["Mail", "Full name", "Notes"]


def test_import_error_file_is_a_csv_download_that_must_not_be_cached(
    result_with_rejected_rows: dict[str, Any],
) -> None:
    reply = httpx2.get(result_with_rejected_rows["errors_url"])
    assert reply.headers["content-type"] == "text/csv; charset=utf-8"
    assert reply.headers["content-disposition"].startswith("attachment; ")
    assert reply.headers["cache-control"] == "private, no-store"
    assert reply.headers["x-content-type-options"] == "nosniff"
    head = httpx2.head(result_with_rejected_rows["errors_url"])
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == reply.headers["content-type"]


def test_import_error_file_link_is_renewed_by_each_request_of_the_job_or_import(
    client: httpx2.Client, result_with_rejected_rows: dict[str, Any]
) -> None:
    job = data(client.get("/jobs"))["items"][0]
    for path in (f"/jobs/{job['id']}", f"/imports/{result_with_rejected_rows['import_id']}"):
        record = data(client.get(path))
        assert fetch_rejected_rows((record.get("result") or record)["errors_url"])


def test_import_and_export_files_are_deleted_seven_days_after_completion(
    stack: Stack, client: httpx2.Client, list_id: int, result_with_rejected_rows: dict[str, Any]
) -> None:
    export = data(client.post(f"/lists/{list_id}/exports", json={"kind": "members"}))["result"]
    export_objects = list_stored_keys(stack, "exports")
    assert export_objects
    # The files of an export are kept for seven days after the end of the export, and not after its
    # creation, because the export may have waited long for a worker.
    stack.query("UPDATE exports SET created_at = now() - interval '20 days'")
    bulk_files.remove_old_files(stack.resources, now=clock.now() + timedelta(days=6, hours=23))
    assert fetch_rejected_rows(result_with_rejected_rows["errors_url"])
    assert httpx2.get(export["url"]).status_code == 200
    bulk_files.remove_old_files(stack.resources, now=clock.now() + timedelta(days=7, minutes=1))
    problem(httpx2.get(result_with_rejected_rows["errors_url"]), 404, "import.errors_gone")
    problem(httpx2.get(export["url"]), 404, "export.not_found")
    assert list_stored_keys(stack, "exports") == set()
    # The data key is deleted too, so that a copy of the file elsewhere can't be decrypted.
    for table in ("imports", "exports"):
        wrapped_keys = stack.query(
            f"SELECT DISTINCT wrapped_key FROM {table} WHERE files_removed_at IS NOT NULL"
        )
        assert wrapped_keys == [(None,)]
    assert data(client.get(f"/imports/{result_with_rejected_rows['import_id']}"))["invalid"] == 1


def test_files_left_by_a_crash_are_deleted_but_files_of_queued_imports_are_kept(
    stack_without_workers: Stack,
) -> None:
    earlier_objects = list_stored_objects(stack_without_workers)
    with stack_without_workers.client(stack_without_workers.create_owner().key) as client:
        list_id = new_list(client)["id"]
        data(upload(client, list_id, build_address_file(new_address()), prefer=None), 202)
    import_objects = list_stored_objects(stack_without_workers) - earlier_objects
    for key in ("imports/stray/file/00000", "imports/stray/chunks/000000", "exports/stray/x"):
        stack_without_workers.resources.objects.put(key, b"x", "text/plain")
    stray_objects = list_stored_objects(stack_without_workers) - earlier_objects - import_objects
    assert (len(import_objects), len(stray_objects)) == (1, 3)
    bulk_files.remove_old_files(
        stack_without_workers.resources, now=clock.now() + timedelta(hours=23)
    )
    assert import_objects | stray_objects <= list_stored_objects(stack_without_workers)
    bulk_files.remove_old_files(
        stack_without_workers.resources, now=clock.now() + timedelta(days=30)
    )
    # The file of the queued import is kept, however long the import waits for a worker.
    remaining_objects = list_stored_objects(stack_without_workers)
    assert remaining_objects & (import_objects | stray_objects) == import_objects


def list_stored_objects(stack: Stack) -> set[str]:
    return list_stored_keys(stack) | list_stored_keys(stack, "exports")
