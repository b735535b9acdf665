from datetime import UTC, datetime

import pytest

from core.errors import DomainError
from services.subscriptions.imports.rows import MemberRow
from tests.support.imports.forms import open_reader, read_outcomes, read_rows


def error_message(file: str, code: str, mapping: dict[str, str] | None = None) -> str:
    with pytest.raises(DomainError) as error:
        open_reader(file, mapping=mapping)
    assert error.value.code == code
    return error.value.message


@pytest.mark.parametrize(
    "header",
    [
        "E-mail",
        " EMAIL ADDRESS ",
        "email_address",
        "Primary E-mail",
        "Correo Electrónico",
        "CORREO ELECTRONICO",
        "E-Mail-Adresse",
        "sähköposti",
        "Адрес электронной почты",
        "電子郵件",
        "이메일",
        "メールアドレス",
    ],
)
def test_email_column_is_recognised_by_its_header_in_many_languages(header: str) -> None:
    assert read_outcomes(f"id,{header}\n1,a@example.com\n") == [(2, "a@example.com")]


@pytest.mark.parametrize(
    ("header", "role"),
    [
        *((each, "joined_at") for each in ("Angemeldet am", "Mitglied seit", "Inscrit le")),
        *((each, "joined_at") for each in ("Ingeschreven op", "Fecha de suscripción", "登録日")),
        *((each, "joined_at") for each in ("Erstellt am", "Date de création", "Дата создания")),
        *((each, "joined_at") for each in ("Joined", "Signed up", "Since", "Date subscribed")),
        *((each, "joined_at") for each in ("Add Time", "Registered", "Registration date")),
        *((each, "joined_at") for each in ("Beigetreten", "Eintrittsdatum", "Inscription", "Alta")),
        *((each, "joined_at") for each in ("Iscrizione", "Lid sinds", "Gick med", "Вступил")),
        *((each, "tags") for each in ("Gruppen", "Groups", "Mots-clés", "Grupos", "Теги")),
        *((each, "paid_expiry") for each in ("Gültig bis", "Válido hasta")),
    ],
)
def test_columns_of_members_are_recognised_by_headers_in_several_languages(
    header: str, role: str
) -> None:
    reader = open_reader(f"email,{header}\na@example.com,01.02.24\n")
    assert reader.description.columns[role] == [header]


def test_short_header_of_a_join_date_counts_only_above_dates() -> None:
    file = "email,Registered,Signup date\na@example.com,yes,01.02.24\nb@example.com,no,\n"
    assert open_reader(file).description.columns["joined_at"] == ["Signup date"]
    file = "email,Joined\na@example.com,\nb@example.com,2024-02-01\n"
    assert open_reader(file).description.columns["joined_at"] == ["Joined"]


def test_email_column_is_recognised_by_its_cells_when_no_header_matches() -> None:
    file = "id;Contact;Note\n1;a@example.com;x\n2;nobody;y\n3;c@example.com;b@example.org\n"

    assert read_outcomes(file) == [(2, "a@example.com"), (3, "nobody"), (4, "c@example.com")]


def test_email_column_may_lie_beyond_the_columns_named_in_the_header() -> None:
    reader = open_reader(
        "name\nJane,a@example.com\nBob\nJoe,b@example.com\n", mapping={"name": "name"}
    )

    assert [(row.line, row[1]) for row in reader] == [
        (2, "a@example.com"),
        (3, "row.no_email"),
        (4, "b@example.com"),
    ]
    assert reader.header == ["name", "column 2"]
    assert reader.description.columns == {"email": ["column 2"], "name": ["name"]}


def test_file_without_email_column_is_rejected_with_its_column_names() -> None:
    message = error_message("First,Phone\nAnn,123\n", "import.no_email_column")

    assert "'First', 'Phone'" in message


def test_first_of_several_email_columns_is_used() -> None:
    assert read_outcomes("Email,Work Email\na@example.com,b@example.com\n") == [
        (2, "a@example.com")
    ]


def test_full_name_column_takes_precedence_over_joined_first_and_last_name() -> None:
    file = "email,Last Name,First Name\na@example.com, Lee ,Ann\nb@example.com,,Bob\n"
    file += "c@example.com,Zed,\n"
    assert [row.name for row in read_rows(file)] == ["Ann Lee", "Bob", "Zed"]

    file = "email,name,first_name,last_name\na@example.com,Dr Lee,Ann,Lee\nb@example.com,,Bob,Roe\n"
    assert [row.name for row in read_rows(file)] == ["Dr Lee", "Bob Roe"]

    file = "Prénom;Nom;Courriel\nAnne;Lenoir;a@example.com\n"
    assert [row.name for row in read_rows(file)] == ["Anne Lenoir"]


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        ("  Ann  ", "Ann"),
        ("Ann\x07\x00 \x1b[1mLee", "Ann [1mLee"),
        ("Ann\t Lee\xa0Roe", "Ann Lee Roe"),
        ("\u202eeeL nnA", "eeL nnA"),
        ("\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e"),
        ("x" * 300, "x" * 200),
        ("x" * 200_000, "x" * 200),
        ("'=cmd()", "=cmd()"),
        ("'@home", "@home"),
        ("'\tAnn", "Ann"),
        ("'Ann'", "'Ann'"),
        ("O'Neil", "O'Neil"),
    ],
)
def test_imported_name_is_cleaned_of_control_characters_and_limited_to_200_characters(
    cell: str, name: str
) -> None:
    (row,) = read_rows(f'email,name\na@example.com,"{cell}"\n')

    assert row.name == name


