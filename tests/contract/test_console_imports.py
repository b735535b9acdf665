"""The console's pages of imports: a file from the first look at it to its undo."""

import re
import secrets
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from core.refusals.jobs import JOB_GIVEN_UP
from models import Plan
from services.jobs import lease as leases
from tests.consoles import (
    OwnerAtConsole,
    at_console,
    forms_of,
    heading,
    rows_of,
    shown,
    wrong_beside,
)
from tests.contract.bulk import everybody, imported, of_addresses, sheet, upload
from tests.contract.replies import data
from tests.contract.subscribers import new_list
from tests.importing import Importing
from tests.stack import Stack, eventually

NEW = "/console/imports/new"
RUNNING = 'aria-busy="true"'


@pytest.fixture
def owner(stack: Stack) -> Iterator[OwnerAtConsole]:
    with at_console(stack) as found:
        yield found


def people(count: int) -> list[str]:
    mark = secrets.token_hex(5)
    return [f"reader{number}.{mark}@example.com" for number in range(count)]


def send_file(
    owner: OwnerAtConsole, into: Any, content: bytes, name: str = "members.csv", **typed: str
) -> httpx.Response:
    """Open the form for a file, and send it as a browser does: the file comes last."""
    [(action, values)] = forms_of(owner.visitor.get(NEW))
    form = {**values, "list_id": str(into), **typed}
    form.pop("file")
    files = {"file": (name, content)} if name else {"file": ("", b"")}
    return owner.visitor.client.post(action, data=form, files=files)


def looked_at(
    owner: OwnerAtConsole, list_id: int, content: bytes, name: str = "members.csv", **typed: str
) -> str:
    """The path of an import whose file was looked at."""
    reply = send_file(owner, list_id, content, name, **typed)
    assert reply.status_code == 303, reply.text
    path = urlsplit(reply.headers["location"]).path
    ended(owner, path)
    return path


def ended(owner: OwnerAtConsole, path: str) -> str:
    """The page once it changes no more by itself."""

    def look() -> str | None:
        text = owner.see(path)
        return None if RUNNING in text else text

    return str(eventually(look, what=f"the end of {path}"))


def import_of(owner: OwnerAtConsole, path: str) -> dict[str, Any]:
    found: dict[str, Any] = data(owner.api.get(f"/imports/{path.rpartition('/')[2]}"))
    return found


def numbers(text: str) -> dict[str, str]:
    """The counts on the page, by the words beside them."""
    return dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text))


def events(owner: OwnerAtConsole, path: str) -> list[tuple[str, str]]:
    """All events of the page's stream, to its end."""
    reply = owner.visitor.client.get(f"{path}/events")
    assert reply.headers["content-type"].startswith("text/event-stream")
    found = []
    for block in reply.text.strip().split("\n\n"):
        lines = [line for line in block.split("\n") if not line.startswith(":")]
        if lines:
            name = lines[0].removeprefix("event: ")
            text = "\n".join(line.removeprefix("data: ") for line in lines[1:])
            found.append((name, text))
    return found


def test_an_owner_without_imports_is_led_to_the_first(owner: OwnerAtConsole) -> None:
    assert "You have imported nothing yet" in owner.see("/console/imports")
    assert "Make your first list" in owner.see(NEW)
    title = new_list(owner.api, title="The Daily Demo")["title"]
    assert title in owner.see(NEW)


def test_a_file_is_looked_at_then_imported_and_then_undone(owner: OwnerAtConsole) -> None:
    list_id = new_list(owner.api)["id"]
    who = people(3)
    rows = [[who[0], "Ada", "Rome"], [who[1], "Bea", "Oslo"], ["no address", "", ""]]
    content = sheet(["Mail", "Name", "Town"], *rows)
    path = looked_at(owner, list_id, content)
    text = owner.see(path)
    assert numbers(text)["would be added"] == "2"
    assert ["Town", "Rome, Oslo"] in [row[:2] for row in rows_of(text)]
    assert everybody(owner.api, list_id) == {}

    reply = owner.send(path, column_2="new", act="look")
    assert reply.status_code == 303, reply.text
    text = ended(owner, path)
    assert "A new field of type text" in text
    assert "town: <bdi>Rome</bdi>" in text

    assert "The import has begun." in owner.do(path, act="start")
    text = ended(owner, path)
    assert numbers(text)["were added"] == "2"
    members = everybody(owner.api, list_id)
    assert {each: members[each]["fields"] for each in members} == {
        who[0]: {"town": "Rome"},
        who[1]: {"town": "Oslo"},
    }
    assert import_of(owner, path)["dry_run"] is False

    text = owner.see(f"{path}/undo")
    assert heading(text) == "Undo the import of 2 members?"
    reply = owner.send(f"{path}/undo")
    assert reply.status_code == 303
    text = ended(owner, path)
    assert "<b>2</b> members are as before it" in text
    assert everybody(owner.api, list_id) == {}
    assert "Undo this import" not in text


