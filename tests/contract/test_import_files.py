"""How a file comes in, what is told of the rows that were not added, and how long that is kept."""

import asyncio
import gzip
import io
import zipfile
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from api.arriving import store_arriving
from api.middleware import limits
from api.middleware.deadlines import DeadlineMiddleware, extend_deadline
from api.middleware.limits import LIMITS, MOST_FILE_BYTES, Body, BodyRefused, Budget
from core import clock
from services import bulk_files, file_links
from services.parts import PART_BYTES
from tests.contract.bulk import (
    OURS,
    addresses,
    counts,
    errors,
    everybody,
    imported,
    objects,
    of_addresses,
    sheet,
    upload,
)
from tests.contract.replies import data, problem
from tests.contract.subscribers import Reader, count, known_member, new_address, new_list
from tests.contract.test_attachments import multipart
from tests.contract.test_body_limits import Raw
from tests.stack import Owner, Stack, eventually

PART = b'name="file"; filename="members.csv"'
FORM = {"Content-Type": 'multipart/form-data; boundary="cut here"'}


def post(client: httpx.Client, list_id: int, content: bytes, **headers: str) -> httpx.Response:
    return client.post(f"/lists/{list_id}/imports", content=content, headers=headers)


# -- the ways in ---------------------------------------------------------------------------------


def test_the_body_itself_may_be_the_file(client: httpx.Client, list_id: int) -> None:
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


def zipped(content: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("members.csv", content)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("m.csv.gz", gzip.compress),
        ("m.zip", zipped),
        ("m.csv", lambda content: content.decode().replace(",", ";").encode("utf-16")),
        ("m.csv", lambda content: b"\xef\xbb\xbf" + content),
    ],
)
def test_files_come_packed_and_in_other_encodings(
    client: httpx.Client, list_id: int, name: str, pack: Any
) -> None:
    email = new_address()
    imported(client, list_id, pack(sheet(["Email", "Name"], [email, "Zoë"])), name)
    assert known_member(client, list_id, email)["name"] == "Zoë"


def test_json_lines_are_read(client: httpx.Client, list_id: int) -> None:
    ada, ben = addresses(2)
    lines = f'{{"email": "{ada}", "name": "Ada"}}\n{{"email": "{ben}", "status": "bounced"}}\n'
    result = imported(client, list_id, lines.encode(), "members.jsonl")
    assert counts(result) == {"received": 2, "added": 1, "opted_out": 1}


def test_a_products_export_is_read_as_it_is(client: httpx.Client, list_id: int) -> None:
    ada, ben = addresses(2)
    header = ["Email Address", "First Name", "Last Name", "MEMBER_RATING", "UNSUB_TIME"]
    rows = ([ada, "Ada", "Lovelace", "2", ""], [ben, "Ben", "B", "2", "2024-01-01 10:00:00"])
    result = imported(client, list_id, sheet(header, *rows), "audience.csv")
    assert counts(result) == {"received": 2, "added": 1, "opted_out": 1}
    assert known_member(client, list_id, ada)["name"] == "Ada Lovelace"


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        (b"", {}, "import.empty"),
        (multipart(PART, b""), FORM, "import.empty"),
        (multipart(b'name="other"; filename="a"', b"x"), FORM, "import.file_missing"),
        (multipart(b'name="file"', b"x"), FORM, "import.file_missing"),
        (multipart(PART, b"x", PART, b"y"), FORM, "import.several_files"),
        (multipart(PART, b"x")[:-8], FORM, "body.malformed"),
        (b"no part at all", FORM, "body.malformed"),
        (multipart(PART, b"x"), {"Content-Type": "multipart/form-data"}, "body.malformed"),
        (b"--" + b"x" * 100_000, FORM, "body.malformed"),
    ],
)
def test_a_body_without_exactly_one_file_is_400_and_leaves_nothing(
    *,
    stack: Stack,
    client: httpx.Client,
    list_id: int,
    body: bytes,
    headers: dict[str, str],
    code: str,
) -> None:
    before = objects(stack)
    problem(post(client, list_id, body, **headers), 400, code)
    assert objects(stack) == before
    assert data(client.get("/imports"))["items"] == []


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"Email,Name\r\n", "import.empty"),
        (b"   \n", "import.empty"),
        (b"Colour,Shape\nred,round\nblue,flat\n", "import.no_email_column"),
        (gzip.compress(of_addresses("a@example.com"))[:-9], "import.truncated"),
    ],
)
def test_a_file_that_cannot_be_read_changes_nothing(
    stack: Stack, client: httpx.Client, list_id: int, content: bytes, code: str
) -> None:
    before = objects(stack)
    problem(upload(client, list_id, content), 422, code)
    assert count(client, list_id) == 0
    [record] = data(client.get("/imports"))["items"]
    assert (record["status"], record["error"]["code"]) == ("failed", code)
    eventually(lambda: objects(stack) == before)


