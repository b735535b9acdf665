import codecs

import pytest

from services.subscriptions.imports.rows import MemberRow, RejectedRecord
from tests.support.imports.forms import open_reader, read_outcomes, read_rows

FILE = "email,name\r\njörg@example.com,Jörg Çelik\r\n"


def test_utf_16_big_endian_byte_order_mark_is_recognised() -> None:
    assert read_rows(codecs.BOM_UTF16_BE + FILE.encode("utf-16-be"))[0].name == "Jörg Çelik"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_mark_is_recognised_even_if_letters_contain_zero_bytes(
    encoding: str,
) -> None:
    file = "email,name\na@example.com," + "\uac00" * 9
    assert read_rows(file.encode(encoding))[0].name == "\uac00" * 9


def test_stray_zero_bytes_do_not_make_a_file_utf_16() -> None:
    assert read_rows(b"email,name\na@example.com,A\0n\0\n\0")[0].name == "An"


def test_windows_1252_punctuation_is_decoded() -> None:
    assert read_rows("email,name\na@example.com,“Ann” – €".encode("cp1252"))[0].name == "“Ann” – €"


def test_latin_1_letters_after_long_ascii_text_are_decoded() -> None:
    ascii_lines = b"".join(b"m%d@example.com,M\n" % n for n in range(10_000))
    parsed_rows = read_rows(
        b"email,name\n" + ascii_lines + "z@example.com,Zoë Müller\n".encode("latin-1")
    )

    assert parsed_rows[-1].name == "Zoë Müller"
    assert len(parsed_rows) == 10_001


def test_invalid_bytes_in_a_name_affect_only_that_name() -> None:
    file = "email,name\na@example.com,Zoë {}\nb@example.com,Müller\n".encode()

    parsed_rows = read_rows(file.replace(b"{}", "Müller".encode("latin-1") + b"\xc3"))

    assert [row.name for row in parsed_rows] == ["Zoë MüllerÃ", "Müller"]
    assert open_reader(file).description.encoding == "utf-8"


def test_address_with_invalid_bytes_is_rejected_rather_than_guessed() -> None:
    valid_lines = "".join(f"é{n}@example.com,É\n" for n in range(9)).encode()
    data = b"email,name\n" + valid_lines + b"j\xf6rg@example.com,J\n" + b"z@example.com,Z\n"

    assert read_outcomes(data)[-2:] == [(11, "encoding.invalid"), (12, "z@example.com")]


def test_incomplete_utf_16_character_rejects_only_its_own_row() -> None:
    data = "email,name\né@example.com,A\nz@example.com,Z\n".encode("utf-16-le")
    damaged_data = data.replace("é".encode("utf-16-le"), b"\x00\xd8")

    assert read_outcomes(damaged_data) == [(2, "encoding.invalid"), (3, "z@example.com")]
    assert read_outcomes(data + b"x")[:2] == [(2, "é@example.com"), (3, "z@example.com")]


def test_invalid_bytes_in_json_lines_reject_only_their_own_line() -> None:
    valid_line = '{"email": "é@example.com"}\n'.encode()

    assert read_outcomes(valid_line * 2 + b'{"email": "\xf6@example.com"}\n' + valid_line) == [
        (1, "é@example.com"),
        (2, "é@example.com"),
        (3, "row.unreadable"),
        (4, "é@example.com"),
    ]


def test_row_rejected_for_its_encoding_states_that_reason() -> None:
    valid_lines = "é@example.com,É\n".encode() * 3
    parsed_rows = [*open_reader(b"email,name\n" + valid_lines + b"\xf6@example.com,N\xf6\n")]

    assert isinstance(parsed_rows[0], MemberRow)
    assert isinstance(parsed_rows[-1], RejectedRecord)
    assert "encoding" in parsed_rows[-1].reason
