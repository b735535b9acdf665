import csv
import io
from typing import Any

import pytest

from models import FieldType, MemberField
from services.subscriptions.imports.chunks.judging import MAX_BATCH_CHARACTERS, judge_rows
from services.subscriptions.imports.chunks.seen_addresses import SeenAddresses
from services.subscriptions.imports.columns import field_columns
from services.subscriptions.imports.columns.column_layout import ColumnLayout
from services.subscriptions.imports.columns.field_values import guess_type
from services.subscriptions.imports.formats.formats import FindFields
from services.subscriptions.imports.rows import MemberRow, RowExtras
from tests.support.imports.forms import open_reader, read_rows

MEMBER_FIELDS = (
    MemberField(id=1, key="company", label="Company", type="text", choices=[]),
    MemberField(id=2, key="age", label="Years", type="number", choices=[]),
    MemberField(id=3, key="born", label="Birthday", type="date", choices=[]),
    MemberField(id=4, key="likes", label="Likes mail", type="boolean", choices=[]),
    MemberField(id=5, key="size", label="Size", type="choice", choices=["S", "M"]),
)


def field_finder(member_fields: tuple[MemberField, ...]) -> FindFields:
    def find(layout: ColumnLayout, _: object) -> None:
        field_columns.match_fields(layout, range(len(layout.header)), member_fields)

    return find


def read_extras(file: str, **options: object) -> RowExtras:
    [row] = read_rows(file, find_fields=field_finder(MEMBER_FIELDS), **options)
    assert row.extras is not None
    return row.extras


@pytest.mark.parametrize("header", ["company", "Company", "COMPANY ", "fields.company"])
def test_import_matches_column_to_member_field_by_key_or_label(header: str) -> None:
    assert read_extras(f"email,{header}\na@example.com,Acme\n").fields == {"1": "Acme"}


def test_import_matches_column_to_member_field_by_its_meaning_in_another_language() -> None:
    member_fields = (
        MemberField(id=1, key="city", label="City", type="text", choices=[]),
        MemberField(id=2, key="x", label="Téléphone", type="text", choices=[]),
        MemberField(id=3, key="plz", label="PLZ", type="text", choices=[]),
    )
    file = "email,Wohnort,Ort,Handy,zip,Verein\na@example.com,Köln,Bonn,0221,50667,TuS\n"
    [row] = read_rows(file, find_fields=field_finder(member_fields))
    assert row.extras is not None
    assert row.extras.fields == {"1": "Köln", "2": "0221", "3": "50667"}
    # A field with the same name as the header takes precedence over a translated name.
    named = MemberField(id=4, key="ort", label="Ort", type="text", choices=[])
    file = "email,Ort,City\na@example.com,Köln,Bonn\n"
    [row] = read_rows(file, find_fields=field_finder((*member_fields, named)))
    assert row.extras is not None
    assert row.extras.fields == {"4": "Köln", "1": "Bonn"}


def test_consent_column_also_fills_the_member_field_of_its_name() -> None:
    member_fields = (
        MemberField(id=1, key="verified", label="Verified", type="boolean", choices=[]),
    )
    reader = open_reader(
        "email,verified\na@example.com,yes\nb@example.com,no\n",
        find_fields=field_finder(member_fields),
    )
    assert reader.description.columns["fields.verified"] == ["verified"]
    ada, ben = reader
    assert isinstance(ada, MemberRow)
    assert isinstance(ben, MemberRow)
    assert ada.extras is not None
    assert ada.extras.fields == {"1": True}
    assert ben.suppression == "not_subscribed"
    # In a file that Pressroom exported, the column of a field never states consent.
    header = "email,paid_expiry,email_enabled,fields.verified"
    [row] = read_rows(
        f"{header}\na@example.com,,true,no\n", find_fields=field_finder(member_fields)
    )
    assert row.extras is not None
    assert row.extras.fields == {"1": False}


def test_member_field_takes_its_value_only_from_the_first_exactly_named_column() -> None:
    file = "email,COMPANY,company,company\na@example.com,one,two,three\n"
    assert read_extras(file).fields == {"1": "two"}
    reader = open_reader(file, find_fields=field_finder(MEMBER_FIELDS))
    assert reader.description.columns["fields.company"] == ["company"]


