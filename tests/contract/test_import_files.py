"""How a file comes in, what is told of the rows that were not added, and how long that is kept."""

import asyncio
from typing import Any, cast

import httpx2
import pytest
from starlette.types import Message, Receive, Scope, Send

from api.bodies.upload_stream import store_upload
from api.limits.body_budgets import BodyBudget
from api.middleware import body_limits
from api.middleware.body_limits import LIMITS, BoundedBody
from api.middleware.layers import DeadlineMiddleware, extend_deadline
from core.upload_limits import MAX_IMPORT_FILE_BYTES
from storage.objects import ObjectStore
from storage.parts import PART_BYTES, PartWriter
from tests.contract.bulk import addresses, counts, everybody, imported, objects, sheet, upload
from tests.contract.replies import data, problem
from tests.contract.subscribers import count
from tests.contract.test_attachments import multipart
from tests.contract.test_body_limits import Raw
from tests.pictures import encoded
from tests.stack import Owner, Stack, eventually

PART = b'name="file"; filename="members.csv"'
FORM = {"Content-Type": 'multipart/form-data; boundary="cut here"'}


def post(client: httpx2.Client, list_id: int, content: bytes, **headers: str) -> httpx2.Response:
    return client.post(f"/lists/{list_id}/imports", content=content, headers=headers)


def test_the_body_itself_may_be_the_file(client: httpx2.Client, list_id: int) -> None:
    emails = addresses(3)
    reply = client.post(
        f"/lists/{list_id}/imports",
        params={"filename": "people.tsv"},
        content="\n".join(["Email\tName", *(f"{email}\tN" for email in emails)]).encode(),
        headers={"Prefer": "wait=30"},
    )
    result = data(reply)["result"]
    assert counts(result) == {"received": 3, "added": 3}
    shown = data(client.get(f"/imports/{result['import_id']}"))
    assert (shown["filename"], shown["description"]["delimiter"]) == ("people.tsv", "\t")


def test_a_body_without_exactly_one_file_is_400_and_leaves_nothing(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    for body, headers, code in [
        (b"", {}, "import.empty"),
        (multipart(PART, b""), FORM, "import.empty"),
        (multipart(b'name="other"; filename="a"', b"x"), FORM, "import.file_missing"),
        (multipart(b'name="file"', b"x"), FORM, "import.file_missing"),
        (multipart(PART, b"x", PART, b"y"), FORM, "import.several_files"),
        (multipart(PART, b"x")[:-8], FORM, "body.malformed"),
        (b"no part at all", FORM, "body.malformed"),
        (multipart(PART, b"x"), {"Content-Type": "multipart/form-data"}, "body.malformed"),
        (b"--" + b"x" * 100_000, FORM, "body.malformed"),
    ]:
        before = objects(stack)
        problem(post(client, list_id, body, **headers), 400, code)
        assert objects(stack) <= before
        assert data(client.get("/imports"))["items"] == []


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (b"Colour,Shape\nred,round\n", "import.no_email_column", "Colour"),
        (encoded("JPEG"), "import.unknown_format", "This is a picture (JPEG). "),
        (b'{"email": \n', "import.no_readable_row", "Line 1: Not JSON: "),
    ],
    ids=["table", "jpeg", "json"],
)
def test_a_file_that_cannot_be_read_changes_nothing(
    stack: Stack, client: httpx2.Client, list_id: int, *, content: bytes, code: str, said: str
) -> None:
    before = objects(stack)
    assert said in problem(upload(client, list_id, content), 422, code)["message"]
    assert count(client, list_id) == 0
    [record] = data(client.get("/imports"))["items"]
    assert (record["status"], record["error"]["code"]) == ("failed", code)
    eventually(lambda: objects(stack) <= before)


