"""A German sheet from its import to its undo, by keyboard alone."""

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
from tests.support.imports.bulk import everybody
from tests.support.lists.subscribers import new_list

pytestmark = pytest.mark.tier("browser")

PEOPLE = 302
HEADER = (
    *("E-Mail-Adresse", "Vorname", "Nachname", "Anmeldedatum", "Tags", "Stadt", "Umsatz"),
    *("Newsletter", "Geburtstag", "Notiz"),
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
def people(owner: Owner) -> list[Person]:
    return [
        Person(
            f"p{number}.{owner.user_id}@example.com",
            date(2025, 6, 1) + timedelta(days=number),
            is_press=number % 3 > 0,
            city="Berlin" if number % 2 else "Köln",
        )
        for number in range(PEOPLE)
    ]


@pytest.fixture
def sheet(tmp_path: Path, people: list[Person]) -> Path:
    """Latin-1 with semicolons and lines as Windows ends them; two of its rows are wrong."""
    rows = [HEADER, *(each.cells(number) for number, each in enumerate(people))]
    rows += [["keine Adresse", *[""] * 9], [people[0].email, *[""] * 9]]
    path = tmp_path / "mitglieder.csv"
    path.write_bytes("".join(f"{';'.join(row)}\r\n" for row in rows).encode("latin-1"))
    return path


def test_an_owner_imports_segments_tags_exports_and_undoes(
    stack: Stack,
    keys: Keyboard,
    client: httpx2.Client,
    *,
    owner: Owner,
    sheet: Path,
    people: list[Person],
) -> None:
    meant = {each.email for each in people if each.is_meant}
    list_id = new_list(client)["id"]
    log_in_browser(keys.page, stack, owner.user_id)
    keys.page.goto(f"{stack.api_url}/console")
    _import(keys, sheet)
    members = everybody(client, list_id)
    assert {email: each["joined_at"][:10] for email, each in members.items()} == {
        each.email: each.joined.isoformat() for each in people
    }
    assert members[people[3].email]["fields"] == {
        "stadt": "Berlin",
        "umsatz": 3.08,
        "newsletter": True,
        "notiz": "Grüße",
        "geburtstag": "1960-04-30",
    }
    imported = keys.page.url
    keys.press("link", "See these members")
    _make_the_segment(keys, len(meant))
    _tag(keys, len(meant))
    tagged = {email for email, each in everybody(client, list_id).items() if "2026" in each["tags"]}
    assert tagged == meant
    action = keys.page.url
    _export(keys, stack, list_id, meant)
    _undo(keys, imported, action, PEOPLE - len(meant), len(meant))
    assert everybody(client, list_id) == {}


def _import(keys: Keyboard, sheet: Path) -> None:
    keys.press("link", "Imports")
    keys.press("link", "Import a file")
    keys.tick("Create a field for each unknown column")
    empty = sheet.with_name("empty.csv")
    empty.touch()
    keys.choose_file("The file", empty)
    keys.reach("button", "Preview")
    keys.page.keyboard.press("Enter")
    keys.begins_at_what_is_wrong("The file")
    keys.choose_file("The file", sheet)
    keys.press("button", "Preview")
    keys.watch_until(keys.page.get_by_role("heading", name="Columns"))
    expect(keys.page.get_by_text("Numbers with a decimal comma")).to_be_visible()
    expect(keys.page.get_by_text("line 304: keine Adresse")).to_be_visible()
    keys.walk()
    keys.press("button", f"Import it: {PEOPLE} new members")
    keys.watch_until(keys.page.get_by_role("heading", name="Results by row"))


def _make_the_segment(keys: Keyboard, meant: int) -> None:
    """Members with the tag and the city who joined this year, and have not left."""
    _add(keys, "Tag", "is", "presse")
    _add(keys, "Stadt", "is", "Berlin")
    _add(keys, "Joined", "is on or after", "2026-01-01")
    _add(keys, "Status", "is not", "unsubscribed")
    keys.press("button", "Apply filters")
    keys.press("link", "Save as segment")
    keys.shows("Create a segment")
    keys.write("Name", "Presse in Berlin")
    keys.press("button", "Create the segment")
    expect(keys.page.get_by_text(f"{meant} members", exact=True)).to_be_visible()


def _add(keys: Keyboard, field: str, operator: str, value: str) -> None:
    keys.choose("Field", field)
    keys.press("button", "Add a condition")
    keys.choose(f"{field}: operator", operator)
    shown = keys.page.get_by_label(f"{field}: value", exact=True)
    if shown.evaluate("each => each.localName") == "select":
        keys.choose(f"{field}: value", value)
    elif shown.get_attribute("type") == "date":
        keys.reach_it(shown)
        # As the parts of the browser's own field follow one another.
        year, month, day = value.split("-")
        keys.page.keyboard.type(month + day + year)
        expect(shown).to_have_value(value)
    else:
        # Of a tag there are suggestions, so that it is no plain text box.
        keys.reach_it(shown)
        keys.overwrite(value)
    keys.page.keyboard.press("Tab")
    # The members below are looked up anew, and the page may get shorter under the focus.
    expect(keys.page.locator(".htmx-request")).to_have_count(0)


def _tag(keys: Keyboard, meant: int) -> None:
    keys.press("link", "Change all of them")
    keys.reach("radio", "Give them a tag", exact=False)
    keys.write("Tag", "2026")
    keys.press("button", f"Apply to {meant} members")
    keys.watch_until(keys.page.get_by_role("button", name="Undo it"))


def _export(keys: Keyboard, stack: Stack, list_id: int, meant: set[str]) -> None:
    keys.page.goto(f"{stack.api_url}/console/lists/{list_id}/export")
    keys.choose("Which members", "Presse in Berlin")
    keys.press("button", "Create the file")
    keys.watch_until(keys.page.get_by_role("link", name="Download it"))
    keys.reach("link", "Download it")
    with keys.page.expect_download() as loaded:
        keys.page.keyboard.press("Enter")
    text = gzip.decompress(loaded.value.path().read_bytes()).decode("utf-8-sig")
    assert {row["email"] for row in csv.DictReader(io.StringIO(text))} == meant


def _undo(keys: Keyboard, imported: str, action: str, free: int, held: int) -> None:
    keys.page.goto(imported)
    keys.press("link", "Undo this import")
    keys.shows(f"Undo the import of {free} members?")
    expect(keys.page.get_by_role("heading", name=f"{held} members stay")).to_be_visible()
    keys.press("button", "Undo it")
    keys.watch_until(keys.page.get_by_role("heading", name="The import is partly undone"))
    keys.page.goto(action)
    keys.press("button", "Undo it")
    keys.watch_until(keys.page.get_by_text("Undone", exact=False))
    keys.page.goto(imported)
    keys.press("link", "Undo this import")
    keys.press("button", "Undo it")
    keys.watch_until(keys.page.get_by_role("heading", name="The import is undone"))