def test_who_was_changed_since_is_told_of_after_an_undo(owner: OwnerAtConsole) -> None:
    list_id = new_list(owner.api)["id"]
    who = people(3)
    result = imported(owner.api, list_id, of_addresses(*who))
    data(owner.api.patch(f"/lists/{list_id}/members/{who[0]}", json={"type": "gold"}))
    path = f"/console/imports/{result['import_id']}"
    owner.send(f"{path}/undo")
    text = ended(owner, path)
    assert "<b>2</b> members are as before it" in text
    assert "1 member stayed" in text


def test_a_file_in_which_no_column_has_addresses_is_read_once_its_owner_says_which(
    owner: OwnerAtConsole,
) -> None:
    list_id = new_list(owner.api)["id"]
    who = people(1)
    # The first records have no address, so that nothing tells what the column is.
    blank = [["", f"Person {number}"] for number in range(800)]
    content = sheet(["Where", "Who"], *blank, [who[0], "Ada"])
    path = looked_at(owner, list_id, content)
    text = owner.see(path)
    assert "No column is known to hold e-mail addresses" in text
    assert "Import it" not in text
    owner.send(path, column_0="email", column_1="name", act="look")
    text = ended(owner, path)
    assert numbers(text)["would be added"] == "1"
    owner.send(path, act="start")
    ended(owner, path)
    assert everybody(owner.api, list_id)[who[0]]["name"] == "Ada"


def test_a_choice_that_nobody_looked_at_is_not_imported(owner: OwnerAtConsole) -> None:
    list_id = new_list(owner.api)["id"]
    content = sheet(["Email", "Notes"], [people(1)[0], "A word"])
    path = looked_at(owner, list_id, content)
    text = owner.do(path, column_1="tags", act="start")
    assert "You chose something else" in text
    text = ended(owner, path)
    assert everybody(owner.api, list_id) == {}
    assert '<option value="tags" selected>' in text
    owner.send(path, act="start")
    ended(owner, path)
    [member] = everybody(owner.api, list_id).values()
    assert [each["name"] if isinstance(each, dict) else each for each in member["tags"]] == [
        "A word"
    ]


def test_two_columns_that_are_the_same_are_told_beside_the_second(owner: OwnerAtConsole) -> None:
    list_id = new_list(owner.api)["id"]
    content = sheet(["Email", "A", "B"], [people(1)[0], "x", "y"])
    path = looked_at(owner, list_id, content)
    reply = owner.send(path, column_1="name", column_2="name", act="look")
    text = shown(reply, 422)
    assert wrong_beside(text, "column_2") == "Another column is this already."
    assert import_of(owner, path)["status"] == "succeeded"


def test_columns_of_a_wide_file_are_chosen_page_by_page(owner: OwnerAtConsole) -> None:
    list_id = new_list(owner.api)["id"]
    names = ["Email", *(f"Column {number}" for number in range(1, 30))]
    content = sheet(names, [people(1)[0], *(f"v{number}" for number in range(1, 30))])
    path = looked_at(owner, list_id, content)
    owner.send(path, column_1="new", act="look")
    text = ended(owner, path)
    assert 'name="column_25"' not in text
    reply = owner.send(f"{path}?columns=20", column_25="new", act="look")
    assert reply.headers["location"].endswith(f"{path}?columns=20")
    ended(owner, path)
    owner.send(path, act="start")
    ended(owner, path)
    [member] = everybody(owner.api, list_id).values()
    assert member["fields"] == {"column_1": "v1", "column_25": "v25"}


def test_members_are_brought_up_to_date_if_the_box_says_so(owner: OwnerAtConsole) -> None:
    list_id = new_list(owner.api)["id"]
    who = people(1)
    imported(owner.api, list_id, sheet(["Email", "Name"], [who[0], "Before"]))
    path = looked_at(owner, list_id, sheet(["Email", "Name"], [who[0], "After"]), update="on")
    owner.send(path, act="start")
    ended(owner, path)
    assert everybody(owner.api, list_id)[who[0]]["name"] == "After"


