"""Tests that an owner can import a German file and undo the import by keyboard only."""

import csv
import gzip
import io
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest
from playwright.sync_api import expect

from devstack.harness.stack import Owner, Stack
from tests.support.browser.consoles import log_in_browser
from tests.support.browser.keyboards import Keyboard
from tests.support.imports.bulk import active_members
from tests.support.lists.subscribers import new_list

pytestmark = pytest.mark.tier("browser")

PERSON_COUNT = 302
HEADER = (
    *("E-Mail-Adresse", "Vorname", "Nachname", "Anmeldedatum", "Tags", "Stadt", "Umsatz"),
    *("Stammkunde", "Geburtstag", "Notiz"),
)
THIS_YEAR = date(2026, 1, 1)


class Person(NamedTuple):
    email: str
    joined: date
    is_press: bool
    city: str

    @property
    def is_meant(self) -> bool:
        return self.is_press and self.city == "Berlin" and self.joined >= THIS_YEAR

    def cells(self, number: int) -> list[str]:
        birthday = date(1960, 1, 1) + timedelta(days=40 * number)
        return [
            *(self.email, "Jürgen", f"Groß {number}", f"{self.joined:%d.%m.%Y}"),
            *("presse" if self.is_press else "", self.city, f"{number},08"),
            *("ja" if number % 2 else "nein", f"{birthday:%d.%m.%Y}", "Grüße"),
        ]


@pytest.fixture
def imported_people(owner: Owner) -> list[Person]:
    return [
        Person(
            f"p{number}.{owner.user_id}@example.com",
            date(2025, 6, 1) + timedelta(days=number),
            is_press=number % 3 > 0,
            city="Berlin" if number % 2 else "Köln",
        )
        for number in range(PERSON_COUNT)
    ]


@pytest.fixture
def member_file(tmp_path: Path, imported_people: list[Person]) -> Path:
    """A CSV file in Latin-1 with semicolons, Windows line ends and two invalid rows."""
    rows = [HEADER, *(each.cells(number) for number, each in enumerate(imported_people))]
    rows += [["keine Adresse", *[""] * 9], [imported_people[0].email, *[""] * 9]]
    path = tmp_path / "mitglieder.csv"
    path.write_bytes("".join(f"{';'.join(row)}\r\n" for row in rows).encode("latin-1"))
    return path


def test_german_sample_can_be_imported_segmented_tagged_exported_and_undone(
    stack: Stack,
    keyboard: Keyboard,
    client: httpx2.Client,
    *,
    owner: Owner,
    member_file: Path,
    imported_people: list[Person],
) -> None:
    segment_emails = {each.email for each in imported_people if each.is_meant}
    list_id = new_list(client)["id"]
    log_in_browser(keyboard.page, stack, owner.user_id)
    keyboard.page.goto(f"{stack.api_url}/console")
    _import(keyboard, member_file)
    members = active_members(client, list_id)
    assert {email: each["joined_at"][:10] for email, each in members.items()} == {
        each.email: each.joined.isoformat() for each in imported_people
    }
    assert members[imported_people[3].email]["fields"] == {
        "stadt": "Berlin",
        "umsatz": 3.08,
        "stammkunde": True,
        "notiz": "Grüße",
        "geburtstag": "1960-04-30",
    }
    import_url = keyboard.page.url
    keyboard.press("link", "See these members")
    _create_segment(keyboard, len(segment_emails))
    _tag_members(keyboard, len(segment_emails))
    tagged_emails = {
        email for email, each in active_members(client, list_id).items() if "2026" in each["tags"]
    }
    assert tagged_emails == segment_emails
    action_url = keyboard.page.url
    _export(keyboard, stack, list_id, segment_emails)
    _undo(keyboard, import_url, action_url, PERSON_COUNT - len(segment_emails), len(segment_emails))
    assert active_members(client, list_id) == {}


def _import(keyboard: Keyboard, member_file: Path) -> None:
    keyboard.press("link", "Lists")
    keyboard.press("link", "Imports")
    keyboard.press("link", "Import a file")
    keyboard.reach_it(keyboard.page.get_by_text("Options", exact=True))
    keyboard.page.keyboard.press("Enter")
    keyboard.tick("Create a field for each unknown column")
    empty_file = member_file.with_name("empty.csv")
    empty_file.touch()
    keyboard.choose_file("File", empty_file)
    keyboard.reach("button", "Preview")
    keyboard.page.keyboard.press("Enter")
    keyboard.begins_at_first_error("File")
    keyboard.choose_file("File", member_file)
    keyboard.press("button", "Preview")
    keyboard.watch_until(keyboard.page.get_by_role("heading", name="Columns"))
    expect(keyboard.page.get_by_text("Numbers with a decimal comma")).to_be_visible()
    expect(keyboard.page.get_by_text("line 304: keine Adresse")).to_be_visible()
    keyboard.walk()
    keyboard.press("button", f"Import {PERSON_COUNT} new members")
    keyboard.watch_until(keyboard.page.get_by_role("heading", name="Results", exact=True))


