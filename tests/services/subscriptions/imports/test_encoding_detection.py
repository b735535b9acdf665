"""Detection of encodings other than Unicode. The owner chooses if the encoding is uncertain."""

import gzip
from collections.abc import Sequence

import pytest

from services.subscriptions.imports.formats.encoding_detection import ROWS_SHOWN, EncodingUnclear
from services.subscriptions.imports.formats.encodings import ENCODINGS, read_encoding
from tests.support.imports.forms import open_reader, read_rows, zip_files

WESTERN_NAMES_BY_LANGUAGE = {
    "en": """
        Zoë|Chloë Brontë|D’Angelo Russell|O’Brien|Ann’s Café|Renée Zellweger|Beyoncé Knowles
        “Ann” Lee|Jean–Luc Ponty|Smith – Jones|Acme™ Ltd|£5 Club|Café Noir|Siân Phillips
        Seán Ó Casey|Róisín Byrne|Niamh Ní Dhuibhne|Éamon de Valera|Charlotte Brontë|naïve Ltd
        Fiancé Inc.|Mötley Crüe|Emily Brontë|McDonald’s|Ann… Lee
    """,
    "de": """
        Jörg Müller|Weiß|Straße|GROßE|Käthe Kollwitz|Übel|ÄNNE BURDA|Öztürk|Günther Graß
        Schröder-Köpf|„Ann“ Lee|»Ann« Lee|MÜLLER|Jürgen Strauß|Bärbel Höhn|Süß & Söhne
        Gräfin Dönhoff|Löß|Größe|Jäger|Börne|François Müller|René Weller|Noël Zürn|von Bülow
    """,
    "fr": """
        d’Évreux|L’Haÿ-les-Roses|Ÿ|Œuvrard|Cœur|Bœuf|Hélène|FRANçOIS|Benoît Lemaître|Maël|Loïc
        Anaïs|Geneviève Irène|Bègue|Gillièron|Crête|Pêche|Île|Garçon|«Ann»|Lætitia|Jusqu’ici
        L’Équipe|Brûlé|Dugué-Prévôt
    """,
    "es": """
        Ñandú|Muñoz|José|GÓMEZ|Ibáñez|Argüelles|Núñez-Peña|Íñigo|María José|M.ª José|nº 5|Ángel
        Raúl|Lucía|Agustín|Begoña|¡Hola!|¿Ana?|Güell|Martínez|Peñíscola|Logroño|España|Úrsula
        Zúñiga
    """,
    "pt": """
        João|Conceição|Simões|Guimarães|Inês|Corrêa|Ângela|Antônio|Lúcia|Avô|Gonçalves|São Tomé
        Magalhães|Mãe|Irmã|Luís|Mônica|Vitória|Câmara|Camões|Assunção|Zé|Estêvão|Nóbrega|Araújo
    """,
    "it": """
        Nicolò|Niccolò|Cantù|Forlì|Giosuè|Noè|Mosè|Salomè|D’Alò|Dell’Orto|Sant’Anna|Corrò
        Libertà|Gesù|Borzomì|Perché|Lunedì|Città di Castello|Segrè|Foà|Papà|Caffè|Salò|Virtù|Già
    """,
    "nl": """
        van ’t Hof|’s-Hertogenbosch|‘s-Gravenhage|Daniëlle|Coördinator|naïef|Zoé|Noëlle|Gaël
        België|Curaçao|Reünie|Joëlle|Michiel ’t Hooft|Citroën|Israëls|Ruïne|Crème|Privé
        Categorieën|Éénhoorn|Ambiënt|André|Raphaël|Geërfd
    """,
    "sv": """
        ÅSA|Åke|Öberg|Sjöström|Ängsö|Åsö|Björn|Märta|Göran|Håkon Bjørn|Øystein|Sørensen|Kjær|Bøe
        Ærø|Ståhl|Bäckström|Näsström|Häggström|Idé|Linnéa|Malmö|Växjö|Ö|Ahlén
    """,
}
WESTERN_NAMES = [
    (language, name.strip())
    for language, text in WESTERN_NAMES_BY_LANGUAGE.items()
    for line in text.split("\n")
    for name in line.split("|")
    if name.strip()
]


