"""The console's pages of exports: a file of a list, from its order to its end."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from core.refusals.jobs import JOB_GIVEN_UP
from services.jobs import lease as leases
from services.mailing.export_sheets import ExportKind
from services.mailing.exports import EXPORT_JOBS
from tests.consoles import LOOK_AGAIN, OwnerAtConsole, at_console, heading, rows_of, shown
from tests.contract.bulk import export, imported, of_addresses, sheet, unpacked
from tests.contract.replies import data
from tests.contract.subscribers import new_list
from tests.stack import Stack, eventually

RUNNING = 'aria-busy="true"'


@pytest.fixture
def owner(stack: Stack) -> Iterator[OwnerAtConsole]:
    with at_console(stack) as found:
        yield found


def path_of(list_id: Any) -> str:
    return f"/console/lists/{list_id}/export"


def ordered(owner: OwnerAtConsole, list_id: Any, **typed: str) -> str:
    """The path of an export that was asked for."""
    reply = owner.send(path_of(list_id), **typed)
    assert reply.status_code == 303, reply.text
    return urlsplit(reply.headers["location"]).path


def ended(owner: OwnerAtConsole, path: str) -> str:
    def look() -> str | None:
        text = owner.see(path)
        return None if RUNNING in text else text

    return str(eventually(look, what=f"the end of {path}"))


def downloaded(owner: OwnerAtConsole, path: str) -> list[dict[str, str]]:
    reply = owner.visitor.get(f"{path}/file")
    assert reply.status_code == 303, reply.text
    return unpacked(reply.headers["location"])


def test_an_owner_of_nothing_is_told_what_an_export_is(owner: OwnerAtConsole) -> None:
    assert "Make your first list" in owner.see("/console/exports")
    list_id = new_list(owner.api, title="The Daily Demo")["id"]
    text = owner.see("/console/exports")
    assert "You have exported nothing yet" in text
    assert path_of(list_id) in text
    assert heading(owner.see(path_of(list_id))) == "Export The Daily Demo"


def test_a_list_is_exported_and_its_file_downloaded(owner: OwnerAtConsole) -> None:
    list_id = new_list(owner.api, title="The Daily Demo")["id"]
    imported(owner.api, list_id, of_addresses("ada@example.com", "bea@example.com"))
    path = ordered(owner, list_id)
    text = ended(owner, path)
    assert "<b>2</b> rows" in text
    assert "in 6 days" in text or "in 7 days" in text
    assert {row["email"] for row in downloaded(owner, path)} == {
        "ada@example.com",
        "bea@example.com",
    }
    [row] = [each for each in rows_of(owner.see("/console/exports")) if "Demo" in each[0]]
    assert row[0] == "The Daily Demo , members, csv"
    assert row[2] == "2"
    assert row[4].startswith("lapses in ")


def test_a_segment_and_a_status_choose_the_members(owner: OwnerAtConsole) -> None:
    list_id = new_list(owner.api)["id"]
    imported(
        owner.api, list_id, sheet(["Email", "Name"], ["ada@x.example", "Ada"], ["b@x.example", "B"])
    )
    body = {"name": "Called Ada", "filter": {"field": "name", "is": "Ada"}}
    segment = data(owner.api.post(f"/lists/{list_id}/segments", json=body))
    assert "Called Ada" in owner.see(path_of(list_id))
    path = ordered(owner, list_id, segment_id=str(segment["id"]))
    ended(owner, path)
    assert [row["email"] for row in downloaded(owner, path)] == ["ada@x.example"]
    path = ordered(owner, list_id, status_unsubscribed="on")
    assert "<b>0</b> rows" in ended(owner, path)


def test_a_file_of_json_lines_is_told_as_such(owner: OwnerAtConsole) -> None:
    list_id = new_list(owner.api)["id"]
    path = ordered(owner, list_id, format="jsonl")
    assert "JSON Lines" in ended(owner, path)
    reply = owner.visitor.get(f"{path}/file")
    assert "/file.jsonl.gz?" in reply.headers["location"]


def test_what_is_wrong_stands_beside_its_field(owner: OwnerAtConsole) -> None:
    list_id = new_list(owner.api)["id"]
    reply = owner.send(path_of(list_id), format="pdf", status_active="on")
    text = shown(reply, 422)
    assert "told beside its field" in text
    assert 'name="status_active" value="on" checked' in text


def test_an_old_login_leads_to_the_login_and_back(owner: OwnerAtConsole, stack: Stack) -> None:
    list_id = new_list(owner.api)["id"]
    path = ordered(owner, list_id)
    ended(owner, path)
    aged = "UPDATE user_sessions SET logged_in_at = now() - interval '16 minutes'"
    stack.query(f"{aged} WHERE user_id = %s", owner.owner.user_id)
    for wanted in (path_of(list_id), f"{path}/file"):
        reply = owner.visitor.get(wanted)
        assert reply.status_code == 303
        assert "again=yes" in reply.headers["location"]
    # What is there is told all the same.
    assert "The file is ready" in owner.see(path)


def test_an_export_whose_file_lapsed_says_so(owner: OwnerAtConsole, stack: Stack) -> None:
    list_id = new_list(owner.api)["id"]
    path = ordered(owner, list_id)
    ended(owner, path)
    statement = "UPDATE exports SET finished_at = now() - interval '7 days' WHERE id = %s"
    stack.query(statement, path.rpartition("/")[2])
    text = owner.see(path)
    assert "The file has lapsed" in text
    assert f"{path}/file" not in text
    owner.see(f"{path}/file", 404)
    assert "lapsed" in owner.see("/console/exports")


def test_an_export_under_way_is_cancelled_and_one_that_failed_says_why(quiet: Stack) -> None:
    with at_console(quiet) as owner:
        list_id = new_list(owner.api)["id"]
        path = ordered(owner, list_id)
        text = owner.see(path)
        assert RUNNING in text
        assert LOOK_AGAIN in text
        assert "It stops at its next step." in owner.do(path)
        assert "There is no file" in ended(owner, path)
        data(export(owner.api, list_id, "members", Prefer="respond-async"), 202)
        [job] = data(owner.api.get("/jobs", params={"limit": 1}))["items"]
        assert job["kind"] == EXPORT_JOBS[ExportKind.MEMBERS].name
        with quiet.resources.unit_of_work() as uow:
            lease = leases.claim(uow, job["id"])
        assert lease is not None
        with quiet.resources.unit_of_work() as uow:
            leases.fail(uow, lease, JOB_GIVEN_UP(reason="It broke.", hours=24))
        [newest] = quiet.query("SELECT max(id) FROM exports")
        text = owner.see(f"/console/exports/{newest[0]}")
        assert "There is no file" in text
        assert "It broke." in text
        # Its owner tries again by a program: the page shows that too.
        data(owner.api.post(f"/jobs/{job['id']}/retry"))
        assert RUNNING in owner.see(f"/console/exports/{newest[0]}")


def test_the_stream_tells_the_end(owner: OwnerAtConsole) -> None:
    list_id = new_list(owner.api)["id"]
    path = ordered(owner, list_id)
    told = owner.visitor.client.get(f"{path}/events").text
    assert told.rstrip().endswith("event: ended\ndata:")
    assert "The file is ready" in told
