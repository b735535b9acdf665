"""Tests of the console pages for imports: uploads, progress, results and undo."""

import gzip
import html
import re

import httpx2
import pytest

from core.errors.jobs import JOB_GIVEN_UP
from devstack.harness.stack import Stack
from services.jobs import transitions
from tests.support.http.replies import data
from tests.support.imports.bulk import (
    active_members,
    build_address_file,
    build_addresses,
    build_csv,
    fail_job,
    import_members_file,
    upload,
)
from tests.support.imports.console_imports import (
    NEW_IMPORT,
    get_import,
    preview_import,
    read_counts,
    send_file,
)
from tests.support.imports.importing import ImportRunner
from tests.support.lists.segments import run_bulk_action
from tests.support.lists.subscribers import new_list
from tests.support.people.consoles import (
    REFRESH_LINK_END,
    RUNNING_MARK,
    OwnerAtConsole,
    at_console,
    await_ended_page,
    forms_of,
    heading,
    read_error,
    read_page,
    rows_of,
)


def read_events(console: OwnerAtConsole, path: str) -> list[tuple[str, str]]:
    """Read the event stream of a page to its end, and return the name and text of each event."""
    reply = console.visitor.client.get(f"{path}/events")
    assert reply.headers["content-type"].startswith("text/event-stream")
    stream_events = []
    for block in reply.text.strip().split("\n\n"):
        lines = [line for line in block.split("\n") if not line.startswith(":")]
        if lines:
            name = lines[0].removeprefix("event: ")
            text = "\n".join(line.removeprefix("data: ") for line in lines[1:])
            stream_events.append((name, text))
    return stream_events


def test_console_imports_page_explains_the_empty_state(console: OwnerAtConsole) -> None:
    assert "No imports yet" in console.see("/console/imports")
    assert "Create your first list" in console.see(NEW_IMPORT)
    title = new_list(console.api, title="The Daily Demo")["title"]
    assert title in console.see(NEW_IMPORT)


def test_console_import_form_sets_the_options_of_the_import(console: OwnerAtConsole) -> None:
    list_id = new_list(console.api)["id"]
    content = build_csv(["Email", "Town"], [build_addresses(1)[0], "Rome"])
    path = preview_import(console, list_id, content, update="on", create_fields="on")
    assert "New field: text" in console.see(path)
    import_record = get_import(console, path)
    assert (import_record["on_existing"], import_record["create_fields"]) == ("update", True)
    assert import_record["kind"] == "members"
    path = preview_import(console, list_id, content, kind="bounces")
    assert get_import(console, path)["kind"] == "bounces"