def build_csv(names: Sequence[str], encoding: str) -> bytes:
    lines = [f"m{number}@example.com;{name}\n" for number, name in enumerate(names)]
    return ("email;name\n" + "".join(lines)).encode(encoding)


def decode_names(names: Sequence[str], encoding: str) -> list[str] | None:
    """Write the names to a file in this encoding, and return the names that the import reads.

    Return ``None`` if the owner must choose the encoding.
    """
    try:
        return [row.name for row in read_rows(build_csv(names, encoding))]
    except EncodingUnclear:
        return None


def test_western_names_in_windows_1252_are_decoded_without_asking_the_owner() -> None:
    assert {
        language: sum(each == language for each, _ in WESTERN_NAMES)
        for language in WESTERN_NAMES_BY_LANGUAGE
    } == dict.fromkeys(WESTERN_NAMES_BY_LANGUAGE, 25)
    misread_names = {
        name: decode_names([name], "cp1252")
        for _, name in WESTERN_NAMES
        if decode_names([name], "cp1252") != [name]
    }
    assert misread_names == {}


NAMES_BY_ENCODING = {
    "cp1251": ("Иван Петров", "Мария", "Сергей Кузнецов", "Анна Ильина", "Олег"),
    "koi8-r": ("Иван Петров", "Мария", "Сергей Кузнецов", "Анна Ильина", "Олег"),
    "cp1250": ("Łukasz Wiśniewski", "Małgorzata Zając", "Grażyna Dąbrowska", "Paweł Gęś"),
    "iso8859-2": ("Łukasz Wiśniewski", "Małgorzata Zając", "Grażyna Dąbrowska", "Paweł Gęś"),
    "cp1253": ("Αθηνά Παπαδοπούλου", "Γιώργος Ιωάννου", "Ελένη"),
    "cp1254": ("Ayşe Yıldız", "İbrahim Doğan", "Şükrü Güneş", "Çağla Işık", "Işıl Kılıç", "Oğuz"),
    "cp932": ("田中太郎", "山田花子", "佐藤健一"),
    "euc_jp": ("田中太郎", "山田花子", "佐藤健一"),
    "gb18030": ("王伟", "李娜", "张敏"),
    "cp950": ("陳怡君", "林志明", "黃淑芬"),
    "cp949": ("김민수", "이영희", "박지훈"),
    "mac-roman": ("José Müller", "Zoë", "François Ängström", "Núñez"),
}
CZECH_NAMES = ("Jiří Dvořák", "Růžena Nováčková", "Tomáš Němec", "Kateřina Černá", "Zdeněk Kovář")


@pytest.mark.parametrize("encoding", NAMES_BY_ENCODING)
def test_legacy_encoding_is_recognised_from_several_names(encoding: str) -> None:
    assert decode_names(NAMES_BY_ENCODING[encoding], encoding) == [*NAMES_BY_ENCODING[encoding]]


@pytest.mark.parametrize("encoding", NAMES_BY_ENCODING)
def test_single_name_in_a_legacy_encoding_is_decoded_correctly_or_left_to_the_owner(
    encoding: str,
) -> None:
    for name in NAMES_BY_ENCODING[encoding]:
        assert decode_names([name], encoding) in ([name], None)
    # The bytes of a Czech name may also spell a name of another language in another encoding.
    for name in CZECH_NAMES:
        assert decode_names([name], "cp1250") in ([name], None)


def test_western_file_may_contain_a_few_names_of_other_languages() -> None:
    western = [
        name for language, name in WESTERN_NAMES if language in ("de", "fr") and " " not in name
    ]
    decoded_names = decode_names([*western, "Miloš", "Žižek"], "cp1252")
    assert decoded_names == [*western, "Miloš", "Žižek"]


def test_few_unambiguous_names_decide_the_encoding_of_a_file() -> None:
    # German names have the same bytes in cp1250 and in cp1252.
    german = [f"{name} {letter}" for name in ("Jörg", "Müller", "Günther") for letter in "ABCDEFG"]
    polish = ["Łukasz Wójcik", "Małgorzata Zając", "Paweł Wiśniewski", "Michał Dąbrowski"]
    assert decode_names(german + polish, "cp1250") == german + polish