def test_a_file_of_several_parts_is_put_together_again(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    before, emails = objects(stack), addresses(100)
    # Long cells that nobody reads, so that few rows make a large file.
    rows = [[email, "x" * 90_000] for email in emails]
    content = sheet(["Email", "Notes"], *rows)
    assert PART_BYTES < len(content) < 2 * PART_BYTES
    assert counts(imported(client, list_id, content)) == {"received": 100, "added": 100}
    assert set(everybody(client, list_id)) == set(emails)
    eventually(lambda: objects(stack) <= before)


def test_a_declared_length_over_two_gigabytes_is_refused_before_any_byte(
    stack: Stack, owner: Owner, list_id: int
) -> None:
    head = (
        f"POST /lists/{list_id}/imports HTTP/1.1",
        f"Authorization: Bearer {owner.key}",
        f"Content-Length: {MAX_IMPORT_FILE_BYTES + body_limits.MULTIPART_OVERHEAD_BYTES + 1}",
    )
    with Raw(stack, *head) as request:
        status, error = request.answer()
    assert (status, error["code"], request.sent) == (413, "import.too_large", 0)


class Store:
    """Counts what it is given, and keeps none of it."""

    def __init__(self) -> None:
        self.put_keys: list[str] = []
        self.forgotten: list[str] = []

    def put(self, key: str, _: bytes, __: str) -> None:
        self.put_keys.append(key)


def arrive(store: Store, pieces: list[bytes]) -> None:
    """What ``store_upload`` makes of a bare body in these pieces."""
    from fastapi import Request

    async def receive() -> Message:
        body = pieces.pop(0) if pieces else b""
        return {"type": "http.request", "body": body, "more_body": bool(pieces)}

    async def run() -> None:
        scope = {"type": "http", "headers": [], "pressroom.extend_deadline": lambda: None}
        scope["pressroom.body"] = BoundedBody(LIMITS[0], receive, BodyBudget())
        writer = PartWriter(cast("ObjectStore", store), "imports/x", b"k" * 32)
        forget = store.forgotten.append
        await store_upload(Request(scope, receive), writer, None, forget, caller_id=1)

    asyncio.run(run())


def test_a_file_is_counted_to_the_byte_while_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.bodies.upload_stream.MAX_IMPORT_FILE_BYTES", PART_BYTES + 10)
    fits, over = Store(), Store()
    arrive(fits, [b"x" * PART_BYTES, b"x" * 10])
    assert (len(fits.put_keys), fits.forgotten) == (2, [])
    with pytest.raises(Exception, match="2 GB"):
        arrive(over, [b"x" * PART_BYTES, b"x" * 11])
    assert over.forgotten == ["imports/x"]


def test_a_sender_who_hangs_up_in_the_middle_leaves_nothing(
    stack: Stack, owner: Owner, client: httpx2.Client, list_id: int
) -> None:
    before = objects(stack)
    head = (
        f"POST /lists/{list_id}/imports HTTP/1.1",
        f"Authorization: Bearer {owner.key}",
        f"Content-Length: {3 * PART_BYTES}",
    )
    with Raw(stack, *head) as request:
        request.send(b"x" * (PART_BYTES + 1000))
        eventually(lambda: objects(stack) - before, what="the first part")
    eventually(lambda: objects(stack) <= before, what="its removal")
    assert data(client.get("/imports"))["items"] == []


def within(seconds: float, app: Any) -> list[Message]:
    """What is sent by an application that has so long to begin its answer."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/", "method": "POST", "headers": [], "state": {}}
    asyncio.run(DeadlineMiddleware(app, seconds)(scope, receive, send))
    return sent


def test_a_body_that_goes_on_arriving_is_not_cut_by_the_deadline() -> None:
    async def arriving(scope: Scope, _: Receive, send: Send) -> None:
        for _piece in range(8):
            await asyncio.sleep(0.05)
            extend_deadline(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def silent(_: Scope, __: Receive, ___: Send) -> None:
        await asyncio.sleep(10)

    assert within(0.2, arriving)[0]["status"] == 200
    assert within(0.2, silent)[0]["status"] == 504
