"""Tests of how imports interpret the columns, dates and numbers of a file."""

from threading import Lock
from typing import Any

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from models import MemberImport
from services.subscriptions.imports import accepting
from services.subscriptions.imports.chunks import applying, chunks
from services.subscriptions.imports.chunks.chunk_extras import TagIds
from services.subscriptions.imports.chunks.chunks import PreparedChunk
from storage.unit_of_work import UnitOfWork
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import (
    active_members,
    await_job,
    build_address_file,
    build_addresses,
    build_csv,
    import_members_file,
    list_stored_keys,
    upload,
)
from tests.support.imports.importing import ImportRunner
from tests.support.lists.segments import new_field
from tests.support.lists.subscribers import new_address, new_list

HEADER = ["Email", "Name", "Company", "Tags", "created_at", "Notes"]
JOIN_TIME = "2019-05-06T07:08:09.000000Z"


@pytest.fixture
def company_field(client: httpx2.Client) -> dict[str, Any]:
    """A custom field named `company`, which the fixture `owner` has created."""
    return new_field(client, "company")


@pytest.mark.usefixtures("company_field")
def test_import_maps_columns_to_fields_and_tags_and_join_date_and_names_ignored_ones(
    client: httpx2.Client, list_id: int
) -> None:
    ada, ben = build_addresses(2)
    rows = (
        [ada, "Ada", "Acme", "vip,news", "2019-05-06 07:08:09", "hi"],
        [ben, "", "", "", "", ""],
    )
    result = import_members_file(client, list_id, build_csv(HEADER, *rows))
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
    members_by_email = active_members(client, list_id)
    assert members_by_email[ada]["fields"] == {"company": "Acme"}
    assert members_by_email[ada]["tags"] == ["news", "vip"]
    assert members_by_email[ada]["joined_at"] == JOIN_TIME
    assert (members_by_email[ben]["fields"], members_by_email[ben]["tags"]) == ({}, [])
    record = data(client.get(f"/imports/{result['import_id']}"))
    assert record["ignored_columns"] == ["Notes"]
    assert record["columns"][2]["becomes"] == "fields.company"


def test_import_mails_its_counts_to_the_owner_unless_disabled(
    client: httpx2.Client, list_id: int, stack: Stack, owner: Owner
) -> None:
    assert data(client.get("/users/me"))["import_mails"] is True
    emails = build_addresses(3)
    data(client.patch("/deny-list", json={"add_addresses": emails[:1]}))
    import_members_file(client, list_id, build_address_file(*emails), name="people.csv")
    import_members_file(client, list_id, build_address_file(new_address()), dry_run="1")
    eventually(lambda: stack.mails(owner.email), what="the mail")
    [mail] = stack.mails(owner.email)
    assert mail["subject"] == "Your import has finished"
    text = " ".join(mail["text"].split())
    assert "Results for 3 rows: 2 added," in text
    assert "1 blocked by a deny list." in text
    assert data(client.patch("/users/me", json={"import_mails": False}))["import_mails"] is False
    job = data(upload(client, list_id, build_address_file(new_address()), prefer=None), 202)
    assert await_job(client, job["id"])["status"] == "succeeded"
    mail_counts = stack.query(
        "SELECT count(*) FROM account_mails WHERE kind = 'import_ended' AND user_id = %s",
        owner.user_id,
    )
    assert mail_counts == [(1,)]


@pytest.mark.parametrize("mapping", ["", "{", "[]", '"email"', '{"a": 1}', '{"a\\u0000": "email"}'])
def test_import_rejects_a_malformed_column_mapping(
    client: httpx2.Client, list_id: int, mapping: str
) -> None:
    reply = upload(client, list_id, build_address_file(new_address()), mapping=mapping)
    problem(reply, 400, "import.mapping")


def test_import_with_a_mapping_of_an_unknown_column_fails(
    client: httpx2.Client, list_id: int
) -> None:
    file = build_address_file(new_address())
    error_code = "import.mapping_column"
    problem(upload(client, list_id, file, mapping='{"Post": "email"}'), 422, error_code)
    [record] = data(client.get("/imports"))["items"]
    assert (record["status"], record["error"]["code"]) == ("failed", error_code)


@pytest.mark.parametrize(
    "query", [{"dry_run": "maybe"}, {"on_existing": "replace"}, {"kind": "people"}]
)
def test_import_rejects_unknown_option_values(
    client: httpx2.Client, list_id: int, query: dict[str, str]
) -> None:
    reply = upload(client, list_id, build_address_file(new_address()), **query)
    assert reply.status_code == 400
    assert data(client.get("/imports"))["items"] == []


