"""What a caller asks of an import: a dry run, updates, a mapping, its end."""

import json
from typing import Any

import httpx
import pytest

from services.mailing.imports import accept
from services.mailing.imports.applying import apply as applying
from services.mailing.imports.splitting import split
from storage.unit_of_work import UnitOfWork
from tests.contract.bulk import (
    addresses,
    counts,
    everybody,
    imported,
    objects,
    of_addresses,
    sheet,
    upload,
)
from tests.contract.replies import data, problem
from tests.contract.subscribers import (
    known_member,
    new_address,
    new_list,
)
from tests.importing import Importing
from tests.stack import Stack


def test_a_mapping_names_columns_by_name_or_place(client: httpx.Client, list_id: int) -> None:
    ada, ben = addresses(2)
    file = sheet(["Contact", "Handle", "Email"], [ada, "Ada", "old@"], [ben, "Ben", "old@"])
    mapping = json.dumps({"Contact": "email", "1": "name", "Email": "ignore"})
    assert counts(imported(client, list_id, file, mapping=mapping)) == {"received": 2, "added": 2}
    assert known_member(client, list_id, ada)["name"] == "Ada"


@pytest.mark.parametrize("mapping", ["", "{", "[]", '"email"', '{"a": 1}', '{"a\\u0000": "email"}'])
def test_a_mapping_that_is_none_is_400(client: httpx.Client, list_id: int, mapping: str) -> None:
    reply = upload(client, list_id, of_addresses(new_address()), mapping=mapping)
    problem(reply, 400, "import.mapping")


@pytest.mark.parametrize(
    ("mapping", "code"),
    [({"Email": "address"}, "import.mapping_role"), ({"Post": "email"}, "import.mapping_column")],
)
def test_a_mapping_that_does_not_fit_fails_the_import(
    client: httpx.Client, list_id: int, mapping: dict[str, str], code: str
) -> None:
    file = of_addresses(new_address())
    problem(upload(client, list_id, file, mapping=json.dumps(mapping)), 422, code)
    [record] = data(client.get("/imports"))["items"]
    assert (record["status"], record["error"]["code"]) == ("failed", code)


@pytest.mark.parametrize("query", [{"dry_run": "maybe"}, {"on_existing": "replace"}])
def test_an_option_of_another_kind_is_400(
    client: httpx.Client, list_id: int, query: dict[str, str]
) -> None:
    reply = upload(client, list_id, of_addresses(new_address()), **query)
    assert reply.status_code == 400
    assert data(client.get("/imports"))["items"] == []


# -- cancelling ----------------------------------------------------------------------------------


def test_a_waiting_import_is_cancelled_at_once_and_leaves_no_object(
    quiet: Stack, quiet_client: httpx.Client
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
    quiet: Stack, quiet_client: httpx.Client, monkeypatch: pytest.MonkeyPatch
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
    assert accept.display_filename("C:\\lists\\mine.csv") == "mine.csv"
    assert accept.display_filename("../a\0\nb.csv") == "ab.csv"
    assert accept.display_filename("x" * 300 + ".csv") == ("x" * 251) + ".csv"
    assert accept.display_filename("") is accept.display_filename(None) is None
