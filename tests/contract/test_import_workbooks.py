"""Tests of imports of Excel workbooks through the API, the console and the command line."""

import datetime
from pathlib import Path

import httpx2

from devstack.harness.stack import Stack
from tests.support.commands.running import require_command_error, run_json_command
from tests.support.commands.running import run_command as ended_command
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import (
    active_members,
    build_addresses,
    fetch_rejected_rows,
    import_members_file,
    nonzero_counts,
    upload,
)
from tests.support.imports.console_imports import NEW_IMPORT, preview_import
from tests.support.imports.workbooks import cell, package, sheet_xml, workbook
from tests.support.lists.subscribers import new_list
from tests.support.people.consoles import OwnerAtConsole, await_ended_page

JOIN_DAY = datetime.date(2025, 4, 3)
FILENAME = "members.xlsx"


def member_rows(emails: list[str]) -> list[list[object]]:
    return [
        ["Email", "Name", "Joined at", "Postcode", "Member since"],
        *([email, "Ann", JOIN_DAY, 10115 + index, JOIN_DAY] for index, email in enumerate(emails)),
    ]


def test_import_of_a_workbook_keeps_dates_and_numbers_and_lists_the_sheets(
    client: httpx2.Client, list_id: int
) -> None:
    emails = build_addresses(3)
    rows = member_rows(emails)
    rows.insert(2, ["no address", "Ben", JOIN_DAY, 1, JOIN_DAY])
    file = workbook({"Notes": [["To do"]], "Members": rows}, C="dd/mm/yyyy", E="mm/dd/yyyy")

    options = {"create_fields": "1"}
    preview = import_members_file(client, list_id, file, FILENAME, dry_run="1", **options)
    assert (preview["sheet"], preview["sheets"]) == (
        "Members",
        [{"name": "Notes", "hidden": False}, {"name": "Members", "hidden": False}],
    )
    assert active_members(client, list_id) == {}

    result = import_members_file(client, list_id, file, FILENAME, **options)
    assert nonzero_counts(result) == {"received": 4, "added": 3, "invalid": 1}
    assert (result["sheet"], result["sheets"]) == (preview["sheet"], preview["sheets"])
    record = data(client.get(f"/imports/{result['import_id']}"))
    assert (record["description"]["format"], record["sheet"]) == ("xlsx", None)
    member = active_members(client, list_id)[emails[0]]
    assert member["fields"] == {"postcode": 10115, "member_since": "2025-04-03"}
    assert member["joined_at"].startswith("2025-04-03T")
    [rejected_row] = fetch_rejected_rows(result["errors_url"])
    assert (rejected_row["line"], rejected_row["code"]) == ("3", "email.invalid")
    assert rejected_row["Joined at"] == "2025-04-03"


def test_number_in_a_text_field_has_no_decimal_places(client: httpx2.Client, list_id: int) -> None:
    [email] = build_addresses(1)
    field = {"key": "code", "label": "Code", "type": "text"}
    assert client.post("/fields", json=field).status_code == 200
    file = workbook({"Members": [["Email", "Code"], [email, 12345]]})
    import_members_file(client, list_id, file, FILENAME)
    assert active_members(client, list_id)[email]["fields"] == {"code": "12345"}


def test_leading_zeros_that_a_workbook_shows_are_kept(client: httpx2.Client, list_id: int) -> None:
    [email] = build_addresses(1)
    file = workbook(
        {"Members": [["Email", "Postcode", "Tags"], [email, 1067, 7]]}, B="00000", C="00"
    )
    import_members_file(client, list_id, file, FILENAME, create_fields="1")
    member = active_members(client, list_id)[email]
    assert (member["fields"], member["tags"]) == ({"postcode": "01067"}, ["07"])


def test_sheet_option_chooses_the_sheet_of_a_workbook(client: httpx2.Client, list_id: int) -> None:
    first_email, second_email = build_addresses(2)
    file = workbook({"Members": [["Email"], [first_email]], "Friends": [["Email"], [second_email]]})

    result = import_members_file(client, list_id, file, FILENAME, sheet="Friends")
    assert result["sheet"] == "Friends"
    assert [*active_members(client, list_id)] == [second_email]
    record = data(client.get(f"/imports/{result['import_id']}"))
    assert record["sheet"] == "Friends"

    error = problem(
        upload(client, list_id, file, FILENAME, sheet="Readers"), 422, "import.sheet_not_found"
    )
    assert "'Members', 'Friends'" in error["detail"]
    [record] = data(client.get("/imports", params={"limit": 1}))["items"]
    assert [each["name"] for each in record["description"]["sheets"]] == ["Members", "Friends"]
    reply = upload(client, list_id, file, FILENAME, sheet="a\0b")
    problem(reply, 400, "request.invalid")
    assert [*active_members(client, list_id)] == [second_email]


