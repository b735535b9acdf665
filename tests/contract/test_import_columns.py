"""What the columns of a file become, what its owner is shown of them, and the mail at the end."""

from typing import Any

import httpx2
import pytest

from services.subscriptions.imports import apply as applying
from services.subscriptions.imports import records, split
from storage.unit_of_work import UnitOfWork
from tests.contract.bulk import (
    addresses,
    everybody,
    finished,
    imported,
    objects,
    of_addresses,
    sheet,
    upload,
)
from tests.contract.replies import data, problem
from tests.contract.subscribers import new_address, new_list
from tests.importing import Importing
from tests.stack import Owner, Stack, eventually

HEADER = ["Email", "Name", "Company", "Tags", "created_at", "Notes"]
JOINED = "2019-05-06T07:08:09.000000Z"


@pytest.fixture
def company(client: httpx2.Client) -> dict[str, Any]:
    body = {"key": "company", "label": "Company", "type": "text"}
    made: dict[str, Any] = data(client.post("/fields", json=body))
    return made


@pytest.mark.usefixtures("company")
def test_columns_become_fields_tags_and_the_day_of_joining_or_are_named(
    client: httpx2.Client, list_id: int
) -> None:
    ada, ben = addresses(2)
    rows = (
        [ada, "Ada", "Acme", "vip,news", "2019-05-06 07:08:09", "hi"],
        [ben, "", "", "", "", ""],
    )
    result = imported(client, list_id, sheet(HEADER, *rows))
    assert result["columns"] == [
        {"name": "Email", "becomes": "email", "examples": [ada, ben]},
        {"name": "Name", "becomes": "name", "examples": ["Ada"]},
        {"name": "Company", "becomes": "fields.company", "examples": ["Acme"]},
        {"name": "Tags", "becomes": "tags", "examples": ["vip,news"]},
        {"name": "created_at", "becomes": "joined_at", "examples": ["2019-05-06 07:08:09"]},
        {"name": "Notes", "becomes": "ignored", "examples": ["hi"]},
    ]
    assert result["ignored_columns"] == ["Notes"]
    assert "preview" not in result
    found = everybody(client, list_id)
    assert found[ada]["fields"] == {"company": "Acme"}
    assert found[ada]["tags"] == ["news", "vip"]
    assert found[ada]["joined_at"] == JOINED
    assert (found[ben]["fields"], found[ben]["tags"]) == ({}, [])
    record = data(client.get(f"/imports/{result['import_id']}"))
    assert record["ignored_columns"] == ["Notes"]
    assert record["columns"][2]["becomes"] == "fields.company"


def test_the_owner_is_mailed_the_counts_unless_they_want_no_mails(
    client: httpx2.Client, list_id: int, stack: Stack, owner: Owner
) -> None:
    assert data(client.get("/users/me"))["import_mails"] is True
    people = addresses(3)
    data(client.patch("/deny-list", json={"add_addresses": people[:1]}))
    imported(client, list_id, of_addresses(*people), name="people.csv")
    imported(client, list_id, of_addresses(new_address()), dry_run="1")
    eventually(lambda: stack.mails(owner.email), what="the mail")
    [mail] = stack.mails(owner.email)
    assert mail["subject"] == "Your import has ended"
    text = " ".join(mail["text"].split())
    assert "Of 3 rows 2 were added" in text
    assert "1 are kept out by a deny list." in text
    assert data(client.patch("/users/me", json={"import_mails": False}))["import_mails"] is False
    job = data(upload(client, list_id, of_addresses(new_address()), prefer=None), 202)
    assert finished(client, job["id"])["status"] == "succeeded"
    asked = stack.query(
        "SELECT count(*) FROM account_mails WHERE kind = 'import_ended' AND user_id = %s",
        owner.user_id,
    )
    assert asked == [(1,)]


def test_a_mapping_that_is_none_is_400(client: httpx2.Client, list_id: int) -> None:
    for mapping in ["", "{", "[]", '"email"', '{"a": 1}', '{"a\\u0000": "email"}']:
        reply = upload(client, list_id, of_addresses(new_address()), mapping=mapping)
        problem(reply, 400, "import.mapping")


def test_a_mapping_that_does_not_fit_fails_the_import(client: httpx2.Client, list_id: int) -> None:
    file, code = of_addresses(new_address()), "import.mapping_column"
    problem(upload(client, list_id, file, mapping='{"Post": "email"}'), 422, code)
    [record] = data(client.get("/imports"))["items"]
    assert (record["status"], record["error"]["code"]) == ("failed", code)


@pytest.mark.parametrize(
    "query", [{"dry_run": "maybe"}, {"on_existing": "replace"}, {"kind": "people"}]
)
def test_an_option_of_another_kind_is_400(
    client: httpx2.Client, list_id: int, query: dict[str, str]
) -> None:
    reply = upload(client, list_id, of_addresses(new_address()), **query)
    assert reply.status_code == 400
    assert data(client.get("/imports"))["items"] == []


def test_a_waiting_import_is_cancelled_at_once_and_leaves_no_object(
    quiet: Stack, quiet_client: httpx2.Client
) -> None:
    list_id = new_list(quiet_client)["id"]
    before = objects(quiet)
    job = data(upload(quiet_client, list_id, of_addresses(*addresses(3)), prefer=None), 202)
    assert len(objects(quiet) - before) == 1
    assert data(quiet_client.delete(f"/jobs/{job['id']}")) == 1
    [record] = data(quiet_client.get("/imports"))["items"]
    assert (record["status"], record["error"]["code"]) == ("cancelled", "job.cancelled")
    assert objects(quiet) == before
    problem(quiet_client.post(f"/jobs/{job['id']}/retry"), 409, "job.not_retryable")


def test_a_running_import_is_cancelled_between_chunks_and_keeps_what_it_did(
    quiet: Stack, quiet_client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_id = new_list(quiet_client)["id"]
    before, emails = objects(quiet), addresses(35)
    job = data(upload(quiet_client, list_id, of_addresses(*emails), prefer=None), 202)
    importing = Importing(quiet)
    apply, shown = applying.apply, dict[str, Any]()

    def apply_and_cancel(uow: UnitOfWork, *given: Any) -> applying.AppliedChunk:
        """Before the second chunk: it is applied in vain."""
        if importing.of_job(job["id"]).applied == 1:
            shown.update(data(quiet_client.get(f"/jobs/{job['id']}")))
            quiet_client.delete(f"/jobs/{job['id']}").raise_for_status()
        return apply(uow, *given)

    monkeypatch.setattr(split, "ROWS_PER_CHUNK", 10)
    monkeypatch.setattr(applying, "apply", apply_and_cancel)
    assert importing.work(job["id"]).status == "cancelled"
    assert importing.helpers(job["id"]) == []
    assert (shown["status"], shown["progress"]["done"]) == ("running", 10)
    assert (shown["progress"]["total"], shown["result"]) == (35, None)
    record = data(quiet_client.get("/imports"))["items"][0]
    assert (record["status"], record["received"], record["added"]) == ("cancelled", 35, 10)
    assert set(everybody(quiet_client, list_id)) == set(emails[:10])
    assert objects(quiet) == before


def test_a_name_is_kept_without_folders_and_within_bounds() -> None:
    assert records.display_filename("C:\\lists\\mine.csv") == "mine.csv"
    assert records.display_filename("../a\0\nb.csv") == "ab.csv"
    assert records.display_filename("x" * 300 + ".csv") == ("x" * 251) + ".csv"
    assert records.display_filename("") is records.display_filename(None) is None