@pytest.mark.parametrize(
    ("column", "cell", "name", "value"),
    [
        ("age", "42", "2", 42),
        ("Years", "4.5", "2", 4.5),
        ("age", "'-3", "2", -3),
        ("born", "1999-12-31", "3", "1999-12-31"),
        ("born", "Dec 31, 1999", "3", "1999-12-31"),
        ("born", "1999-12-31T10:00:00Z", "3", "1999-12-31"),
        ("likes", "Yes", "4", True),
        ("likes", "0", "4", False),
        ("size", "m", "5", "M"),
        ("company", "'=Acme", "1", "=Acme"),
    ],
)
def test_import_converts_cell_to_the_type_of_its_member_field(
    column: str, cell: str, name: str, value: object
) -> None:
    assert read_extras(f'email,{column}\na@example.com,"{cell}"\n').fields == {name: value}


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("age", "old"),
        ("age", "nan"),
        ("age", "1e999"),
        ("age", "9" * 400),
        ("born", "31.12."),
        ("likes", "perhaps"),
        ("size", "XL"),
        ("company", "x" * 1001),
        ("created_at", "soon"),
        ("optin_ip", "everywhere"),
        ("tags", "x" * 41),
    ],
)
def test_unreadable_field_value_is_reported_and_its_row_is_still_imported(
    column: str, cell: str
) -> None:
    extras = read_extras(f"email,{column}\na@example.com,{cell}\n")

    assert (extras.fields, list(extras.tags), extras.claim) == ({}, [], {})
    [problem] = extras.left_out
    assert str(problem).startswith(f"{column}: ")
    assert len(str(problem)) < 200


@pytest.mark.parametrize(
    ("cell", "tags"),
    [
        ("vip", ["vip"]),
        ("vip, Old Friends ,vip,VIP", ["vip", "Old Friends"]),
        ('"vip","a friend"', ["vip", "a friend"]),
        ('["a","b"]', ["a", "b"]),
        (" , ,", []),
        ("a;b", ["a;b"]),
        ("[not json", ["[not json"]),
    ],
)
def test_import_splits_tags_in_each_notation_of_newsletter_products(
    cell: str, tags: list[str]
) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([["email", "labels", "company"], ["a@example.com", cell, "x"]])

    assert list(read_extras(text.getvalue()).tags) == tags


def test_import_prefers_the_members_joining_date_over_the_record_creation_date() -> None:
    header = "email,created_at,joined_at\n"
    assert read_extras(f"{header}a@example.com,2020-01-01,2019-01-01\n").joined_at == (
        "2019-01-01T00:00:00.000000Z"
    )
    assert (
        read_extras(f"{header}a@example.com,2020-01-01,\n").joined_at
        == "2020-01-01T00:00:00.000000Z"
    )


def test_import_reads_consent_claims_from_the_file() -> None:
    extras = read_extras(
        "email,OPTIN_TIME,OPTIN_IP,CONFIRM_TIME,CONFIRM_IP\n"
        "a@example.com,2024-01-02 10:00:00,192.0.2.1,2024-01-02 10:05:00,2001:db8::/48\n"
    )
    assert extras.claim == {
        "at": "2024-01-02T10:00:00.000000Z",
        "ip": "192.0.2.1",
        "confirmed_at": "2024-01-02T10:05:00.000000Z",
        "confirmed_ip": "2001:db8::/48",
    }
    assert extras.joined_at == "2024-01-02T10:05:00.000000Z"


@pytest.mark.parametrize(
    ("header", "roles"),
    [
        (
            "utm_source,utm_medium,utm_campaign,utm_term,utm_content,referrer",
            ("utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content", "referrer"),
        ),
        ("UTM Source,UTM Medium,referring_site", ("utm_source", "utm_medium", "referrer")),
        ("referrer_source,attribution_url", ("referrer", "landing")),
        # The column name of a nested value in a JSON file contains the names of all levels.
        (
            "referrer_utm_parameters.source,referrer_utm_parameters.campaign,referrer",
            ("utm_source", "utm_campaign", "referrer"),
        ),
        ("attribution.referrer_source,attribution.url", ("referrer", "landing")),
    ],
    ids=["Kit", "beehiiv", "Ghost", "Kit as JSON", "Ghost as JSON"],
)
def test_import_recognises_the_origin_columns_of_products(
    header: str, roles: tuple[str, ...]
) -> None:
    cells = ["/Tea" if role == "landing" else f"Value-{role}".replace("_", "-") for role in roles]
    extras = read_extras(f"email,{header}\na@example.com,{','.join(cells)}\n")
    expected = {f"origin.{role}": cell.lower() for role, cell in zip(roles, cells, strict=True)}
    if "landing" in roles:
        expected["origin.landing"] = "/Tea"
    assert extras.claim == expected
    assert (extras.fields, extras.joined_at) == ({}, None)


def test_referring_page_in_a_file_of_buttondown_is_consent_and_origin() -> None:
    extras = read_extras(
        "email,subscriber_type,referrer_url,utm_campaign\n"
        "a@example.com,regular,https://www.example.com/@ada/tea?x=1,Launch\n"
    )
    assert extras.claim == {
        "url": "https://www.example.com/@ada/tea?x=1",
        "origin.referrer": "www.example.com",
        "origin.utm_campaign": "launch",
    }