def _create_segment(keyboard: Keyboard, member_count: int) -> None:
    """Create a segment of subscribed members by tag, city and time of joining."""
    keyboard.reach_it(keyboard.page.get_by_text("Filters", exact=True))
    keyboard.page.keyboard.press("Enter")
    _add_condition(keyboard, "Tag", "is", "presse")
    _add_condition(keyboard, "Stadt", "is", "Berlin")
    _add_condition(keyboard, "Joined", "is on or after", "2026-01-01")
    _add_condition(keyboard, "Status", "is not", "unsubscribed")
    keyboard.press("button", "Apply filters")
    keyboard.press("link", "Save as segment")
    keyboard.shows("Create a segment")
    keyboard.write("Name", "Presse in Berlin")
    keyboard.press("button", "Create segment")
    expect(keyboard.page.locator("#all-found")).to_have_text(f"{member_count:,}")


def _add_condition(keyboard: Keyboard, field: str, operator: str, value: str) -> None:
    keyboard.choose("Field", field)
    keyboard.press("button", "Add condition")
    keyboard.choose(f"{field}: operator", operator)
    value_input = keyboard.page.get_by_label(f"{field}: value", exact=True)
    if value_input.evaluate("each => each.localName") == "select":
        keyboard.choose(f"{field}: value", value)
    elif value_input.get_attribute("type") == "date":
        keyboard.reach_it(value_input)
        # The browser's date field expects month, day and year in this order.
        year, month, day = value.split("-")
        keyboard.page.keyboard.type(month + day + year)
        expect(value_input).to_have_value(value)
    else:
        # The field for a tag offers suggestions, so its ARIA role isn't ``textbox``.
        keyboard.reach_it(value_input)
        keyboard.overwrite(value)
    keyboard.page.keyboard.press("Tab")
    # Wait until the page has loaded the matching members, because loading may move the focused
    # element.
    expect(keyboard.page.locator(".htmx-request")).to_have_count(0)


def _tag_members(keyboard: Keyboard, member_count: int) -> None:
    keyboard.press("button", f"Bulk action on all {member_count:,}")
    keyboard.reach("radio", "Add a tag", exact=False)
    keyboard.write("Tag", "2026", role="combobox")
    keyboard.press("button", f"Apply to {member_count} members")
    keyboard.watch_until(keyboard.page.get_by_role("button", name="Undo bulk action"))


def _export(keyboard: Keyboard, stack: Stack, list_id: int, segment_emails: set[str]) -> None:
    keyboard.page.goto(f"{stack.api_url}/console/lists/{list_id}/export")
    keyboard.choose("Members", "Presse in Berlin")
    keyboard.press("button", "Create export")
    keyboard.watch_until(keyboard.page.get_by_role("link", name="Download file"))
    keyboard.reach("link", "Download file")
    with keyboard.page.expect_download() as download:
        keyboard.page.keyboard.press("Enter")
    text = gzip.decompress(download.value.path().read_bytes()).decode("utf-8-sig")
    assert {row["email"] for row in csv.DictReader(io.StringIO(text))} == segment_emails


def _undo(
    keyboard: Keyboard, import_url: str, action_url: str, removed_count: int, kept_count: int
) -> None:
    keyboard.page.goto(import_url)
    keyboard.press("link", "Undo this import")
    keyboard.shows(f"Undo the import of {removed_count} members?")
    expect(
        keyboard.page.get_by_role("heading", name=f"{kept_count} members stay as they are")
    ).to_be_visible()
    keyboard.press("button", "Undo import")
    keyboard.watch_until(keyboard.page.get_by_role("heading", name="The import is partly undone"))
    keyboard.page.goto(action_url)
    keyboard.press("button", "Undo bulk action")
    keyboard.watch_until(keyboard.page.get_by_text("Undone", exact=False))
    keyboard.page.goto(import_url)
    keyboard.press("link", "Undo this import")
    keyboard.press("button", "Undo import")
    keyboard.watch_until(keyboard.page.get_by_role("heading", name="The import is undone"))
