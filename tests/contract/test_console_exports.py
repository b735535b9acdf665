"""Tests of the console pages for exports: start, progress, download, cancellation and expiry."""

import codecs
import gzip
import re
from typing import Any
from urllib.parse import urlsplit

import httpx2

from core.errors.jobs import JOB_GIVEN_UP
from core.scopes import Scope
from devstack.harness.stack import Stack
from services.subscriptions.export_sheets import ExportKind
from services.subscriptions.exports import EXPORT_JOBS
from tests.support.http.replies import data
from tests.support.imports.bulk import (
    build_address_file,
    build_csv,
    export,
    fail_job,
    fetch_rows,
    import_members_file,
)
from tests.support.lists.segments import new_segment
from tests.support.lists.subscribers import new_list
from tests.support.people.consoles import (
    REFRESH_LINK_END,
    RUNNING_MARK,
    OwnerAtConsole,
    at_console,
    await_ended_page,
    heading,
    read_page,
    rows_of,
)
from tests.support.people.visiting import age_logins


def export_path(list_id: Any) -> str:
    return f"/console/lists/{list_id}/export"


def start_export(console: OwnerAtConsole, list_id: Any, **form_values: str) -> str:
    """Start an export, and return the path of its page."""
    reply = console.send(export_path(list_id), **form_values)
    assert reply.status_code == 303, reply.text
    return urlsplit(reply.headers["location"]).path


def download_rows(console: OwnerAtConsole, path: str) -> list[dict[str, str]]:
    reply = console.visitor.get(f"{path}/file")
    assert reply.status_code == 303, reply.text
    # Excel recognises UTF-8 only by the byte-order mark.
    file = gzip.decompress(httpx2.get(reply.headers["location"]).content)
    assert file.startswith(codecs.BOM_UTF8)
    return fetch_rows(reply.headers["location"])


def test_console_exports_page_explains_the_empty_state(console: OwnerAtConsole) -> None:
    assert "Create your first list" in console.see("/console/exports")
    list_id = new_list(console.api, title="The Daily Demo")["id"]
    text = console.see("/console/exports")
    assert "An export is a file with the members of a list" in text
    assert export_path(list_id) in text
    assert heading(console.see(export_path(list_id))) == "Export The Daily Demo"


def test_console_exports_a_list_and_offers_the_file_for_download(console: OwnerAtConsole) -> None:
    list_id = new_list(console.api, title="The Daily Demo")["id"]
    import_members_file(
        console.api, list_id, build_address_file("ada@example.com", "bea@example.com")
    )
    path = start_export(console, list_id)
    text = await_ended_page(console, path)
    assert "<b>2</b> rows" in text
    assert "in 6 days" in text or "in 7 days" in text
    assert {row["email"] for row in download_rows(console, path)} == {
        "ada@example.com",
        "bea@example.com",
    }
    [row] = [each for each in rows_of(console.see("/console/exports")) if "Demo" in each[1]]
    assert row[:2] == ["Members", "The Daily Demo"]
    assert row[3] == "2"
    assert row[5].startswith("Download expires in ")
    assert f'{path}/file"' in console.see("/console/exports")