def test_a_name_that_no_file_can_have_is_tidied(client: httpx.Client, list_id: int) -> None:
    reply = client.post(
        f"/lists/{list_id}/imports",
        params={"filename": "../my\0list.csv"},
        content=of_addresses(new_address()),
        headers={"Prefer": "wait=30"},
    )
    import_id = data(reply)["result"]["import_id"]
    assert data(client.get(f"/imports/{import_id}"))["filename"] == "mylist.csv"
    long = {"filename": "x" * 256}
    reply = client.post(f"/lists/{list_id}/imports", params=long, content=b"x")
    assert reply.status_code == 400


def test_a_file_of_several_parts_is_put_together_again(
    stack: Stack, client: httpx.Client, list_id: int
) -> None:
    before, emails = objects(stack), addresses(100)
    # Long cells that nobody reads, so that few rows make a large file.
    rows = [[email, "x" * 90_000] for email in emails]
    content = sheet(["Email", "Notes"], *rows)
    assert PART_BYTES < len(content) < 2 * PART_BYTES
    assert counts(imported(client, list_id, content)) == {"received": 100, "added": 100}
    assert set(everybody(client, list_id)) == set(emails)
    eventually(lambda: objects(stack) == before)


# -- bounds --------------------------------------------------------------------------------------


def test_a_declared_length_over_two_gigabytes_is_refused_before_any_byte(
    stack: Stack, owner: Owner, list_id: int
) -> None:
    head = (
        f"POST /lists/{list_id}/imports HTTP/1.1",
        f"Authorization: Bearer {owner.key}",
        f"Content-Length: {MOST_FILE_BYTES + limits.MULTIPART_OVERHEAD + 1}",
    )
    with Raw(stack, *head) as request:
        status, refusal = request.answer()
    assert (status, refusal["code"], request.sent) == (413, "import.too_large", 0)


class Store:
    """Counts what it is given, and keeps none of it."""

    def __init__(self) -> None:
        self.put_keys: list[str] = []
        self.removed: list[str] = []

    def put(self, key: str, _: bytes, __: str) -> None:
        self.put_keys.append(key)

    def stored(self, prefix: str) -> list[Any]:
        return [type("Stored", (), {"key": key}) for key in self.put_keys if prefix in key]

    def remove(self, key: str) -> None:
        self.removed.append(key)


def arrive(store: Store, pieces: list[bytes]) -> None:
    """What ``store_arriving`` makes of a bare body in these pieces."""
    from fastapi import Request

    async def receive() -> Message:
        body = pieces.pop(0) if pieces else b""
        return {"type": "http.request", "body": body, "more_body": bool(pieces)}

    async def run() -> None:
        scope = {"type": "http", "headers": [], "pressroom.extend_deadline": lambda: None}
        scope["pressroom.body"] = Body(LIMITS[0], receive, Budget(2**40))
        await store_arriving(Request(scope, receive), store, "imports/x", None)  # type: ignore[arg-type]

    asyncio.run(run())


def test_a_file_is_counted_to_the_byte_while_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.arriving.MOST_FILE_BYTES", PART_BYTES + 10)
    fits, over = Store(), Store()
    arrive(fits, [b"x" * PART_BYTES, b"x" * 10])
    assert (len(fits.put_keys), fits.removed) == (2, [])
    with pytest.raises(Exception, match="2 GB"):
        arrive(over, [b"x" * PART_BYTES, b"x" * 11])
    assert over.removed == over.put_keys != []