def test_every_field_that_is_unknown_is_made_if_the_box_says_so(owner: OwnerAtConsole) -> None:
    list_id = new_list(owner.api)["id"]
    content = sheet(["Email", "Town"], [people(1)[0], "Rome"])
    path = looked_at(owner, list_id, content, create_fields="on")
    assert "A new field of type text" in owner.see(path)
    assert data(owner.api.get("/fields")) == []
    owner.send(path, act="start")
    ended(owner, path)
    [member] = everybody(owner.api, list_id).values()
    assert member["fields"] == {"town": "Rome"}


def test_suppressed_addresses_are_imported_too(owner: OwnerAtConsole) -> None:
    list_id = new_list(owner.api)["id"]
    who = people(2)
    imported(owner.api, list_id, of_addresses(*who))
    path = looked_at(owner, list_id, of_addresses(who[0]), kind="bounces")
    owner.send(path, act="start")
    ended(owner, path)
    assert set(everybody(owner.api, list_id)) == {who[1]}


@pytest.mark.parametrize(
    ("typed", "name", "content", "field"),
    [
        ({"list_id": ""}, "members.csv", b"email\n", "list_id"),
        ({"kind": "others"}, "members.csv", b"email\n", "kind"),
        ({}, "", b"", "file"),
        ({}, "members.csv", b"", "file"),
    ],
)
def test_what_is_wrong_with_an_upload_stands_beside_its_field(
    owner: OwnerAtConsole, typed: dict[str, str], name: str, content: bytes, field: str
) -> None:
    list_id = new_list(owner.api)["id"]
    reply = send_file(owner, list_id, content, name, **{"update": "on", **typed})
    text = shown(reply, reply.status_code)
    assert reply.status_code in {400, 422}
    assert wrong_beside(text, field)
    [(_, kept)] = forms_of(reply)
    assert kept["update"] == "on"
    assert data(owner.api.get("/imports"))["items"] == []


def test_a_file_for_another_owners_list_is_refused_as_for_none(
    owner: OwnerAtConsole, stack: Stack
) -> None:
    with at_console(stack) as other:
        theirs = new_list(other.api)["id"]
    new_list(owner.api)
    pages = {send_file(owner, each, of_addresses("a@example.com")).text for each in (theirs, 1)}
    assert len(pages) == 1
    assert "There is nothing here" in pages.pop()


def test_the_free_plan_has_the_look_alone(stack: Stack) -> None:
    with at_console(stack, stack.new_owner(plan=Plan.FREE)) as owner:
        list_id = new_list(owner.api)["id"]
        assert "To add the members takes the paid plan" in owner.see(NEW)
        path = looked_at(owner, list_id, of_addresses(*people(2)))
        reply = owner.send(path, act="start")
        text = shown(reply, reply.status_code)
        assert reply.status_code in {402, 403}
        assert 'role="alert"' in text
        assert everybody(owner.api, list_id) == {}
        assert import_of(owner, path)["dry_run"] is True


def test_an_import_is_not_begun_twice(owner: OwnerAtConsole) -> None:
    list_id = new_list(owner.api)["id"]
    path = looked_at(owner, list_id, of_addresses(*people(2)))
    opened = owner.visitor.get(path)
    [(action, values)] = [each for each in forms_of(opened) if each[0] == path]
    replies = [owner.visitor.client.post(action, data={**values, "act": "start"}) for _ in range(2)]
    assert replies[0].status_code == 303
    # It still runs, which is no news; or it has ended, and its file with it.
    assert replies[1].status_code in {303, 409}
    ended(owner, path)
    assert import_of(owner, path)["added"] == 2
    assert len(data(owner.api.get("/imports"))["items"]) == 1


def test_a_fourth_look_lets_the_file_of_the_first_go(owner: OwnerAtConsole, stack: Stack) -> None:
    list_id = new_list(owner.api)["id"]
    paths = [looked_at(owner, list_id, of_addresses(*people(1))) for _ in range(4)]
    # Which does what a worker does within seconds.
    stack.stored()
    text = shown(owner.send(paths[0], act="look"), 409)
    assert "The file is not kept any more" in text
    assert owner.send(paths[1], act="look").status_code == 303
    assert numbers(ended(owner, paths[1]))["would be added"] == "1"


