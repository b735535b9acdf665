"""Dates and numbers of a file are read as the whole file shows, or the caller is asked."""

from typing import Any

import httpx2
import pytest

from tests.contract.bulk import addresses, everybody, imported, sheet, upload
from tests.contract.replies import data, problem

HEADER = ["Email", "created_at"]


def joined(client: httpx2.Client, list_id: int, emails: list[str]) -> list[str]:
    found = everybody(client, list_id)
    return [found[email]["joined_at"][:10] for email in emails]


def brought(
    client: httpx2.Client, list_id: int, dates: list[str], **params: str
) -> tuple[dict[str, Any], list[str]]:
    emails = addresses(len(dates))
    rows = zip(emails, dates, strict=True)
    return imported(client, list_id, sheet(HEADER, *rows), **params), emails


@pytest.mark.parametrize(
    ("last", "first_day", "written"),
    [("31/12/2024", "2025-04-03", "dmy"), ("12/31/2024", "2025-03-04", "mdy")],
)
def test_any_number_over_12_decides_for_the_whole_column(
    client: httpx2.Client, list_id: int, last: str, first_day: str, written: str
) -> None:
    result, emails = brought(client, list_id, ["03/04/2025", "05/06/2025", last])
    assert joined(client, list_id, emails)[::2] == [first_day, "2024-12-31"]
    assert result["columns"][1]["written"] == written
    assert result["left_out"] == 0


def test_a_number_at_the_end_of_a_long_file_decides_for_its_first_rows(
    client: httpx2.Client, list_id: int
) -> None:
    # Longer than what is looked at before the file is read.
    dates = ["03/04/2025"] * 900 + ["12/31/2024"]
    result, emails = brought(client, list_id, dates)
    assert result["added"] == len(dates)
    found = everybody(client, list_id)
    assert {found[email]["joined_at"][:10] for email in emails[:-1]} == {"2025-03-04"}
    assert found[emails[-1]]["joined_at"][:10] == "2024-12-31"


@pytest.mark.parametrize("dates", [["03/04/2025", "05/06/2025"], ["31/12/2024", "12/31/2024"]])
def test_a_file_that_does_not_show_it_adds_nobody_and_asks(
    client: httpx2.Client, list_id: int, dates: list[str]
) -> None:
    emails = addresses(2)
    file = sheet(HEADER, *zip(emails, dates, strict=True))
    asked = problem(upload(client, list_id, file), 422, "import.date_order_needed")
    assert "'created_at'" in asked["detail"]
    assert everybody(client, list_id) == {}
    problem(upload(client, list_id, file, date_order="ymd"), 400, "request.invalid")
    data(upload(client, list_id, file, date_order="mdy"))
    [record] = [each for each in data(client.get("/imports"))["items"] if each["date_order"]]
    assert record["date_order"] == "mdy"
    found = everybody(client, list_id)
    # What can't be read in that order is left out, and told of.
    assert record["left_out"] == (0 if dates[0] == "03/04/2025" else 1)
    if not record["left_out"]:
        assert joined(client, list_id, emails) == ["2025-03-04", "2025-05-06"]
    assert len(found) == 2


def test_the_order_that_is_asked_for_leaves_a_column_alone_that_shows_its_own(
    client: httpx2.Client, list_id: int
) -> None:
    _, emails = brought(client, list_id, ["03/04/2025", "31/12/2024"], date_order="mdy")
    assert joined(client, list_id, emails) == ["2025-04-03", "2024-12-31"]


def test_new_fields_take_amounts_dates_and_words_of_a_german_sheet(
    client: httpx2.Client, list_id: int
) -> None:
    [email] = addresses(1)
    header = ["Email", "Umsatz", "Geburtstag", "Newsletter", "Liste"]
    file = sheet(header, [email, "1.594,08", "03.04.1980", "ja", "1,2"])
    result = imported(client, list_id, file, create_fields="1")
    assert [each.get("creates") for each in result["columns"]] == [
        *(None, "number", "date", "boolean", "text")
    ]
    fields = everybody(client, list_id)[email]["fields"]
    assert fields == {
        "umsatz": 1594.08,
        "geburtstag": "1980-04-03",
        "newsletter": True,
        "liste": "1,2",
    }


def test_a_mapping_names_the_type_of_a_new_field(client: httpx2.Client, list_id: int) -> None:
    [email] = addresses(1)
    file = sheet(["Email", "Code", "Since"], [email, "12", "2020-01-02"])
    mapping = '{"Code": "fields.code:text", "Since": "fields.since"}'
    imported(client, list_id, file, create_fields="1", mapping=mapping)
    assert everybody(client, list_id)[email]["fields"] == {"code": "12", "since": "2020-01-02"}
    for type_, rule in [("number", "type is text"), ("choice", "type is text")]:
        wrong = upload(client, list_id, file, mapping=f'{{"Code": "fields.code:{type_}"}}')
        assert rule in problem(wrong, 422, "import.mapping_type")["detail"]
    wrong = upload(
        client, list_id, file, create_fields="1", mapping='{"Code": "fields.other:choice"}'
    )
    assert "one of text, number" in problem(wrong, 422, "import.mapping_type")["detail"]


def test_problems_are_grouped_by_column_and_rule_with_their_first_examples(
    client: httpx2.Client, list_id: int
) -> None:
    emails = addresses(5)
    rows = [[email, "soon"] for email in emails]
    result = imported(client, list_id, sheet(HEADER, *rows, ["ada@", ""]), dry_run="1")
    assert result["problems"][0] == {
        "column": "created_at",
        "rule": "must be a date",
        "rows": 5,
        "examples": [{"line": line, "cell": "soon"} for line in (2, 3, 4)],
    }
    [other] = result["problems"][1:]
    assert (other["column"], other["rows"]) == (None, 1)
    assert other["examples"] == [{"line": 7, "cell": "ada@"}]
