"""What is told of the rows that were not added, by a link, and how long files are kept."""

from datetime import timedelta
from typing import Any

import httpx2
import pytest

from core import clock
from services.subscriptions import bulk_files
from tests.contract.bulk import OURS, counts, errors, imported, objects, of_addresses, upload
from tests.contract.replies import data, problem
from tests.contract.subscribers import Reader, known_member, new_address, new_list
from tests.stack import Stack

MIXED = (
    "Mail,Full name,Notes\r\n"
    '{first},First,"over\nthree\nlines"\r\n'
    "nobody,=2+3,here\r\n"
    "\r\n"
    "{left},Left\r\n"
    "{first},Twice,x,beyond,the header\r\n"
)


@pytest.fixture
def mixed(client: httpx2.Client, reader: Reader, list_id: int) -> dict[str, Any]:
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
    assert [*found[2].values()][-1] == ["beyond", "the header"]


def test_errors_can_be_mended_and_uploaded_again_and_again(
    client: httpx2.Client, list_id: int, mixed: dict[str, Any]
) -> None:
    sent = httpx2.get(mixed["errors_url"]).content
    again = imported(client, list_id, sent, "errors.csv")
    # The one that came twice in one file is a member by now.
    assert counts(again) == {"received": 3, "already": 1, "opted_out": 1, "invalid": 1}
    mended = new_address()
    sent = httpx2.get(again["errors_url"]).content.replace(b"nobody", mended.encode())
    third = imported(client, list_id, sent, "errors.csv")
    assert counts(third) == {"received": 3, "added": 1, "already": 1, "opted_out": 1}
    assert known_member(client, list_id, mended)["name"] == "=2+3"


def test_errors_are_a_csv_that_no_page_can_run(mixed: dict[str, Any]) -> None:
    reply = httpx2.get(mixed["errors_url"])
    assert reply.headers["content-type"] == "text/csv; charset=utf-8"
    assert reply.headers["content-disposition"].startswith("attachment; ")
    assert reply.headers["cache-control"] == "private, no-store"
    assert reply.headers["x-content-type-options"] == "nosniff"
    head = httpx2.head(mixed["errors_url"])
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == reply.headers["content-type"]


def test_each_look_at_a_job_or_an_import_renews_the_link(
    client: httpx2.Client, mixed: dict[str, Any]
) -> None:
    job = data(client.get("/jobs"))["items"][0]
    for path in (f"/jobs/{job['id']}", f"/imports/{mixed['import_id']}"):
        shown = data(client.get(path))
        assert errors((shown.get("result") or shown)["errors_url"])


def test_files_are_kept_for_seven_days(
    stack: Stack, client: httpx2.Client, list_id: int, mixed: dict[str, Any]
) -> None:
    export = data(client.post(f"/lists/{list_id}/exports", json={"kind": "members"}))["result"]
    written = objects(stack, "exports")
    assert written
    # Counted from the end: a job may wait for a server for long.
    stack.query("UPDATE exports SET created_at = now() - interval '20 days'")
    bulk_files.sweep(stack.resources, now=clock.now() + timedelta(days=6, hours=23))
    assert errors(mixed["errors_url"])
    assert httpx2.get(export["url"]).status_code == 200
    bulk_files.sweep(stack.resources, now=clock.now() + timedelta(days=7, minutes=1))
    problem(httpx2.get(mixed["errors_url"]), 404, "import.errors_gone")
    problem(httpx2.get(export["url"]), 404, "export.not_found")
    assert objects(stack, "exports") == set()
    # A copy of the file that was kept elsewhere opens no more.
    for table in ("imports", "exports"):
        keys = stack.query(
            f"SELECT DISTINCT wrapped_key FROM {table} WHERE files_removed_at IS NOT NULL"
        )
        assert keys == [(None,)]
    assert data(client.get(f"/imports/{mixed['import_id']}"))["invalid"] == 1


def test_what_a_crash_left_behind_is_removed_after_a_day(quiet: Stack) -> None:
    of_others = stored(quiet)
    with quiet.client(quiet.new_owner().key) as client:
        list_id = new_list(client)["id"]
        data(upload(client, list_id, of_addresses(new_address()), prefer=None), 202)
    own = stored(quiet) - of_others
    for key in ("imports/stray/file/00000", "imports/stray/chunks/000000", "exports/stray/x"):
        quiet.resources.objects.put(key, b"x", "text/plain")
    strays = stored(quiet) - of_others - own
    assert (len(own), len(strays)) == (1, 3)
    bulk_files.sweep(quiet.resources, now=clock.now() + timedelta(hours=23))
    assert own | strays <= stored(quiet)
    bulk_files.sweep(quiet.resources, now=clock.now() + timedelta(days=30))
    # The import still waits for a worker, however long it takes.
    assert stored(quiet) & (own | strays) == own


def stored(stack: Stack) -> set[str]:
    return objects(stack) | objects(stack, "exports")