def test_owner_sees_sample_rows_in_each_possible_encoding() -> None:
    with pytest.raises(EncodingUnclear) as raised:
        open_reader(build_csv(["Bob", "Marić", "Ann", "Kovačić", "Anđela", "Lee"], "cp1250"))

    readings = raised.value.readings
    assert {*readings["cp1250"]} == {
        *("m1@example.com;Marić", "m3@example.com;Kovačić", "m4@example.com;Anđela")
    }
    assert all(len(each) == ROWS_SHOWN for each in readings.values())
    # Of several encodings that decode the file identically, only one is offered.
    assert len({tuple(each) for each in readings.values()}) == len(readings) > 1


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        ("windows-1251", "cp1251"),
        ("CP1251", "cp1251"),
        ("UTF8", "utf-8"),
        ("utf-16", "utf-16"),
        ("UTF-16LE", "utf-16"),
        ("Latin-1", "cp1252"),
        ("ISO-8859-2", "iso8859-2"),
        ("Shift_JIS", "cp932"),
        ("EUC-JP", "euc_jp"),
        ("gbk", "gb18030"),
        ("Big5", "cp950"),
        ("macintosh", "mac-roman"),
        ("ebcdic", None),
        ("", None),
        ("rot13", None),
    ],
)
def test_encoding_setting_accepts_common_encoding_names(name: str, encoding: str | None) -> None:
    assert read_encoding(name) == encoding


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_encoding_named_by_the_owner_overrides_detection(encoding: str) -> None:
    assert read_encoding(encoding) == encoding
    file = "email,name\na@example.com,Ann\n".encode(encoding)
    assert read_rows(file, encoding=encoding)[0].name == "Ann"
    utf_8 = "email,name\na@example.com,é\n".encode()
    parsed_rows = [*open_reader(utf_8, encoding="cp1251")]
    assert parsed_rows[0].cells[1] == "Г©"


def test_encoding_of_a_compressed_file_is_recognised() -> None:
    names = NAMES_BY_ENCODING["cp1251"]
    file = build_csv(names, "cp1251")
    for packed in (gzip.compress(file), zip_files({"members.csv": file})):
        reader = open_reader(packed)
        assert [row.cells[1] for row in reader] == [*names]
        assert reader.description.encoding == "cp1251"


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        ("Иван Петров", "cp1251"),
        ("Zoë Müller", "cp1252"),
        ("김민수", "cp949"),
        ("José", "mac-roman"),
    ],
)
def test_one_name_after_long_ascii_text_reveals_the_encoding(name: str, encoding: str) -> None:
    ascii_lines = b"".join(b"m%d@example.com;M%d\n" % (n, n) for n in range(20_000))
    reader = open_reader(
        b"email;name\n" + ascii_lines + f"z@example.com;{name}\n".encode(encoding) + ascii_lines
    )
    assert len([*reader]) == 40_001
    assert reader.text.encoding == "utf-8"
    assert reader.text.find_final_encoding() == encoding
    assert reader.text.is_equivalent_to(encoding) is (encoding == "cp1252")


def test_late_names_correct_the_encoding_detected_at_the_beginning() -> None:
    german = [f"Jörg Müller {number}" for number in range(5_000)]
    polish = ["Łukasz Wójcik", "Małgorzata Zając", "Paweł Wiśniewski", "Michał Dąbrowski"]
    reader = open_reader(build_csv(german + polish, "cp1250"))
    assert len([*reader]) == 5_004
    assert (reader.text.encoding, reader.text.find_final_encoding()) == ("cp1252", "cp1250")


def test_damaged_utf_8_file_is_still_read_as_utf_8() -> None:
    names = [f"Иван {number}" for number in range(20)]
    file = build_csv(names, "utf-8").replace("Иван 7".encode(), "Zoë".encode("cp1252"))
    reader = open_reader(file)
    assert [row.cells[1] for row in reader][7] == "Zoë"
    assert reader.text.find_final_encoding() == "utf-8"


def test_binary_file_is_rejected_without_asking_for_its_encoding() -> None:
    noise = bytes(range(1, 256)) * 4
    with pytest.raises(Exception, match="binary file"):
        open_reader(b"\x7fELF" + noise)