def test_pages_of_an_export_and_an_import_show_the_menu_of_their_list(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    result = import_members_file(console.api, list_id, build_address_file("ada@example.com"))
    import_path = f"/console/imports/{result['import_id']}"
    paths = (start_export(console, list_id), import_path, f"{import_path}/undo")
    for path in paths:
        [menu] = re.findall(r'<ul aria-label="This list">.*?</ul>', console.see(path), re.DOTALL)
        assert f'/console/lists/{list_id}/members" aria-current="true"' in menu
    assert 'aria-label="This list"' not in console.see("/console/imports")
    # The pages of an archived list no longer exist.
    console.do(f"/console/lists/{list_id}/archive")
    for path in paths[:2]:
        assert 'aria-label="This list"' not in console.see(path)


def test_console_exports_only_members_of_the_chosen_segment_and_status(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    content = build_csv(["Email", "Name"], ["ada@x.example", "Ada"], ["b@x.example", "B"])
    import_members_file(console.api, list_id, content)
    segment = new_segment(console.api, list_id, {"field": "name", "is": "Ada"}, "Called Ada")
    assert "Called Ada" in console.see(export_path(list_id))
    path = start_export(console, list_id, segment_id=str(segment["id"]))
    await_ended_page(console, path)
    assert [row["email"] for row in download_rows(console, path)] == ["ada@x.example"]
    assert "Segment “<bdi>Called Ada</bdi>”, CSV" in console.see(path)
    path = start_export(console, list_id, status_unsubscribed="on")
    assert "<b>0</b> rows" in await_ended_page(console, path)
    assert "Members (unsubscribed), CSV" in console.see(path)
    rows = rows_of(console.see("/console/exports"))
    assert [row[0] for row in rows[1:]] == ["Members Unsubscribed", "Segment “ Called Ada ”"]
    # An export stores a copy of the segment's filter. If the segment gets a different filter later,
    # the list of exports no longer shows the segment's name.
    changes = {"filter": {"field": "name", "is": "B"}}
    data(console.api.patch(f"/lists/{list_id}/segments/{segment['id']}", json=changes))
    assert rows_of(console.see("/console/exports"))[2][0] == "Members of a segment"


def test_console_names_the_mailing_of_each_export_of_recipients(
    stack: Stack, console: OwnerAtConsole
) -> None:
    list_id = new_list(console.api)["id"]
    key = stack.create_key(console.owner.user_id, Scope.DELIVERY)
    with stack.client(key) as sending_app:
        data(
            sending_app.post(
                f"/lists/{list_id}/exports", json={"kind": "delivery", "label": "Tea <in> May"}
            ),
            200,
            202,
        )
    [_, row] = rows_of(console.see("/console/exports"))
    assert row[0] == "Recipients of “ Tea <in> May ”"


def test_console_rejects_an_unknown_export_format_and_keeps_the_input(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    reply = console.send(export_path(list_id), format="pdf", status_active="on")
    text = read_page(reply, 422)
    assert "Please correct the fields below" in text
    assert 'name="status_active" value="on" checked' in text


def test_console_export_requires_a_recent_login(console: OwnerAtConsole, stack: Stack) -> None:
    list_id = new_list(console.api)["id"]
    path = start_export(console, list_id)
    await_ended_page(console, path)
    age_logins(stack, console.owner.email, 16)
    for protected_path in (export_path(list_id), f"{path}/file"):
        reply = console.visitor.get(protected_path)
        assert reply.status_code == 303
        assert "again=yes" in reply.headers["location"]
    # The page that shows the finished export needs no recent login.
    assert "The file is ready" in console.see(path)


def test_console_export_page_reports_an_expired_file(console: OwnerAtConsole, stack: Stack) -> None:
    list_id = new_list(console.api)["id"]
    path = start_export(console, list_id)
    await_ended_page(console, path)
    statement = "UPDATE exports SET finished_at = now() - interval '7 days' WHERE id = %s"
    stack.query(statement, path.rpartition("/")[2])
    text = console.see(path)
    assert "The file has expired" in text
    assert f"{path}/file" not in text
    console.see(f"{path}/file", 404)
    assert "expired" in console.see("/console/exports")


def test_console_export_page_cancels_a_running_export_and_explains_a_failed_export(
    stack_without_workers: Stack,
) -> None:
    with at_console(stack_without_workers) as console:
        list_id = new_list(console.api)["id"]
        path = start_export(console, list_id)
        text = console.see(path)
        assert RUNNING_MARK in text
        assert REFRESH_LINK_END in text
        assert "The export is being cancelled." in console.do(path)
        assert "No file was created" in await_ended_page(console, path)
        data(export(console.api, list_id, "members", Prefer="respond-async"), 202)
        [job] = data(console.api.get("/jobs", params={"limit": 1}))["items"]
        assert job["kind"] == EXPORT_JOBS[ExportKind.MEMBERS].name
        fail_job(stack_without_workers, job["id"], JOB_GIVEN_UP(reason="It broke.", hours=24))
        [(newest_id,)] = stack_without_workers.query("SELECT max(id) FROM exports")
        text = console.see(f"/console/exports/{newest_id}")
        assert "No file was created" in text
        assert "It broke." in text
        # The page also shows a retry that the owner requested through the API.
        data(console.api.post(f"/jobs/{job['id']}/retry"))
        assert RUNNING_MARK in console.see(f"/console/exports/{newest_id}")
