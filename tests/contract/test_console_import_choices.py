"""Tests of the choices that an owner makes in the preview of an import in the console."""

import csv
import io
import re
from datetime import date, timedelta
from typing import NamedTuple

from devstack.harness.stack import Stack
from services.accounts import email_addresses
from tests.support.imports.bulk import (
    active_members,
    build_address_file,
    build_addresses,
    build_csv,
)
from tests.support.imports.console_imports import get_import, preview_import, read_counts
from tests.support.lists.segments import new_field
from tests.support.lists.subscribers import new_list
from tests.support.people.consoles import (
    OwnerAtConsole,
    await_ended_page,
    read_error,
    read_page,
    rows_of,
)

ROWS = 309
# The number of rows that become members. The other rows are a duplicate, two people who don't want
# the newsletter, two rows with an invalid address, and a row without an address.
MEMBERS = 303
HEADER = (
    *("E-Mail-Adresse", "Vorname", "Nachname", "Angemeldet am", "Ort", "Gruppen", "Newsletter"),
    *("Geburtstag", ""),
)
# The import leaves these columns out until the owner chooses what to do with them.
UNKNOWN_COLUMNS = ("Ort", "Geburtstag")
_TOWNS = ("Köln", "Düsseldorf", "Gießen", "Bern; Schweiz")
_GROUPS = ("Presse", "Presse, Förderer", "", "Vorstand")
_FIRST_DAY = date(2019, 1, 5)
_FIRST_BIRTHDAY = date(1931, 3, 1)


class GermanMember(NamedTuple):
    """A member in the sheet, with the values that the import must store."""

    email: str
    name: str
    joined: date
    city: str
    tags: tuple[str, ...]
    birthday: date


def build_german_sheet(mark: str) -> tuple[bytes, list[GermanMember]]:
    """Return the file in Windows-1252, and its members. ``mark`` makes the addresses unique."""
    members = [_build_member(number, mark) for number in range(MEMBERS)]
    rows = [_write_member(number, member) for number, member in enumerate(members)]
    # Write an address with a name, a mailto link, and an address whose domain has an umlaut.
    rows[7][0] = f"Jürgen Groß <{members[7].email}>"
    rows[8][0] = f"mailto:{members[8].email}"
    rows[9][0] = f"info.{mark}@bücher.example"
    [address] = email_addresses.normalise_addresses([rows[9][0]])
    members[9] = members[9]._replace(email=str(address))
    rows += [
        [members[0].email, *rows[0][1:]],
        [f"fern.{mark}@example.com", *rows[5][1:6], "nein", "", ""],
        [f"weit.{mark}@example.com", *rows[5][1:6], "Nein", "", ""],
        ["keine Adresse", *rows[5][1:]],
        [f"kaputt.{mark}@", *rows[5][1:]],
        ["", *rows[5][1:]],
    ]
    text = io.StringIO()
    csv.writer(text, delimiter=";", lineterminator="\r\n").writerows([HEADER, *rows])
    return text.getvalue().encode("cp1252"), members


def _build_member(number: int, mark: str) -> GermanMember:
    return GermanMember(
        email=f"p{number}.{mark}@example.com",
        name=f"Jürgen Groß-{number}",
        joined=_FIRST_DAY + timedelta(days=7 * number),
        city=_TOWNS[number % 4],
        tags=tuple(filter(None, _GROUPS[number % 4].split(", "))),
        birthday=_FIRST_BIRTHDAY + timedelta(days=91 * number),
    )


def _write_member(number: int, member: GermanMember) -> list[str]:
    # Every third row has years with two digits.
    written = "%d.%m.%y" if number % 3 == 0 else "%d.%m.%Y"
    return [
        *(member.email, "Jürgen", f"Groß-{number}", member.joined.strftime(written), member.city),
        *(", ".join(member.tags), "ja" if number % 2 else "Ja", member.birthday.strftime(written)),
        "",
    ]