def test_the_rows_that_were_not_added_are_there_as_soon_as_the_page_says_so(
    owner: OwnerAtConsole,
) -> None:
    list_id = new_list(owner.api)["id"]
    rows = [[each] for each in people(2_000)] + [["nothing"], ["=1+1"]]
    path = looked_at(owner, list_id, sheet(["Email"], *rows))
    assert owner.send(path, act="start").status_code == 303
    # By the page alone: whatever it tells of rows that were not added, it has their file.
    while True:
        text = owner.see(path)
        has_some = "have no valid address" in text
        assert (f"{path}/not-added" in text) == has_some
        if RUNNING not in text:
            break
    assert has_some
    assert ["2002", "nothing"] in [row[:2] for row in rows_of(text)]
    reply = owner.visitor.get(f"{path}/not-added")
    assert reply.status_code == 303
    lines = httpx.get(reply.headers["location"], timeout=30.0).text.splitlines()
    assert len(lines) == 3


def test_no_page_leads_to_a_file_that_was_removed(owner: OwnerAtConsole, stack: Stack) -> None:
    list_id = new_list(owner.api)["id"]
    result = imported(owner.api, list_id, of_addresses(people(1)[0], "nothing"))
    path = f"/console/imports/{result['import_id']}"
    assert "Download all of them" in owner.see(path)
    stack.query(
        "UPDATE imports SET files_removed_at = now(), wrapped_key = NULL, wrapped_by = NULL"
        " WHERE id = %s",
        result["import_id"],
    )
    text = owner.see(path)
    assert numbers(text)["have no valid address"] == "1"
    assert "not-added" not in text
    owner.see(f"{path}/not-added", 404)


def test_the_stream_tells_all_to_the_end_and_once_more_to_who_comes_back(
    owner: OwnerAtConsole,
) -> None:
    list_id = new_list(owner.api)["id"]
    path = looked_at(owner, list_id, of_addresses(*people(500)))
    assert owner.send(path, act="start").status_code == 303
    told = events(owner, path)
    assert [name for name, _ in told][-2:] == ["part", "ended"]
    last = told[-2][1]
    assert RUNNING not in last
    assert numbers(last)["were added"] == "500"
    # The same as the page has.
    text = owner.see(path)
    assert " ".join(last.split()) in " ".join(text.split())
    assert [name for name, _ in events(owner, path)] == ["part", "ended"]


def test_an_import_at_work_is_cancelled(quiet: Stack) -> None:
    with at_console(quiet) as owner:
        list_id = new_list(owner.api)["id"]
        reply = upload(owner.api, list_id, of_addresses(*people(1)), prefer="respond-async")
        assert data(reply, 202)["status"] == "queued"
        [task] = data(owner.api.get("/imports"))["items"]
        path = f"/console/imports/{task['id']}"
        text = owner.see(path)
        assert RUNNING in text
        # Without JavaScript the page loads itself.
        assert '<noscript><meta http-equiv="refresh"' in text
        assert "It stops at its next step." in owner.do(path)
        text = ended(owner, path)
        assert "It was cancelled" in text
        assert import_of(owner, path)["status"] == "cancelled"
        assert 'http-equiv="refresh"' not in text


def test_an_import_that_broke_goes_on_when_its_owner_asks(quiet: Stack) -> None:
    with at_console(quiet) as owner:
        list_id = new_list(owner.api)["id"]
        reply = upload(owner.api, list_id, of_addresses(*people(1)), prefer="respond-async")
        job_id = data(reply, 202)["id"]
        work = Importing(quiet)
        lease = work.claim(job_id)
        assert lease is not None
        with quiet.resources.unit_of_work() as uow:
            leases.fail(uow, lease, JOB_GIVEN_UP(reason="It broke.", hours=24))
        [task] = data(owner.api.get("/imports"))["items"]
        path = f"/console/imports/{task['id']}"
        assert "Try again" in owner.see(path)
        assert "The import goes on." in owner.do(path)
        assert RUNNING in owner.see(path)
        work.work(job_id)
        assert numbers(ended(owner, path))["were added"] == "1"


def test_imports_lead_on_page_by_page(owner: OwnerAtConsole) -> None:
    list_id = new_list(owner.api, title="The Daily Demo")["id"]
    for number in range(51):
        upload(owner.api, list_id, b"email\nx\n", f"file{number}.csv", prefer="wait=30")
    text = owner.see("/console/imports")
    assert "file1.csv" in text
    assert "file0.csv" not in text
    [cursor] = {each.split('"')[0] for each in text.split("?cursor=")[1:]}
    rows = rows_of(owner.see("/console/imports", cursor=cursor))
    assert [row[0] for row in rows] == ["File", "file0.csv"]
    assert rows[1][1] == "The Daily Demo"