def test_the_limit_of_an_import_is_two_gigabytes_whatever_is_declared() -> None:
    limit = next(each for each in LIMITS if each.path.match("/lists/7/imports"))
    assert limit.most_bytes == 2 * 1024**3 + limits.MULTIPART_OVERHEAD
    assert (limit.refusal.code, limit.most_seconds) == ("import.too_large", 4 * 3600)
    assert not limit.path.match("/lists/7/imports/x")

    async def run() -> Body:
        pieces = iter([limit.most_bytes - 1, 1, 1])

        class Piece(bytes):
            def __len__(self) -> int:
                return next(pieces)

        async def receive() -> Message:
            return {"type": "http.request", "body": Piece(), "more_body": True}

        body = Body(limit, receive, Budget(2**40))
        await body.receive()
        await body.receive()
        with pytest.raises(BodyRefused):
            await body.receive()
        return body

    assert asyncio.run(run()).refusal is limit.refusal


def test_a_sender_who_hangs_up_in_the_middle_leaves_nothing(
    stack: Stack, owner: Owner, client: httpx.Client, list_id: int
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
    eventually(lambda: objects(stack) == before, what="its removal")
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


# -- what was not added --------------------------------------------------------------------------

MIXED = (
    "Mail,Full name,Notes\r\n"
    '{first},First,"over\nthree\nlines"\r\n'
    "nobody,=2+3,here\r\n"
    "\r\n"
    "{left},Left\r\n"
    "{first},Twice,x,beyond,the header\r\n"
)


@pytest.fixture
def mixed(client: httpx.Client, reader: Reader, list_id: int) -> dict[str, Any]:
    """The result of an import that left some rows out."""
    reader.joins(list_id).leaves(list_id)
    text = MIXED.format(first=new_address(), left=reader.email)
    return imported(client, list_id, text.encode())


def test_errors_have_the_original_columns_and_the_line_where_the_row_begins(
    reader: Reader, mixed: dict[str, Any]
) -> None:
    found = errors(mixed["errors_url"])
    assert list(found[0])[:6] == ["Mail", "Full name", "Notes", *OURS]
    assert [[each[name] for name in ("line", "code")] for each in found] == [
        ["5", "email.invalid"],
        ["7", "member.opted_out"],
        ["8", "row.duplicate"],
    ]
    assert [each["Full name"] for each in found] == ["'=2+3", "Left", "Twice"]
    assert found[1]["Mail"] == reader.email
    assert found[1]["Notes"] == ""
    # What had no column of its own comes after ours.
    assert found[2][None] == ["beyond", "the header"]  # type: ignore[index]


def test_errors_can_be_mended_and_uploaded_again_and_again(
    client: httpx.Client, list_id: int, mixed: dict[str, Any]
) -> None:
    sent = httpx.get(mixed["errors_url"]).content
    again = imported(client, list_id, sent, "errors.csv")
    # The one that came twice in one file is a member by now.
    assert counts(again) == {"received": 3, "already": 1, "opted_out": 1, "invalid": 1}
    mended = new_address()
    sent = httpx.get(again["errors_url"]).content.replace(b"nobody", mended.encode())
    third = imported(client, list_id, sent, "errors.csv")
    assert counts(third) == {"received": 3, "added": 1, "already": 1, "opted_out": 1}
    assert known_member(client, list_id, mended)["name"] == "=2+3"


@pytest.mark.parametrize("name", ["members.csv", "members.jsonl"])
def test_errors_of_files_without_a_header_can_be_uploaded_again(
    client: httpx.Client, list_id: int, name: str
) -> None:
    bad, good = "nobody@", addresses(2)
    if name == "members.csv":
        content = "".join(f"{each},Name\n" for each in (*good, bad)).encode()
    else:
        content = "".join(f'{{"email": "{each}", "n": 1}}\n' for each in (*good, bad)).encode()
    result = imported(client, list_id, content, name)
    assert counts(result) == {"received": 3, "added": 2, "invalid": 1}
    [row] = errors(result["errors_url"])
    assert (row["line"], row["code"]) == ("3", "email.invalid")
    mended = httpx.get(result["errors_url"]).content.replace(b"nobody@", new_address().encode())
    assert counts(imported(client, list_id, mended)) == {"received": 1, "added": 1}


def test_errors_are_a_csv_that_no_page_can_run(mixed: dict[str, Any]) -> None:
    reply = httpx.get(mixed["errors_url"])
    assert reply.headers["content-type"] == "text/csv; charset=utf-8"
    assert reply.headers["content-disposition"].startswith("attachment; ")
    assert reply.headers["cache-control"] == "private, no-store"
    assert reply.headers["x-content-type-options"] == "nosniff"
    head = httpx.head(mixed["errors_url"])
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == reply.headers["content-type"]


def test_a_link_opens_its_own_file_alone_and_not_for_long(
    stack: Stack, client: httpx.Client, list_id: int, mixed: dict[str, Any]
) -> None:
    other = imported(client, list_id, of_addresses("nobody"))["errors_url"]
    mine = httpx.URL(mixed["errors_url"])
    assert mine.host == urlsplit(stack.api_url).hostname
    refused = [
        mine.copy_with(query=b""),
        mine.copy_with(path=urlsplit(other).path),
        mine.copy_set_param("expires", str(int(mine.params["expires"]) + 1)),
        mine.copy_set_param("expires", "x"),
        mine.copy_set_param("signature", "x"),
        mine.copy_set_param("signature", "ä"),
        httpx.URL(link_of(stack, mine.path, age=file_links.LIFETIME)),
    ]
    for url in refused:
        problem(httpx.get(url), 403, "link.invalid")
    almost = link_of(stack, mine.path, age=file_links.LIFETIME - timedelta(seconds=30))
    assert httpx.get(almost).status_code == 200
    # A credential is none for a file, and does no harm.
    problem(client.get(str(mine.copy_with(query=b""))), 403, "link.invalid")
    assert client.get(str(mine)).status_code == 200


def link_of(stack: Stack, path: str, *, age: timedelta) -> str:
    """A link made so long ago."""
    signer = file_links.signer(stack.resources.keyring)
    base = stack.settings().public_base
    return file_links.create(signer, path, base=base, now=clock.now() - age)


def test_each_look_at_a_job_or_an_import_renews_the_link(
    client: httpx.Client, mixed: dict[str, Any]
) -> None:
    job = data(client.get("/jobs"))["items"][0]
    for path in (f"/jobs/{job['id']}", f"/imports/{mixed['import_id']}"):
        shown = data(client.get(path))
        assert errors((shown.get("result") or shown)["errors_url"])


# -- how long it is kept -------------------------------------------------------------------------


def test_files_are_kept_for_seven_days(
    stack: Stack, client: httpx.Client, list_id: int, mixed: dict[str, Any]
) -> None:
    export = data(client.post(f"/lists/{list_id}/exports", json={"kind": "members"}))["result"]
    written = objects(stack, "exports")
    assert written
    bulk_files.sweep(stack.resources, now=clock.now() + timedelta(days=6, hours=23))
    assert errors(mixed["errors_url"])
    assert httpx.get(export["url"]).status_code == 200
    bulk_files.sweep(stack.resources, now=clock.now() + timedelta(days=7, minutes=1))
    problem(httpx.get(mixed["errors_url"]), 404, "import.errors_gone")
    problem(httpx.get(export["url"]), 404, "export.not_found")
    assert objects(stack, "exports") == set()
    assert data(client.get(f"/imports/{mixed['import_id']}"))["invalid"] == 1


def test_what_a_crash_left_behind_is_removed_after_a_day(quiet: Stack) -> None:
    with quiet.client(quiet.new_owner().key) as client:
        list_id = new_list(client)["id"]
        data(upload(client, list_id, of_addresses(new_address()), prefer=None), 202)
    known = objects(quiet)
    for key in ("imports/stray/file/00000", "imports/stray/chunks/000000", "exports/stray/x"):
        quiet.resources.objects.put(key, b"x", "text/plain")
    strays = {key for kind in ("imports", "exports") for key in objects(quiet, kind)} - known
    assert len(strays) == 3
    bulk_files.sweep(quiet.resources, now=clock.now() + timedelta(hours=23))
    assert objects(quiet) | objects(quiet, "exports") == known | strays
    bulk_files.sweep(quiet.resources, now=clock.now() + timedelta(days=30))
    # Somebody still waits for the other one, however long it takes.
    assert objects(quiet) | objects(quiet, "exports") == known
