"""Options in a body, where nothing reads them: they are refused, and nothing is done."""

import httpx
import pytest

from tests.contract.bulk import addresses, objects, of_addresses
from tests.contract.replies import data, problem
from tests.contract.subscribers import members, new_list
from tests.pictures import encoded
from tests.stack import Stack

STRICT = {"Prefer": "handling=strict"}

Part = tuple[str, tuple[str | None, str | bytes]]


def _part(name: str, value: str) -> Part:
    return (name, (None, value))


def _refused(reply: httpx.Response, name: str) -> None:
    told = problem(reply, 400, "request.option_in_body")
    assert [each["field"] for each in told["errors"]] == [f"body.{name}"]
    assert f"body.{name} " in told["message"]
    assert "the query" in told["message"]


def _import(
    client: httpx.Client, list_id: int, *parts: Part, headers: dict[str, str] | None = None
) -> httpx.Response:
    return client.post(f"/lists/{list_id}/imports", files=[*parts], headers=headers)


OPTIONS = {
    "dry_run": "1",
    "on_existing": "update",
    "mapping": "{}",
    "kind": "bounces",
    "create_fields": "1",
    "filename": "a.csv",
}


@pytest.mark.parametrize("headers", [{}, STRICT], ids=["lenient", "strict"])
@pytest.mark.parametrize("name", OPTIONS)
def test_an_import_with_an_option_as_a_part_imports_nothing(
    quiet: Stack, quiet_client: httpx.Client, headers: dict[str, str], name: str
) -> None:
    before, list_id = objects(quiet), new_list(quiet_client)["id"]
    file: Part = ("file", ("mail.csv", of_addresses(*addresses(2))))
    option = _part(name, OPTIONS[name])
    for parts in ([option, file], [file, option]):
        _refused(_import(quiet_client, list_id, *parts, headers=headers), name)
    assert data(quiet_client.get("/imports"))["items"] == []
    assert objects(quiet) <= before


@pytest.mark.parametrize("headers", [{}, STRICT], ids=["lenient", "strict"])
@pytest.mark.parametrize("name", ["encrypted", "renditions"])
def test_an_image_with_an_option_as_a_part_is_not_stored(
    quiet: Stack, quiet_client: httpx.Client, headers: dict[str, str], name: str
) -> None:
    before = set(quiet.stored())
    parts: list[Part] = [_part(name, "true"), ("file", ("a.png", encoded("PNG")))]
    headers = {"Prefer": ", ".join(["respond-async", *headers.values()])}
    _refused(quiet_client.post("/attachments", files=parts, headers=headers), name)
    assert data(quiet_client.get("/attachments"))["items"] == []
    assert set(quiet.stored()) <= before


def test_other_parts_are_refused_if_asked_to_and_passed_over_otherwise(
    client: httpx.Client, list_id: int
) -> None:
    image: Part = ("file", ("a.png", encoded("PNG")))
    emails = addresses(2)
    sheet: Part = ("file", ("mail.csv", of_addresses(*emails)))
    note = _part("note", "spring")
    strict = client.post("/attachments", files=[note, image], headers=STRICT)
    assert problem(strict, 400, "request.unknown")["errors"][0]["field"] == "body.note"
    strict = _import(client, list_id, sheet, note, headers=STRICT)
    assert problem(strict, 400, "request.unknown")["errors"][0]["field"] == "body.note"
    assert members(client, list_id) == []
    data(client.post("/attachments", files=[image], headers=STRICT))
    data(client.post("/attachments", files=[note, image]))
    wait = {"Prefer": "wait=30"}
    assert data(_import(client, list_id, sheet, note, headers=wait))["result"]["added"] == 2


@pytest.mark.parametrize("headers", [{}, STRICT], ids=["lenient", "strict"])
def test_an_act_with_its_dry_run_in_the_body_is_not_done(
    quiet_client: httpx.Client, headers: dict[str, str]
) -> None:
    list_id = new_list(quiet_client)["id"]
    wanted = {"action": "tag", "value": "new", "filter": {"field": "email", "exists": True}}
    body = {**wanted, "dry_run": 1}
    path = f"/lists/{list_id}/members/bulk"
    _refused(quiet_client.post(path, json=body, headers=headers), "dry_run")
    assert data(quiet_client.get("/jobs"))["items"] == []
    data(quiet_client.post(path, json=wanted, headers=headers), 202)