def test_console_shows_no_rejected_rows_for_an_import_of_bounces_that_was_applied(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    path = preview_import(console, list_id, build_address_file(*build_addresses(3)), kind="bounces")
    console.send(path, act="start")
    page = await_ended_page(console, path)
    assert "No more mail to 3 bounced addresses" in page
    assert read_counts(page)["opted out"] == "3"
    assert "added" not in read_counts(page)
    assert "rejected rows" not in page


def test_import_pages_begin_with_their_result_and_link_each_number_to_its_rows(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    emails = build_addresses(3)
    opt_out_dates = ["", "", "2025-03-01"]
    rows = [*map(list, zip(emails, opt_out_dates, strict=True)), ["nothing", ""]]
    path = preview_import(console, list_id, build_csv(["Email", "Unsubscribed on"], *rows))
    result = "2 new · 1 opt-out kept out · 1 not imported"
    text = console.see(path)
    assert heading(text) == result
    assert read_result_links(text) == ["#first", "#values", "#rows"]
    for section in ("first", "values", "rows"):
        assert f'<h2 id="{section}">' in text
    # The bar with the button repeats the sentence.
    assert result in text.rpartition('class="actions dock"')[2]
    assert "Step 3 of 3" in text
    console.send(path, act="start")
    text = await_ended_page(console, path)
    assert heading(text) == result
    members_page, *sections = read_result_links(text)
    assert sections == ["#values", "#rows"]
    text = read_page(console.visitor.get(members_page))
    assert len(set(re.findall(r"/members/\d+", text))) == 2


def read_result_links(text: str) -> list[str]:
    [markup] = re.findall(r"<h1>(.*?)</h1>", text, re.DOTALL)
    return [html.unescape(each) for each in re.findall(r'href="([^"]+)"', markup)]


def test_preview_without_importable_rows_has_a_disabled_import_button(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    text = console.see(preview_import(console, list_id, build_address_file("nothing", "no @")))
    assert heading(text) == "0 new · 2 not imported"
    assert "0 of 2 rows can be imported" in text
    assert '<button name="act" value="start" disabled>' in text
    # The number of rows that weren't imported leads to their reasons.
    assert ["An email address must have an @-sign.", "–", "1", "line 2: nothing"] in rows_of(text)
    # A file of opt-outs adds nobody, but is worth an import.
    content = build_csv(["Email", "Unsubscribed"], [*build_addresses(1), "yes"])
    text = console.see(preview_import(console, list_id, content))
    assert heading(text) == "0 new · 1 opt-out kept out"
    assert '<button name="act" value="start">' in text


def test_running_import_says_how_long_it_has_been_waiting_or_running(
    stack_without_workers: Stack,
) -> None:
    stack = stack_without_workers
    with at_console(stack) as console:
        list_id = new_list(console.api)["id"]
        file = build_address_file(*build_addresses(1))
        job_id = data(upload(console.api, list_id, file, prefer="respond-async"), 202)["id"]
        [import_record] = data(console.api.get("/imports"))["items"]
        path = f"/console/imports/{import_record['id']}"
        stack.query("UPDATE jobs SET created_at = now() - interval '150 s' WHERE id = %s", job_id)
        assert "Waiting for a free worker for 2 minutes." in console.see(path)
        with stack.resources.unit_of_work() as uow:
            assert transitions.claim_job(uow, job_id) is not None
        stack.query("UPDATE jobs SET started_at = now() - interval '42 s' WHERE id = %s", job_id)
        assert re.search(r"Opening the file for 4\d seconds\.", console.see(path))
        stack.query("UPDATE imports SET received = 12000 WHERE id = %s", import_record["id"])
        text = console.see(path)
        assert "<b>12,000</b> rows read so far." in text
        assert re.search(r"Running for 4\d seconds\.", text)


def test_imports_page_tells_previews_failures_and_imports_apart(console: OwnerAtConsole) -> None:
    list_id = new_list(console.api)["id"]
    emails = build_addresses(5)
    for members in (emails[:2], emails[2:]):
        body = {"members": [{"email": each} for each in members]}
        headers = {"Prefer": "wait=30"}
        data(
            console.api.post(
                f"/auxilia/subscriptions/{list_id}/members/add", json=body, headers=headers
            )
        )
    content = build_address_file(*emails, "nothing")
    preview_import(console, list_id, content, "preview.csv")
    preview_import(console, list_id, b"%PDF-1.7\n" + bytes(range(256)), "wrong.csv")
    import_members_file(console.api, list_id, content, "import.csv")
    rows = {row[0]: row[1:3] for row in rows_of(console.see("/console/imports"))[1:]}
    assert rows == {
        "2 members from an API request": ["2 new", "Imported"],
        "3 members from an API request": ["3 new", "Imported"],
        "preview.csv": ["0 new · 5 already on the list · 1 not imported", "Only a preview"],
        "wrong.csv": ["The file is a PDF.", "Preview failed"],
        "import.csv": ["0 new · 5 already on the list · 1 not imported", "Imported"],
    }


def test_imports_page_begins_with_waiting_previews_and_each_row_leads_to_its_next_step(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    preview_path = preview_import(console, list_id, build_address_file("a@example.com"), "a.csv")
    preview_import(console, list_id, b"%PDF-1.7\n" + bytes(range(256)), "wrong.csv")
    import_members_file(console.api, list_id, build_address_file("b@example.com"), "b.csv")
    task = data(console.api.get("/imports"))["items"][0]
    import_members_file(console.api, list_id, build_address_file("b@example.com"), "again.csv")
    text = console.see("/console/imports")
    rows = [(row[0], row[-1]) for row in rows_of(text)[1:]]
    assert rows == [
        ("wrong.csv", "Choose another file"),
        ("a.csv", "Finish the import"),
        ("again.csv", "–"),
        ("b.csv", "Undo"),
    ]
    assert f'{preview_path}" aria-label="Finish the import: a.csv"' in text
    assert f'/console/imports/{task["id"]}/undo"' in text


@pytest.mark.parametrize(
    ("form_values", "filename", "content", "field"),
    [
        ({"list_id": ""}, "members.csv", b"email\n", "list_id"),
        ({"kind": "others"}, "members.csv", b"email\n", "kind"),
        ({}, "", b"", "file"),
        ({}, "members.csv", b"", "file"),
    ],
)
def test_console_shows_import_upload_errors_next_to_their_fields(
    console: OwnerAtConsole, form_values: dict[str, str], filename: str, content: bytes, field: str
) -> None:
    list_id = new_list(console.api)["id"]
    reply = send_file(console, list_id, content, filename, **{"update": "on", **form_values})
    text = read_page(reply, reply.status_code)
    assert reply.status_code in {400, 422}
    assert read_error(text, field)
    [(_, form)] = forms_of(reply)
    assert form["update"] == "on"
    assert data(console.api.get("/imports"))["items"] == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"%PDF-1.7\n" + bytes(range(256)), "The file is a PDF."),
        (b'[{"email": "ada@example.com"}]', "The file is JSON, but not JSON Lines."),
        (gzip.compress(b"email\nada@example.com\n" * 99)[:40], "The gzip file is incomplete."),
        (b"email,name\n", "The file contains no rows."),
    ],
)
def test_console_explains_why_a_file_is_rejected_and_how_to_create_a_csv_file(
    console: OwnerAtConsole, content: bytes, reason: str
) -> None:
    list_id = new_list(console.api)["id"]
    path = preview_import(console, list_id, content)
    text = console.see(path)
    assert "This file can’t be imported" in text
    assert reason in text
    assert "<i>CSV UTF-8</i>" in text
    [next_upload_url] = re.findall(
        r'<a class="button" href="([^"]*)">Choose another file</a>', text
    )
    assert next_upload_url.endswith(f"{NEW_IMPORT}?list_id={list_id}")
    # The page has no form, because no choice of the owner would make the file valid.
    assert forms_of(console.visitor.get(path)) == []


def test_console_import_page_offers_rejected_rows_as_soon_as_invalid_rows_are_shown(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    rows = [[each] for each in build_addresses(2_000)] + [["nothing"], ["=1+1"]]
    path = preview_import(console, list_id, build_csv(["Email"], *rows))
    assert console.send(path, act="start").status_code == 303
    # As soon as the page shows rejected rows, it also links to the file with these rows.
    while True:
        text = console.see(path)
        has_invalid_rows = "<dt>invalid</dt>" in text
        assert (f"{path}/not-added" in text) == has_invalid_rows
        if RUNNING_MARK not in text:
            break
    assert has_invalid_rows
    [address_problem] = [row for row in rows_of(text) if "@-sign" in row[0]]
    assert address_problem == [
        "An email address must have an @-sign.",
        "–",
        "2",
        "line 2002: nothing ; line 2003: =1+1",
    ]
    reply = console.visitor.get(f"{path}/not-added")
    assert reply.status_code == 303
    lines = httpx2.get(reply.headers["location"], timeout=30.0).text.splitlines()
    assert len(lines) == 3


def test_console_import_page_hides_links_to_removed_files(
    console: OwnerAtConsole, stack: Stack
) -> None:
    list_id = new_list(console.api)["id"]
    result = import_members_file(
        console.api, list_id, build_address_file(build_addresses(1)[0], "nothing")
    )
    path = f"/console/imports/{result['import_id']}"
    assert "errors.csv" in console.see(path)
    stack.query(
        "UPDATE imports SET files_removed_at = now(), wrapped_key = NULL, wrapped_by = NULL"
        " WHERE id = %s",
        result["import_id"],
    )
    text = console.see(path)
    assert read_counts(text)["invalid"] == "1"
    assert "not-added" not in text
    console.see(f"{path}/not-added", 404)


def test_import_progress_stream_ends_with_the_final_counts_and_can_be_read_again(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    path = preview_import(console, list_id, build_address_file(*build_addresses(500)))
    assert console.send(path, act="start").status_code == 303
    stream_events = read_events(console, path)
    assert [name for name, _ in stream_events][-2:] == ["part", "ended"]
    last_part = stream_events[-2][1]
    assert RUNNING_MARK not in last_part
    assert read_counts(last_part)["added"] == "500"
    # The page of the finished import contains the same text as the last part of the event stream.
    text = console.see(path)
    assert " ".join(last_part.split()) in " ".join(text.split())
    assert [name for name, _ in read_events(console, path)] == ["part", "ended"]


def test_console_cancels_a_queued_import(stack_without_workers: Stack) -> None:
    with at_console(stack_without_workers) as console:
        list_id = new_list(console.api)["id"]
        reply = upload(
            console.api, list_id, build_address_file(*build_addresses(1)), prefer="respond-async"
        )
        assert data(reply, 202)["status"] == "queued"
        [import_record] = data(console.api.get("/imports"))["items"]
        path = f"/console/imports/{import_record['id']}"
        text = console.see(path)
        assert RUNNING_MARK in text
        # Without JavaScript, the page shows a focused link, so that Enter reloads the page.
        assert REFRESH_LINK_END in text
        # The page shows no notice, because its text already says that the import was cancelled.
        assert 'class="notice"' not in console.do(path)
        text = await_ended_page(console, path)
        assert "Nothing was imported." in text
        assert "The job was cancelled." not in text
        assert get_import(console, path)["status"] == "cancelled"
        assert REFRESH_LINK_END not in text


def test_console_retries_a_failed_import(stack_without_workers: Stack) -> None:
    with at_console(stack_without_workers) as console:
        list_id = new_list(console.api)["id"]
        reply = upload(
            console.api, list_id, build_address_file(*build_addresses(1)), prefer="respond-async"
        )
        job_id = data(reply, 202)["id"]
        fail_job(stack_without_workers, job_id, JOB_GIVEN_UP(reason="It broke.", hours=24))
        [import_record] = data(console.api.get("/imports"))["items"]
        path = f"/console/imports/{import_record['id']}"
        text = console.see(path)
        assert "Try again" in text
        assert "Nothing was imported." in text
        assert "If it fails again, split the file into smaller files" in text
        assert "The import was resumed." in console.do(path)
        assert RUNNING_MARK in console.see(path)
        ImportRunner(stack_without_workers).work(job_id)
        assert read_counts(await_ended_page(console, path))["added"] == "1"


def test_console_import_page_links_to_its_members_and_to_a_bulk_action_on_them(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    import_members_file(console.api, list_id, build_address_file(*build_addresses(1)))
    result = import_members_file(console.api, list_id, build_address_file(*build_addresses(2)))
    text = console.see(f"/console/imports/{result['import_id']}")
    links = re.findall(r'<a class="button[^"]*" href="([^"]+import_id[^"]+)">', text)
    members_page, bulk_action_page = (
        read_page(console.visitor.get(html.unescape(each))) for each in links
    )
    assert len(set(re.findall(r"/members/\d+", members_page))) == 2
    assert "2 members" in bulk_action_page


def test_console_import_undo_counts_members_who_were_edited_individually(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    emails = build_addresses(4)
    result = import_members_file(console.api, list_id, build_address_file(*emails))
    for each in emails[:2]:
        data(console.api.patch(f"/lists/{list_id}/members/{each}", json={"name": "Bea"}))
    run_bulk_action(
        console.api, list_id, "tag", value="held", filter={"field": "email", "in": emails[1:3]}
    )
    path = f"/console/imports/{result['import_id']}/undo"
    assert "is in several rows" not in console.see(path)
    run_bulk_action(
        console.api, list_id, "tag", value="more", filter={"field": "email", "is": emails[2]}
    )
    text = console.see(path)
    assert "3 members stay as they are" in text
    assert "A member with several changes is in several rows." in text
    assert rows_of(text)[1:] == [
        ["Add the tag “held”", "2"],
        ["Add the tag “more”", "1"],
        ["Changed individually (can’t be included)", "1"],
    ]


def test_console_import_undo_names_bulk_actions_that_keep_members_on_the_list(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    emails = build_addresses(3)
    result = import_members_file(console.api, list_id, build_address_file(*emails))
    first_member = {"field": "email", "is": emails[0]}
    bulk_id = run_bulk_action(console.api, list_id, "tag", value="held", filter=first_member)[
        "bulk_id"
    ]
    path = f"/console/imports/{result['import_id']}"
    text = console.see(f"{path}/undo")
    assert "Undo the import of 2 members?" in text
    assert ["Add the tag “held”", "1"] in rows_of(text)
    assert f"/lists/{list_id}/bulk-actions/{bulk_id}" in text
    console.send(f"{path}/undo")
    assert "The import is partly undone" in await_ended_page(console, path)
    data(console.api.delete(f"/bulk/{bulk_id}"))
    assert "Undo the import of 1 member?" in console.see(f"{path}/undo")
    console.send(f"{path}/undo")
    text = await_ended_page(console, path)
    # The page begins with what the undo did. The numbers of the import come last.
    headings = [text.index(f">{each}</h2>") for each in ("The import is undone", "Before the undo")]
    assert headings == sorted(headings)
    assert ">Results</h2>" not in text
    assert f'/console/imports/new?list_id={list_id}">Import another file</a>' in text
    assert f"{path}/undo" not in text
    assert active_members(console.api, list_id) == {}
