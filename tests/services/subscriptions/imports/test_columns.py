from datetime import UTC, datetime

import pytest

from core.errors import DomainError
from services.subscriptions.imports.rows import MemberRow
from tests.support.imports.forms import opened, outcome, rows


def error_message(file: str, code: str, mapping: dict[str, str] | None = None) -> str:
    with pytest.raises(DomainError) as error:
        opened(file, mapping=mapping)
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
def test_column_of_addresses_is_known_by_its_name(header: str) -> None:
    assert outcome(f"id,{header}\n1,a@example.com\n") == [(2, "a@example.com")]


def test_column_of_addresses_is_known_by_its_cells_where_no_name_tells() -> None:
    file = "id;Contact;Note\n1;a@example.com;x\n2;nobody;y\n3;c@example.com;b@example.org\n"

    assert outcome(file) == [(2, "a@example.com"), (3, "nobody"), (4, "c@example.com")]


def test_column_of_addresses_may_be_beyond_a_header_that_names_fewer_columns() -> None:
    reader = opened("name\nJane,a@example.com\nBob\nJoe,b@example.com\n", mapping={"name": "name"})

    assert [(one.line, one[1]) for one in reader] == [
        (2, "a@example.com"),
        (3, "row.no_email"),
        (4, "b@example.com"),
    ]
    assert reader.header == ["name", "column 2"]
    assert reader.description.columns == {"email": ["column 2"], "name": ["name"]}


def test_file_without_addresses_is_refused_with_its_columns() -> None:
    message = error_message("First,Phone\nAnn,123\n", "import.no_email_column")

    assert "'First', 'Phone'" in message


def test_first_of_several_columns_of_addresses_is_taken() -> None:
    assert outcome("Email,Work Email\na@example.com,b@example.com\n") == [(2, "a@example.com")]


def test_names_are_joined_and_a_full_name_comes_first() -> None:
    file = "email,Last Name,First Name\na@example.com, Lee ,Ann\nb@example.com,,Bob\n"
    file += "c@example.com,Zed,\n"
    assert [one.name for one in rows(file)] == ["Ann Lee", "Bob", "Zed"]

    file = "email,name,first_name,last_name\na@example.com,Dr Lee,Ann,Lee\nb@example.com,,Bob,Roe\n"
    assert [one.name for one in rows(file)] == ["Dr Lee", "Bob Roe"]

    file = "Prénom;Nom;Courriel\nAnne;Lenoir;a@example.com\n"
    assert [one.name for one in rows(file)] == ["Anne Lenoir"]


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
def test_name_is_tidied(cell: str, name: str) -> None:
    (row,) = rows(f'email,name\na@example.com,"{cell}"\n')

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
        ("jörg@bücher.example.com", "jörg@bücher.example.com"),
        ("nobody", "nobody"),
    ],
)
def test_address_is_freed_of_what_copying_leaves(cell: str, email: str) -> None:
    (row,) = rows(f'name,email\n,"{cell}"\n')

    assert row.email == email


def test_name_before_an_address_in_brackets_is_taken_where_no_column_has_one() -> None:
    found = rows('email\n"""Lee, Ann"" <a@example.com>"\nBob <b@example.com>\n')

    assert [one.name for one in found] == ["Lee, Ann", "Bob"]


def test_mapping_wins_over_the_header() -> None:
    file = "email,alt,name,plan,x\nold@example.com,new@example.com,Nick,gold,Ann\n"

    (row,) = rows(
        file, mapping={"alt": "email", "4": "first_name", "Plan": "ignore", "name": "last_name"}
    )

    assert (row.email, row.name, row.tier) == ("new@example.com", "Ann Nick", None)


def test_mapped_status_and_expiry_are_read() -> None:
    file = "email,s,until\na@example.com,Unsubscribed,2030-01-01\n"

    (row,) = rows(file, mapping={"s": "status", "until": "paid_expiry"})

    assert row.is_opt_out
    assert row.paid_expiry == datetime(2030, 1, 1, tzinfo=UTC)


def test_mapping_that_does_not_fit_is_refused_by_name() -> None:
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
def test_paid_expiry_is_a_time_with_its_zone(cell: str, expiry: datetime | None) -> None:
    (row,) = rows(f"email,tier,paid_expiry\na@example.com,gold,{cell}\n")

    assert (row.tier, row.paid_expiry) == ("gold", expiry)


@pytest.mark.parametrize("cell", ["soon", "0001-01-01T00:00:00+14:00", "9" * 100_000])
def test_expiry_that_cannot_be_read_is_a_problem_rather_than_paid_for_ever(cell: str) -> None:
    assert outcome(f"email,tier,paid_expiry\na@example.com,gold,{cell}\n") == [
        (2, "row.expiry_unreadable")
    ]


def test_description_says_what_was_recognised() -> None:
    file = "Title\nE-Mail;Vorname;Nachname;Plan;Status\na@example.com;A;B;gold;active\n"
    found = opened(file).description

    assert (found.format, found.container, found.encoding) == ("csv", "plain", "utf-8")
    assert (found.delimiter, found.header_line, found.product) == (";", 2, None)
    assert found.columns == {
        "email": ["E-Mail"],
        "first_name": ["Vorname"],
        "last_name": ["Nachname"],
        "tier": ["Plan"],
        "status": ["Status"],
    }


def test_key_that_comes_late_in_json_lines_is_heeded() -> None:
    many = "".join(f'{{"email": "m{n}@example.com"}}\n' for n in range(3000))
    late = '{"email": "z@example.com", "unsubscribed_at": "2024-01-01", "name": "Z"}\n'

    last = [*opened(many + late)][-1]

    assert isinstance(last, MemberRow)
    assert (last.line, last.name, last.is_opt_out) == (3001, "Z", True)


def test_values_of_json_are_read_whatever_their_type() -> None:
    file = '{"email": "a@example.com", "name": null, "subscribed": false, "n": 1.5, "t": ["x"]}\n'

    (row,) = rows(file)

    assert (row.name, row.is_opt_out) == ("", True)
    assert row.cells == ["a@example.com", "", "false", "1.5", '["x"]']


@pytest.mark.parametrize(
    "file", ['[{"email": "a@example.com"}]', '[\n {"email": 1}]', '{\n  "members": []}', "[]"]
)
def test_json_that_is_one_document_is_refused_with_advice(file: str) -> None:
    assert "one object per line" in error_message(file, "import.json_array")
