"""An untidy CSV file with 309 rows, as a German office might export it from a spreadsheet."""

import csv
import io
from datetime import date, timedelta
from typing import NamedTuple

from services.accounts import email_addresses

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