def test_console_import_asks_for_the_address_column_if_no_column_is_recognised(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    [email] = build_addresses(1)
    # The first rows have no address, so that the address column can't be recognised.
    rows_without_address = [["", f"Person {number}"] for number in range(800)]
    content = build_csv(["Where", "Who"], *rows_without_address, [email, "Ada"])
    path = preview_import(console, list_id, content)
    text = console.see(path)
    assert "No column with e-mail addresses was found" in text
    assert 'value="start"' not in text
    console.send(path, column_0="email", column_1="name", act="look")
    text = await_ended_page(console, path)
    assert read_counts(text)["would be added"] == "1"
    console.send(path, act="start")
    await_ended_page(console, path)
    assert active_members(console.api, list_id)[email]["name"] == "Ada"


def test_console_import_starts_only_after_a_preview_of_the_latest_choices(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    content = build_csv(["Email", "Notes"], [build_addresses(1)[0], "A word"])
    path = preview_import(console, list_id, content)
    text = console.do(path, column_1="tags", act="start")
    assert "You changed the options" in text
    text = await_ended_page(console, path)
    assert active_members(console.api, list_id) == {}
    assert '<option value="tags" selected>' in text
    console.send(path, act="start")
    await_ended_page(console, path)
    [member] = active_members(console.api, list_id).values()
    assert member["tags"] == ["A word"]


def test_console_import_rejects_two_columns_with_the_same_meaning(console: OwnerAtConsole) -> None:
    list_id = new_list(console.api)["id"]
    content = build_csv(["Email", "A", "B"], [build_addresses(1)[0], "x", "y"])
    path = preview_import(console, list_id, content)
    reply = console.send(path, column_1="name", column_2="name", act="look")
    text = read_page(reply, 422)
    assert read_error(text, "column_2") == "You already chose this for another column."
    assert get_import(console, path)["status"] == "succeeded"


def test_messy_german_sheet_needs_at_most_two_choices(console: OwnerAtConsole) -> None:
    mailing_list = new_list(console.api)
    content, expected_members = build_german_sheet(str(mailing_list["id"]))
    path = preview_import(console, mailing_list["id"], content, "mitglieder.csv")
    text = console.see(path)
    assert read_counts(text)["rows in the file"] == str(ROWS)
    assert read_counts(text)["would be added"] == str(MEMBERS)
    column_names = ", ".join(UNKNOWN_COLUMNS)
    assert f"2 columns with data are left out: {column_names}." in text
    problem_rows = rows_of(text.split("Table: Rows that were not added")[1].split("</table>")[0])
    assert {row[1] for row in problem_rows[1:]} == {"–"}
    assert ["Another row of the file has the same address.", "–", "1", ""] in problem_rows
    choices = {f"column_{HEADER.index(column)}": "new" for column in UNKNOWN_COLUMNS}
    console.send(path, act="look", **choices)
    text = await_ended_page(console, path)
    assert "left out:" not in text
    console.send(path, act="start")
    await_ended_page(console, path)
    members_by_email = active_members(console.api, mailing_list["id"])
    assert members_by_email.keys() == {each.email for each in expected_members}
    for expected_member in expected_members:
        member = members_by_email[expected_member.email]
        assert (member["name"], member["joined_at"][:10]) == (
            expected_member.name,
            expected_member.joined.isoformat(),
        )
        assert sorted(member["tags"]) == sorted(expected_member.tags)
        birthday = expected_member.birthday.isoformat()
        assert member["fields"] == {"ort": expected_member.city, "geburtstag": birthday}
    expected_problem = ["The file says that this person is not subscribed.", "–", "2"]
    assert expected_problem in [row[:3] for row in problem_rows]


def test_console_import_preview_shows_join_dates_labels_and_yes_or_no(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    new_field(console.api, "town", "text", label="Home town")
    header = ["Email", "Joined at", "town", "Likes cats", "Tags"]
    rows = [
        [build_addresses(1)[0], "01.02.24", "Rome", "ja", "press"],
        [*build_addresses(1), *[""] * 4],
    ]
    path = preview_import(console, list_id, build_csv(header, *rows), create_fields="on")
    text = console.see(path)
    first_row = next(row for row in rows_of(text) if row[:2] == ["2", rows[0][0]])
    assert first_row[2:] == [
        "",
        "1 Feb 2024",
        "Free",
        "Active",
        "press ; Home town : Rome , Likes cats : Yes",
    ]
    assert "Field: Home town (detected)" in text
    option_groups = re.findall(r'<optgroup label="(.*?)">', text.split("</select>")[0])
    assert option_groups == [
        "Person",
        "Membership",
        "Permission to send mail",
        "Consent",
        "Origin of the sign-up",
        "Your fields",
        "New field",
    ]


def test_console_import_counts_left_out_columns_with_data_in_any_row(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    rows = [[each, "", " ", "A"] for each in build_addresses(1_500)]
    rows[-1][1] = "late"
    path = preview_import(console, list_id, build_csv(["Email", "Late", "Blank", "Early"], *rows))
    assert "2 columns with data are left out: Late, Early." in console.see(path)
    columns = get_import(console, path)["columns"]
    assert [each["has_data"] for each in columns] == [True, True, False, True]
    console.send(path, column_1="new", column_3="ignore", act="look")
    assert "1 column with data is left out: Early." in await_ended_page(console, path)


def test_console_import_preview_explains_why_a_consent_column_is_not_used(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    content = build_csv(["Email", "Photo consent"], [build_addresses(1)[0], "no"])
    path = preview_import(console, list_id, content)
    assert "The header is about something other than mail." in console.see(path)


def test_console_import_pages_through_the_columns_of_a_wide_file(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    names = ["Email", *(f"Column {number}" for number in range(1, 30))]
    content = build_csv(names, [build_addresses(1)[0], *map(str, range(1, 30))])
    path = preview_import(console, list_id, content)
    console.send(path, column_1="new:text", act="look")
    text = await_ended_page(console, path)
    assert 'name="column_25"' not in text
    assert "New field: text" in text
    reply = console.send(f"{path}?columns=20", column_25="new", act="look")
    assert reply.headers["location"].endswith(f"{path}?columns=20")
    await_ended_page(console, path)
    console.send(path, act="start")
    await_ended_page(console, path)
    [member] = active_members(console.api, list_id).values()
    assert member["fields"] == {"column_1": "1", "column_25": 25}


def test_fourth_import_preview_deletes_the_file_of_the_first_preview(
    console: OwnerAtConsole, stack: Stack
) -> None:
    list_id = new_list(console.api)["id"]
    paths = [
        preview_import(console, list_id, build_address_file(*build_addresses(1))) for _ in range(4)
    ]
    # Delete the objects that are due for deletion, as a worker does within seconds.
    stack.stored()
    text = read_page(console.send(paths[0], act="look"), 409)
    assert "The uploaded file has been deleted" in text
    assert console.send(paths[1], act="look").status_code == 303
    assert read_counts(await_ended_page(console, paths[1]))["would be added"] == "1"


def test_console_import_asks_for_the_order_of_ambiguous_dates(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    emails = build_addresses(2)
    content = build_csv(
        ["Email", "created_at"], [emails[0], "03/04/2025"], [emails[1], "05/06/2025"]
    )
    path = preview_import(console, list_id, content)
    text = console.see(path)
    assert "date_order=dmy if the day comes first" in text
    assert 'value="start"' not in text
    reply = console.send(path, act="look", date_order="ymd")
    assert read_error(read_page(reply, 422), "date_order")
    console.send(path, act="look", date_order="dmy")
    text = await_ended_page(console, path)
    assert "Dates with the day first" in text
    console.send(path, act="start")
    await_ended_page(console, path)
    members_by_email = active_members(console.api, list_id)
    assert [members_by_email[each]["joined_at"][:10] for each in emails] == [
        "2025-04-03",
        "2025-06-05",
    ]


def test_console_import_lets_the_owner_assign_statuses_to_unknown_values(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    subscribed, unsubscribed, known_opt_out = build_addresses(3)
    content = build_csv(
        ["E-mail", "Status"],
        [subscribed, "1"],
        [unsubscribed, "2"],
        [known_opt_out, "unsubscribed"],
    )
    path = preview_import(console, list_id, content)
    text = console.see(path)
    status_rows = [row[:3] for row in read_value_rows(text)]
    values = ("1", "2", "unsubscribed")
    assert status_rows == [("Status", value, "1") for value in values]
    assert read_counts(text)["would be added"] == "0"
    assert 'name="value_2"' not in text, "a known opt-out can be changed"
    console.send(path, column_1="ignore", act="look")
    assert "This column contains 1 opt-out." in await_ended_page(console, path)
    console.send(path, column_1="confirmed", act="look")
    assert "This column contains 1 opt-out." in await_ended_page(console, path)
    console.send(path, column_1="", act="look")
    await_ended_page(console, path)

    text = console.send(path, value_0="1st", act="look").text
    assert "Choose a status from the list." in read_error(text, "value_0")
    console.send(path, value_0="subscribed", value_1="unsubscribed", act="look")
    assert read_counts(await_ended_page(console, path))["would be added"] == "1"
    # After the dry run, the real import uses the statuses that the owner chose in the dry run.
    console.send(path, act="start")
    await_ended_page(console, path)
    assert active_members(console.api, list_id).keys() == {subscribed}
    assert get_import(console, path)["opted_out"] == 2
    rows = [row for row in rows_of(console.see(path)) if row and row[0] == "Status"]
    assert rows == [
        ["Status", "1", "1", "Subscribed"],
        ["Status", "2 , unsubscribed", "2", "Unsubscribed"],
    ]


def test_console_import_groups_consent_values_by_column_and_meaning(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    first_day = date(2024, 1, 1)
    dates = [f"{first_day + timedelta(days=number)}" for number in range(70)]
    rows = [
        [email, each, "yes", "Ada"]
        for email, each in zip(build_addresses(71), [*dates, ""], strict=True)
    ]
    header = ["Email", "Unsubscribed on", "Newsletter", "First name"]
    path = preview_import(console, list_id, build_csv(header, *rows[40:]))
    assert read_value_rows(console.see(path)) == [
        ("Unsubscribed on", "30 dates", "30", "Unsubscribed"),
        ("Newsletter", "yes", "31", "Subscribed"),
    ]
    # Only 50 of the values are listed, but all rows are counted.
    path = preview_import(console, list_id, build_csv(header, *rows))
    expected = ("Unsubscribed on", "more than 50 dates", "70", "Unsubscribed")
    assert read_value_rows(console.see(path))[0] == expected
    console.send(path, act="start")
    text = await_ended_page(console, path)
    assert read_value_rows(text)[0] == expected
    assert text.index('id="rows"') < text.index('id="values"')


def read_value_rows(text: str) -> list[tuple[str, ...]]:
    """Return the rows of the table with consent values, without the values that are folded."""
    table = text.split("Table: Consent values")[1].split("</table>", maxsplit=1)[0]
    shown = re.sub(r"</summary>.*?</details>", "", table, flags=re.DOTALL)
    return [tuple(row) for row in rows_of(shown)[1:]]


def test_console_import_folds_the_recognised_columns(console: OwnerAtConsole) -> None:
    list_id = new_list(console.api)["id"]
    header = ["Email", "First name", "Notes", "Nothing"]
    path = preview_import(
        console, list_id, build_csv(header, [*build_addresses(1), "Ada", "x", ""])
    )
    text = console.see(path)
    open_part, folded_part = text.split("2 columns recognised</summary>")
    for index, part in enumerate((folded_part, folded_part, open_part, folded_part)):
        assert f'<select id="column_{index}"' in part, header[index]
    assert "Step 2 of 3" in text
    assert ">Origin: source</option>" in text
    # The owner's own choices stay open, so that the owner sees them after the next preview.
    console.send(path, column_2="new", act="look")
    text = await_ended_page(console, path)
    assert '<select id="column_2"' in text.split("2 columns recognised</summary>")[0]
    assert "Step 3 of 3" in text
    # A rejected choice isn't folded.
    reply = console.send(path, column_0="name", column_1="name", act="look")
    assert "<details open>" in read_page(reply, 422).split("2 columns recognised</summary>")[0]


def test_console_import_lets_the_owner_decide_what_yes_means_in_an_ambiguous_column(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    subscribed, unsubscribed = build_addresses(2)
    content = build_csv(
        ["E-mail", "Name", "Mailing"], [subscribed, "Ada", "no"], [unsubscribed, "Ben", "yes"]
    )
    path = preview_import(console, list_id, content)
    assert "doesn&#39;t say what &#34;yes&#34; means" in console.see(path)
    # If the owner chooses the meaning of one column, Pressroom still recognises all other columns
    # by their names.
    console.send(path, column_2="ignore", act="look")
    text = await_ended_page(console, path)
    assert read_counts(text)["would be added"] == "2"
    console.send(path, column_2="unsubscribed", act="look")
    await_ended_page(console, path)
    console.send(path, act="start")
    await_ended_page(console, path)
    members = active_members(console.api, list_id)
    assert {email: member["name"] for email, member in members.items()} == {subscribed: "Ada"}
