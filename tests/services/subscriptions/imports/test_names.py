"""Imports of names from one column, or from several columns such as first and last name."""

import pytest

from tests.support.imports.forms import open_reader, read_rows


def read_names(header: str, *records: str, **options: object) -> list[str]:
    """Return the names of the people that an import reads from a file.

    ``header``: the first line of the file, without the address column. ``records``: the lines below
    the header, without the address column.
    """
    lines = [f"n{number}@example.com;{record}" for number, record in enumerate(records)]
    return [
        row.name for row in read_rows("\n".join([f"E-Mail;{header}", *lines]) + "\n", **options)
    ]


@pytest.mark.parametrize(
    ("header", "record", "name"),
    [
        ("Vorname;Name", "Jörg;Müller", "Jörg Müller"),
        ("Name;Vorname", "Müller;Jörg", "Jörg Müller"),
        ("Name;Surname", "Ann;Lee", "Ann Lee"),
        ("Surname;Name", "Lee;Ann", "Ann Lee"),
        ("Name;First name", "Lee;Ann", "Ann Lee"),
        ("Имя;Фамилия", "Иван;Петров", "Иван Петров"),
        ("Фамилия;Имя;Отчество", "Петров;Иван;Ильич", "Иван Ильич Петров"),
        ("Voornaam;Naam", "Jan;Jansen", "Jan Jansen"),
        ("Voornaam;Tussenvoegsel;Achternaam", "Jan;van der;Berg", "Jan van der Berg"),
        ("Nom;Prénom", "Lenoir;Anne", "Anne Lenoir"),
        ("Nombre;Apellidos", "Ana;García Ruiz", "Ana García Ruiz"),
        ("Nombre;Primer apellido;Segundo apellido", "Ana;García;Ruiz", "Ana García Ruiz"),
        ("Jméno;Příjmení", "Jan;Dvořák", "Jan Dvořák"),
        ("Förnamn;Namn", "Åsa;Öberg", "Åsa Öberg"),
        ("First Name;Middle Name;Last Name", "Ann;M.;Lee", "Ann M. Lee"),
        ("First Name;Middle Name;Last Name", "Ann;;Lee", "Ann Lee"),
        ("First Name;Last Name", "Thomas;Thomas", "Thomas Thomas"),
        ("First Name;Last Name", "Ann Lee;Lee", "Ann Lee"),
        ("First Name;FNAME;Last Name", "Ann;Ann;Lee", "Ann Lee"),
        ("姓;名", "山田;太郎", "山田太郎"),
        ("名;姓", "太郎;山田", "山田太郎"),
        ("성;이름", "김;민수", "김민수"),
        ("First Name;Last Name", "伟;王", "王伟"),
        ("姓;名", "Yamada;Taro", "Taro Yamada"),
        ("姓;名", "スミス;ジョン", "ジョン スミス"),
        # A first or last name that the full name already contains isn't added again.
        ("Full Name;First Name;Last Name", "Ann Lee;Ann;Lee", "Ann Lee"),
        ("Full Name;Last Name", "Ann Lee;Lee", "Ann Lee"),
        ("Name;Surname", "Ann Lee;Lee", "Ann Lee"),
        ("Name;Surname", "ANN LEE;lee", "ANN LEE"),
        ("Name;Last Name", "Zoe\u0308 Müller;Mu\u0308ller", "Zoë Müller"),
        ("Name;姓", "山田太郎;山田", "山田太郎"),
        ("Name;First Name;Last Name", "Ann Lee;Ann;Lee", "Ann Lee"),
        ("Name;First Name;Last Name", "Ann;Ann;Lee", "Ann Lee"),
        ("Name;First Name;Last Name", "Lee;Ann;", "Ann Lee"),
        ("Name;First Name;Last Name", ";Ann;Lee", "Ann Lee"),
        ("Name", "Ann Lee", "Ann Lee"),
        ("Vorname", "Jörg", "Jörg"),
    ],
)
def test_member_name_is_combined_from_all_name_columns(header: str, record: str, name: str) -> None:
    assert read_names(header, record) == [name]


def test_each_row_combines_its_own_filled_name_columns() -> None:
    assert read_names("Name;Surname", "Ann;Lee", "Bob Roe;", ";Zed", "Cy Low;Low", ";") == [
        *("Ann Lee", "Bob Roe", "Zed", "Cy Low", ""),
    ]
    assert read_names("Vorname;Name", "Jörg;Müller", ";Eva Maier", "Uwe;Uwe Voss", "Kim;") == [
        *("Jörg Müller", "Eva Maier", "Uwe Voss", "Kim"),
    ]
    assert read_names("Full Name;Last Name", "Ann Lee;Lee", ";Roe") == ["Ann Lee", "Roe"]


@pytest.mark.parametrize(
    ("file", "roles"),
    [
        (
            "Vorname;Name;Mail\nJörg;Müller;a@x.org\n",
            {"first_name": "Vorname", "last_name": "Name"},
        ),
        ("Name;Surname;Mail\nAnn;Lee;a@x.org\n", {"first_name": "Name", "last_name": "Surname"}),
        ("Name;Surname;Mail\nAnn Lee;Lee;a@x.org\n", {"name": "Name", "last_name": "Surname"}),
        (
            "Full Name;Surname;Mail\nAnn;Lee;a@x.org\n",
            {"name": "Full Name", "last_name": "Surname"},
        ),
    ],
)
def test_import_description_assigns_a_role_to_each_name_column(
    file: str, roles: dict[str, str]
) -> None:
    columns = open_reader(file).description.columns
    assert {role: headers[0] for role, headers in columns.items() if role != "email"} == roles


def test_import_mapping_decides_which_columns_make_up_the_name() -> None:
    def combine_name(mapping: dict[str, str]) -> str:
        [name] = read_names("Vorname;Name", "Jörg;Müller", mapping=mapping)
        return name

    assert combine_name({"Name": "name"}) == "Müller"
    assert combine_name({"Name": "ignore"}) == "Jörg"
    assert combine_name({"Name": "first_name", "Vorname": "last_name"}) == "Müller Jörg"
    assert combine_name({"Vorname": "last_name", "Name": "last_name"}) == "Jörg Müller"