def test_import_drops_invalid_and_personal_values_of_an_origin_without_a_report() -> None:
    extras = read_extras("email,utm_source,utm_medium\na@example.com,b@example.com,Mail\n")
    assert (extras.claim, extras.left_out) == ({"origin.utm_medium": "mail"}, [])


def test_import_mapping_assigns_any_column_to_any_member_attribute() -> None:
    mapping = {"a": "fields.company", "b": "tags", "c": "joined_at", "d": "consent.at"}
    mapping |= {"company": "ignore", "e": "tags"}
    extras = read_extras(
        "email,a,b,c,d,company,e\na@example.com,Acme,x,2020-01-01,2021-01-01,no,y\n",
        mapping=mapping,
    )
    assert extras.fields == {"1": "Acme"}
    assert list(extras.tags) == ["x", "y"]
    assert extras.joined_at == "2020-01-01T00:00:00.000000Z"
    assert extras.claim == {"at": "2021-01-01T00:00:00.000000Z"}


def find_new_fields(file: str) -> dict[str, tuple[str, str]]:
    """Map column names of a file to the keys and types of fields that an import would create."""
    fields_by_column: dict[str, tuple[str, str]] = {}

    def find(layout: ColumnLayout, sample: Any) -> None:
        columns = range(len(layout.header))
        keys = [field.key for field in MEMBER_FIELDS]
        field_columns.match_fields(layout, columns, MEMBER_FIELDS)
        for index, field in field_columns.propose_fields(layout, columns, keys, sample).items():
            fields_by_column[layout.header[index]] = field.key, field.type

    open_reader(file, find_fields=find)
    return fields_by_column


def test_import_infers_type_of_a_new_field_from_all_cells_of_its_column() -> None:
    file = "email,Shoe size,Zip,Paid on,Active?,Note,Émile's №,company,,\n"
    file += "a@example.com,42,01234,2020-01-01,yes,3,x,Acme,,\n"
    file += "b@example.com,43.5,81234,2020-02-01,no,three,y,,,\n"

    assert find_new_fields(file) == {
        "Shoe size": ("shoe_size", "number"),
        "Zip": ("zip", "text"),
        "Paid on": ("paid_on", "date"),
        "Active?": ("active", "boolean"),
        "Note": ("note", "text"),
        "Émile's №": ("emile_s_no", "text"),
    }


def test_import_gives_new_fields_unique_well_formed_keys() -> None:
    file = f"email,Age!,age?,2nd,季節,{'x' * 60},{'x' * 60}y\na@example.com,a,b,c,d,e,f\n"

    assert [key for key, _ in find_new_fields(file).values()] == [
        *("age_2", "field_2nd", "field", "x" * 40, "x" * 38 + "_2")
    ]


@pytest.mark.parametrize(
    ("cells", "type_"),
    [
        (["1", "", "2.5"], FieldType.NUMBER),
        (["1", "x"], FieldType.TEXT),
        (["007"], FieldType.TEXT),
        (["+491"], FieldType.TEXT),
        (["1.50"], FieldType.TEXT),
        (["4915112345678"], FieldType.TEXT),
        (["2020-02-30"], FieldType.TEXT),
        (["2020-01-01 10:00"], FieldType.TEXT),
        (["TRUE", "false"], FieldType.BOOLEAN),
        (["", " "], FieldType.TEXT),
    ],
)
def test_field_type_is_guessed_only_if_no_cell_loses_information(
    cells: list[str], type_: FieldType
) -> None:
    assert guess_type(cells) is type_


@pytest.mark.parametrize("columns", [2_000, 20_000])
def test_import_reads_file_with_20000_columns(columns: int) -> None:
    header = ",".join(f"c{number}" for number in range(columns))
    reader = open_reader(
        f"email,{header}\na@example.com{',x' * columns}\n", find_fields=field_finder(MEMBER_FIELDS)
    )

    [row] = reader
    assert isinstance(row, MemberRow)
    assert row.extras is None


def test_reports_on_unreadable_values_count_toward_the_batch_size_limit() -> None:
    header = ",".join(f"age{number}" for number in range(50))
    member_fields = tuple(
        MemberField(id=n, key=f"age{n}", label=f"age{n}", type="number", choices=[])
        for n in range(50)
    )
    line = f"m%d@example.com{',x' * 50}\n"
    file = f"email,{header}\n" + "".join(line % number for number in range(1_000))
    seen_addresses = SeenAddresses()

    batches = [
        *judge_rows(open_reader(file, find_fields=field_finder(member_fields)), seen_addresses)
    ]

    seen_addresses.close()
    assert len(batches) > 1
    assert max(characters for _, characters in batches) < 2 * MAX_BATCH_CHARACTERS