def test_cell_with_an_error_is_listed_as_a_problem(client: httpx2.Client, list_id: int) -> None:
    [email] = build_addresses(1)
    rows = (
        '<row r="1">' + cell("A1", "Email") + cell("B1", "Tags") + "</row>"
        '<row r="5">' + cell("A5", email) + '<c r="B5" t="e"><v>#N/A</v></c></row>'
    )
    result = import_members_file(client, list_id, package(sheet_xml(rows)), FILENAME)
    assert (result["added"], result["left_out"]) == (1, 1)
    [import_problem] = result["problems"]
    assert (import_problem["column"], import_problem["rule"], import_problem["rows"]) == (
        "Tags",
        "the cell contains the error #N/A",
        1,
    )
    [rejected_row] = fetch_rejected_rows(result["errors_url"])
    assert (rejected_row["line"], rejected_row["code"]) == ("5", "row.left_out")


def test_workbook_that_would_use_up_all_memory_fails_only_its_own_import(
    client: httpx2.Client, list_id: int
) -> None:
    corner_cells = cell("A1", "Email") + cell("XFD1048576", "x")
    huge_workbook = package(sheet_xml(f'<row r="1">{corner_cells}</row>'))
    error = problem(
        upload(client, list_id, huge_workbook, FILENAME), 422, "import.workbook_too_large"
    )
    assert "16,384 columns" in error["detail"]
    assert "Save the sheet with the members as CSV" in error["detail"]
    result = import_members_file(
        client, list_id, workbook({"Members": member_rows(build_addresses(2))}), FILENAME
    )
    assert result["added"] == 2


def test_workbook_of_suppressions_opts_people_out(client: httpx2.Client, list_id: int) -> None:
    [email] = build_addresses(1)
    rows: list[list[object]] = [["Email", "Reason", "Created"], [email, "Hard bounce", JOIN_DAY]]
    file = workbook({"Suppressions": rows}, C="dd/mm/yyyy")
    result = import_members_file(client, list_id, file, FILENAME, kind="suppressions")
    assert nonzero_counts(result) == {"received": 1, "opted_out": 1}


def test_console_previews_a_workbook_and_lets_the_owner_choose_another_sheet(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    first_email, second_email = build_addresses(2)
    file = workbook(
        {
            "Notes": [["To do"]],
            "Members": [["Email", "Notes"], [first_email, "A word"]],
            "Friends": [["Email", "Nickname"], [second_email, "Bee"]],
        }
    )
    assert 'accept=".xlsx,' in console.see(NEW_IMPORT)
    path = preview_import(console, list_id, file, FILENAME)
    text = console.see(path)
    assert "from the sheet <bdi>Members</bdi>" in text
    assert '<option value="Members" selected>Members</option>' in text

    console.send(path, column_1="tags", act="look")
    await_ended_page(console, path)
    console.send(path, sheet="Friends", act="start")
    text = await_ended_page(console, path)
    assert active_members(console.api, list_id) == {}
    assert "from the sheet <bdi>Friends</bdi>" in text
    assert "Nickname" in text
    console.send(path, act="start")
    await_ended_page(console, path)
    assert [*active_members(console.api, list_id)] == [second_email]


def test_console_offers_another_sheet_if_no_sheet_has_an_address_column(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    [email] = build_addresses(1)
    # The address column is recognised neither by its header nor by the first rows.
    rows = [["Where", "Who"], *(["", f"Person {number}"] for number in range(800)), [email, "Ada"]]
    file = workbook({"Notes": [["To do"], ["Party"]], "Readers": rows})
    path = preview_import(console, list_id, file, FILENAME)
    assert "No column with e-mail addresses was found" in console.see(path)
    console.send(path, sheet="Readers", act="look")
    text = await_ended_page(console, path)
    assert "Where" in text
    console.send(path, column_0="email", column_1="name", act="look")
    await_ended_page(console, path)
    console.send(path, act="start")
    await_ended_page(console, path)
    assert active_members(console.api, list_id)[email]["name"] == "Ada"


def test_console_explains_why_a_workbook_is_refused(console: OwnerAtConsole) -> None:
    list_id = new_list(console.api)["id"]
    file = b"\xd0\xcf\x11\xe0" + bytes(2000)
    path = preview_import(console, list_id, file, "members.xls")
    text = console.see(path)
    assert "an old Excel workbook (.xls)" in text
    assert "save it as .xlsx or CSV" in text


def test_cli_imports_a_sheet_of_a_workbook(stack: Stack, list_id: int, tmp_path: Path) -> None:
    first_email, second_email = build_addresses(2)
    file = tmp_path / FILENAME
    file.write_bytes(
        workbook({"Members": [["Email"], [first_email]], "Friends": [["Email"], [second_email]]})
    )
    result = run_json_command(stack, "import", str(list_id), str(file), "--sheet", "Friends")
    assert (result["added"], result["sheet"]) == (1, "Friends")
    output = ended_command(stack.environment, "import", str(list_id), str(file), "--dry-run").stdout
    assert "sheets\n  Members\n  Friends\n" in output
    require_command_error(
        stack, "import.sheet_not_found", "import", str(list_id), str(file), "--sheet", "X"
    )