def test_queued_import_is_cancelled_immediately_and_its_file_is_deleted(
    stack_without_workers: Stack, client_without_workers: httpx2.Client
) -> None:
    list_id = new_list(client_without_workers)["id"]
    objects_before = list_stored_keys(stack_without_workers)
    job = data(
        upload(
            client_without_workers, list_id, build_address_file(*build_addresses(3)), prefer=None
        ),
        202,
    )
    assert len(list_stored_keys(stack_without_workers) - objects_before) == 1
    assert data(client_without_workers.delete(f"/jobs/{job['id']}")) == 1
    [record] = data(client_without_workers.get("/imports"))["items"]
    assert (record["status"], record["error"]["code"]) == ("cancelled", "job.cancelled")
    assert list_stored_keys(stack_without_workers) == objects_before
    problem(client_without_workers.post(f"/jobs/{job['id']}/retry"), 409, "job.not_retryable")


def test_running_import_is_cancelled_between_chunks_and_keeps_finished_chunks(
    stack_without_workers: Stack,
    client_without_workers: httpx2.Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    list_id = new_list(client_without_workers)["id"]
    objects_before = list_stored_keys(stack_without_workers)
    emails = build_addresses(35)
    job = data(
        upload(client_without_workers, list_id, build_address_file(*emails), prefer=None), 202
    )
    importing = ImportRunner(stack_without_workers)
    apply_chunk = applying.apply_chunk
    running_job: dict[str, Any] = {}
    lock = Lock()

    def apply_and_cancel(
        uow: UnitOfWork, task: MemberImport, chunk: PreparedChunk, tag_ids: TagIds
    ) -> applying.AppliedChunk:
        """Cancel the import after two chunks, so that later chunks have no effect."""
        if chunk.number >= 2:
            with lock:
                eventually(lambda: importing.of_job(job["id"]).applied == 2, what="two chunks")
                if not running_job:
                    running_job.update(data(client_without_workers.get(f"/jobs/{job['id']}")))
                    client_without_workers.delete(f"/jobs/{job['id']}").raise_for_status()
        return apply_chunk(uow, task, chunk, tag_ids)

    monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", 10)
    monkeypatch.setattr(applying, "apply_chunk", apply_and_cancel)
    assert importing.work(job["id"]).status == "cancelled"
    assert importing.helpers(job["id"]) == []
    assert (running_job["status"], running_job["progress"]["done"]) == ("running", 20)
    assert (running_job["progress"]["total"], running_job["result"]) == (35, None)
    record = data(client_without_workers.get("/imports"))["items"][0]
    assert (record["status"], record["received"], record["added"]) == ("cancelled", 35, 20)
    assert set(active_members(client_without_workers, list_id)) == set(emails[:20])
    assert list_stored_keys(stack_without_workers) == objects_before


def test_import_filename_is_stored_without_folders_and_at_most_255_characters() -> None:
    assert accepting.tidy_filename("C:\\lists\\mine.csv") == "mine.csv"
    assert accepting.tidy_filename("../a\0\nb.csv") == "ab.csv"
    assert accepting.tidy_filename("x" * 300 + ".csv") == ("x" * 251) + ".csv"
    assert accepting.tidy_filename("") is accepting.tidy_filename(None) is None


DATE_HEADER = ["Email", "created_at"]


def read_join_dates(client: httpx2.Client, list_id: int, emails: list[str]) -> list[str]:
    members_by_email = active_members(client, list_id)
    return [members_by_email[email]["joined_at"][:10] for email in emails]


def import_dates(
    client: httpx2.Client, list_id: int, dates: list[str], **params: str
) -> tuple[dict[str, Any], list[str]]:
    """Import one member per join date, and return the result and the members' addresses."""
    emails = build_addresses(len(dates))
    rows = zip(emails, dates, strict=True)
    return import_members_file(client, list_id, build_csv(DATE_HEADER, *rows), **params), emails


def test_date_at_the_end_of_a_long_import_file_decides_the_date_order_of_all_rows(
    client: httpx2.Client, list_id: int
) -> None:
    # The file is longer than the sample from which the date format is guessed.
    dates = ["03/04/2025"] * 900 + ["12/31/2024"]
    result, emails = import_dates(client, list_id, dates)
    assert (result["added"], result["left_out"]) == (len(dates), 0)
    assert result["columns"][1]["written"] == "mdy"
    members_by_email = active_members(client, list_id)
    assert {members_by_email[email]["joined_at"][:10] for email in emails[:-1]} == {"2025-03-04"}
    assert members_by_email[emails[-1]]["joined_at"][:10] == "2024-12-31"


@pytest.mark.parametrize("dates", [["03/04/2025", "05/06/2025"], ["31/12/2024", "12/31/2024"]])
def test_import_with_ambiguous_date_order_adds_nobody_and_asks_for_the_order(
    client: httpx2.Client, list_id: int, dates: list[str]
) -> None:
    emails = build_addresses(2)
    file = build_csv(DATE_HEADER, *zip(emails, dates, strict=True))
    error = problem(upload(client, list_id, file), 422, "import.date_order_needed")
    assert "'created_at'" in error["detail"]
    assert active_members(client, list_id) == {}
    problem(upload(client, list_id, file, date_order="ymd"), 400, "request.invalid")
    data(upload(client, list_id, file, date_order="mdy"))
    [record] = [each for each in data(client.get("/imports"))["items"] if each["date_order"]]
    assert record["date_order"] == "mdy"
    # Dates that don't fit the given order are left out and counted.
    assert record["left_out"] == (0 if dates[0] == "03/04/2025" else 1)
    if not record["left_out"]:
        assert read_join_dates(client, list_id, emails) == ["2025-03-04", "2025-05-06"]
    assert len(active_members(client, list_id)) == 2


def test_requested_date_order_does_not_override_a_column_with_unambiguous_dates(
    client: httpx2.Client, list_id: int
) -> None:
    result, emails = import_dates(client, list_id, ["03/04/2025", "31/12/2024"], date_order="mdy")
    assert result["columns"][1]["written"] == "dmy"
    assert read_join_dates(client, list_id, emails) == ["2025-04-03", "2024-12-31"]


def test_import_recognises_german_numbers_and_dates_and_booleans_in_new_fields(
    client: httpx2.Client, list_id: int
) -> None:
    [email] = build_addresses(1)
    header = ["Email", "Umsatz", "Geburtstag", "Stammkunde", "Liste"]
    file = build_csv(header, [email, "1.594,08", "03.04.1980", "ja", "1,2"])
    result = import_members_file(client, list_id, file, create_fields="1")
    created_types = [each.get("creates") for each in result["columns"]]
    assert created_types == [None, "number", "date", "boolean", "text"]
    fields = active_members(client, list_id)[email]["fields"]
    assert fields == {
        "umsatz": 1594.08,
        "geburtstag": "1980-04-03",
        "stammkunde": True,
        "liste": "1,2",
    }


def test_import_mapping_sets_the_type_of_a_new_field(client: httpx2.Client, list_id: int) -> None:
    [email] = build_addresses(1)
    file = build_csv(["Email", "Code", "Since"], [email, "12", "2020-01-02"])
    mapping = '{"Code": "fields.code:text", "Since": "fields.since"}'
    import_members_file(client, list_id, file, create_fields="1", mapping=mapping)
    assert active_members(client, list_id)[email]["fields"] == {"code": "12", "since": "2020-01-02"}
    for type_, expected_text in [
        ("number", "already has the type text"),
        ("choice", "already has the type text"),
    ]:
        reply = upload(client, list_id, file, mapping=f'{{"Code": "fields.code:{type_}"}}')
        assert expected_text in problem(reply, 422, "import.mapping_type")["detail"]
    reply = upload(
        client, list_id, file, create_fields="1", mapping='{"Code": "fields.other:choice"}'
    )
    assert "one of text, number" in problem(reply, 422, "import.mapping_type")["detail"]


def test_import_problems_are_grouped_by_column_and_rule_with_three_examples(
    client: httpx2.Client, list_id: int
) -> None:
    emails = build_addresses(5)
    rows = [[email, "soon"] for email in emails]
    result = import_members_file(
        client, list_id, build_csv(DATE_HEADER, *rows, ["ada@", ""]), dry_run="1"
    )
    assert result["problems"][0] == {
        "column": "created_at",
        "rule": "must be a date",
        "rows": 5,
        "examples": [{"line": line, "cell": "soon"} for line in (2, 3, 4)],
    }
    [address_problem] = result["problems"][1:]
    assert (address_problem["column"], address_problem["rows"]) == (None, 1)
    assert address_problem["examples"] == [{"line": 7, "cell": "ada@"}]
