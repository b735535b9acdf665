"""Tests of imports of files whose encoding is not Unicode."""

import httpx2

from tests.support.http.replies import data, problem
from tests.support.imports.bulk import (
    active_members,
    build_addresses,
    import_members_file,
    nonzero_counts,
    upload,
)
from tests.support.imports.console_imports import preview_import
from tests.support.lists.subscribers import new_list
from tests.support.people.consoles import OwnerAtConsole, await_ended_page, read_error, read_page

# The bytes of these names are plausible in several encodings.
AMBIGUOUS_NAMES = ("Marić", "Kovačić", "Anđela")


def file_of(emails: list[str], names: tuple[str, ...], encoding: str) -> bytes:
    pairs = zip(emails, names, strict=True)
    return "".join(["email;name\n", *(f"{email};{name}\n" for email, name in pairs)]).encode(
        encoding
    )


def test_import_with_unclear_encoding_adds_nobody_and_previews_each_candidate(
    client: httpx2.Client, list_id: int
) -> None:
    emails = build_addresses(3)
    file = file_of(emails, AMBIGUOUS_NAMES, "cp1250")

    error = problem(upload(client, list_id, file), 422, "import.encoding_needed")

    assert "cp1250" in error["detail"]
    [candidate] = [each for each in error["errors"] if each["message"].startswith("cp1250: ")]
    assert (candidate["field"], candidate["code"]) == ("query.encoding", "import.encoding_needed")
    assert all(name in candidate["message"] for name in AMBIGUOUS_NAMES)
    [job] = data(client.get("/jobs", params={"limit": 1}))["items"]
    assert data(client.get(f"/jobs/{job['id']}"))["error"]["errors"] == error["errors"]
    assert active_members(client, list_id) == {}

    problem(upload(client, list_id, file, encoding="rot13"), 422, "import.encoding")
    result = import_members_file(client, list_id, file, encoding="Windows-1250")
    assert nonzero_counts(result) == {"received": 3, "added": 3}
    members_by_email = active_members(client, list_id)
    assert [members_by_email[email]["name"] for email in emails] == [*AMBIGUOUS_NAMES]
    record = data(client.get(f"/imports/{result['import_id']}"))
    assert (record["encoding"], record["description"]["encoding"]) == ("cp1250", "cp1250")


def test_one_late_name_decides_the_encoding_of_a_large_import_file(
    client: httpx2.Client, list_id: int
) -> None:
    emails = build_addresses(4_000)
    names = (*(f"M{number}" for number in range(3_999)), "Иван Петров")

    result = import_members_file(client, list_id, file_of(emails, names, "cp1251"))

    assert nonzero_counts(result) == {"received": 4_000, "added": 4_000}
    [member] = data(client.get(f"/lists/{list_id}/subscriptions", params={"email": emails[-1]}))[
        "items"
    ]
    assert member["name"] == "Иван Петров"
    record = data(client.get(f"/imports/{result['import_id']}"))
    assert (record["encoding"], record["description"]["encoding"]) == ("cp1251", "cp1251")


def test_console_import_lets_the_owner_choose_the_encoding(console: OwnerAtConsole) -> None:
    list_id = new_list(console.api)["id"]
    emails = build_addresses(3)
    path = preview_import(console, list_id, file_of(emails, AMBIGUOUS_NAMES, "cp1250"))
    text = console.see(path)
    assert "The encoding of the file could not be detected" in text
    assert "Central Europe (Windows-1250)" in text
    assert "Kovačić" in text
    assert 'value="start"' not in text
    reply = console.send(path, act="look", encoding="rot13")
    assert read_error(read_page(reply, 422), "encoding")

    console.send(path, act="look", encoding="cp1250")
    assert "The file was read as Central Europe (Windows-1250)" in await_ended_page(console, path)
    console.send(path, act="start")
    await_ended_page(console, path)

    members_by_email = active_members(console.api, list_id)
    assert [members_by_email[email]["name"] for email in emails] == [*AMBIGUOUS_NAMES]