@pytest.mark.parametrize(
    ("cell", "email"),
    [
        ("  a@example.com\t", "a@example.com"),
        ("'+a@example.com", "+a@example.com"),
        ("'-a@example.com", "-a@example.com"),
        ("'a@example.com", "'a@example.com"),
        ("\ufeffa@example.com\u200b", "a@example.com"),
        ("\xa0a@example.com", "a@example.com"),
        ("Ann Lee <a@example.com>", "a@example.com"),
        ("mailto:a@example.com", "a@example.com"),
        ("MAILTO: a@example.com?subject=Hello", "a@example.com"),
        ("Ann Lee <mailto:a@example.com>", "a@example.com"),
        ("jörg@bücher.example.com", "jörg@bücher.example.com"),
        ("nobody", "nobody"),
    ],
)
def test_imported_address_is_cleaned_of_copying_artefacts(cell: str, email: str) -> None:
    (row,) = read_rows(f'name,email\n,"{cell}"\n')

    assert row.email == email


def test_name_next_to_a_bracketed_address_is_used_without_a_name_column() -> None:
    member_rows = read_rows('email\n"""Lee, Ann"" <a@example.com>"\nBob <b@example.com>\n')

    assert [row.name for row in member_rows] == ["Lee, Ann", "Bob"]


def test_import_mapping_overrides_header_recognition_for_member_attributes() -> None:
    file = "email,alt,name,plan,x\nold@example.com,new@example.com,Nick,gold,Ann\n"

    (row,) = read_rows(
        file, mapping={"alt": "email", "4": "first_name", "Plan": "ignore", "name": "last_name"}
    )

    assert (row.email, row.name, row.tier) == ("new@example.com", "Ann Nick", None)


def test_import_mapping_assigns_status_and_expiry_columns() -> None:
    file = "email,s,until\na@example.com,Unsubscribed,2030-01-01\n"

    (row,) = read_rows(file, mapping={"s": "status", "until": "paid_expiry"})

    assert row.is_opt_out
    assert row.paid_expiry == datetime(2030, 1, 1, tzinfo=UTC)


def test_invalid_import_mapping_is_rejected_with_the_unknown_column_or_role() -> None:
    file = "email,name\na@example.com,A\n"

    message = error_message(file, "import.mapping_column", {"mail": "email"})
    assert "'mail'" in message
    assert "'email', 'name'" in message
    error_message(file, "import.mapping_column", {"2": "name"})
    assert "'age'" in error_message(file, "import.mapping_role", {"name": "age"})
    error_message(file, "import.mapping_role", {"email": "name", "name": "name"})
    error_message('{"email": "a@example.com"}', "import.mapping_column", {"mail": "email"})


@pytest.mark.parametrize(
    ("cell", "expiry"),
    [
        ("", None),
        ("never", None),
        ("2030-01-02", datetime(2030, 1, 2, tzinfo=UTC)),
        ("2030-01-02T03:04:05.678Z", datetime(2030, 1, 2, 3, 4, 5, 678000, UTC)),
        ("2030-01-02T03:04:05+02:00", datetime(2030, 1, 2, 1, 4, 5, tzinfo=UTC)),
        ("2030-01-02 03:04:05 UTC", datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2030/01/02", datetime(2030, 1, 2, tzinfo=UTC)),
    ],
)
def test_imported_paid_expiry_is_converted_to_utc(cell: str, expiry: datetime | None) -> None:
    (row,) = read_rows(f"email,tier,paid_expiry\na@example.com,gold,{cell}\n")

    assert (row.tier, row.paid_expiry) == ("gold", expiry)


@pytest.mark.parametrize("cell", ["soon", "0001-01-01T00:00:00+14:00", "9" * 100_000])
def test_unreadable_paid_expiry_rejects_its_row(cell: str) -> None:
    assert read_outcomes(f"email,tier,paid_expiry\na@example.com,gold,{cell}\n") == [
        (2, "row.expiry_unreadable")
    ]


def test_import_description_states_recognised_format_encoding_and_columns() -> None:
    file = "Title\nE-Mail;Vorname;Nachname;Plan;Status\na@example.com;A;B;gold;active\n"
    description = open_reader(file).description

    assert (description.format, description.container, description.encoding) == (
        "csv",
        "plain",
        "utf-8",
    )
    assert (description.delimiter, description.header_line, description.product) == (";", 2, None)
    assert description.columns == {
        "email": ["E-Mail"],
        "first_name": ["Vorname"],
        "last_name": ["Nachname"],
        "tier": ["Plan"],
        "status": ["Status"],
    }


def test_json_lines_key_that_first_appears_late_in_the_file_is_applied() -> None:
    early_lines = "".join(f'{{"email": "m{n}@example.com"}}\n' for n in range(3000))
    late_line = '{"email": "z@example.com", "unsubscribed_at": "2024-01-01", "name": "Z"}\n'

    last_row = [*open_reader(early_lines + late_line)][-1]

    assert isinstance(last_row, MemberRow)
    assert (last_row.line, last_row.name, last_row.is_opt_out) == (3001, "Z", True)


def test_json_lines_values_of_every_type_are_converted_to_text() -> None:
    file = '{"email": "a@example.com", "name": null, "subscribed": false, "n": 1.5, "t": ["x"]}\n'

    (row,) = read_rows(file)

    assert (row.name, row.is_opt_out) == ("", True)
    assert row.cells == ["a@example.com", "", "false", "1.5", '["x"]']


@pytest.mark.parametrize(
    "file", ['[{"email": "a@example.com"}]', '[\n {"email": 1}]', '{\n  "members": []}', "[]"]
)
def test_json_array_is_rejected_with_advice_to_use_json_lines(file: str) -> None:
    assert "one JSON object per line" in error_message(file, "import.json_array")
