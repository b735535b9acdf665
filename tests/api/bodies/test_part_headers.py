"""Tests that the API reads file names in multipart bodies, whichever way a client encodes them."""

import pytest

from api.bodies.part_headers import read_disposition
from services.attachments.upload import clean_filename


@pytest.mark.parametrize(
    ("parameters", "filename"),
    [
        (b'filename="a.jpg"', "a.jpg"),
        (b"filename=a.jpg", "a.jpg"),
        (b"filename = a b.jpg ; x=y", "a b.jpg"),
        (b'FileName="a.jpg"', "a.jpg"),
        (b'filename="\xc3\xa9t\xc3\xa9.jpg"', "été.jpg"),
        (b'filename="\xe9t\xe9 \x80.jpg"', "été €.jpg"),
        (b'filename="a;b=c.jpg"', "a;b=c.jpg"),
        (b'filename="a \\"b\\" \\\\ c.jpg"', 'a "b" \\ c.jpg'),
        (b'filename="a%22b%22 100%25.jpg"', 'a"b" 100%25.jpg'),
        (b'filename="C:\\fakepath\\a.jpg"', "C:\\fakepath\\a.jpg"),
        (b'filename="a.jpg', "a.jpg"),
        (b'filename=""', ""),
        (b"filename*=utf-8''%C3%A9t%C3%A9.jpg", "été.jpg"),
        (b"filename*=UTF-8'fr'%c3%a9t%c3%a9.jpg", "été.jpg"),
        (b"filename*=\"utf-8''%C3%A9t%C3%A9.jpg\"", "été.jpg"),
        (b"filename*=ISO-8859-1''%E9t%E9.jpg", "été.jpg"),
        (b"filename*=''%C3%A9t%C3%A9.jpg", "été.jpg"),
        (b"filename*=%C3%A9t%C3%A9.jpg", "été.jpg"),
        (b"filename*=utf-8''\xc3\xa9t\xc3\xa9.jpg", "été.jpg"),
        (b"filename*=utf-8''it%27s'.jpg", "it's'.jpg"),
        (b"filename*1*=%A9t%C3%A9; filename*0*=utf-8''%C3; filename*2=\"%41.jpg\"", "été%41.jpg"),
        (b'filename="=?utf-8?B?w6l0w6kuanBn?="', "été.jpg"),
        (b"filename==?utf-8?b?w6l0w6kuanBn?=", "été.jpg"),
        (b'filename="=?UTF-8?Q?=C3=A9t=C3=A9_1=3F.jpg?="', "été 1?.jpg"),
        (b'filename="=?utf-8?B?w6k=?= =?utf-8?Q?t=C3=A9.jpg?="', "été.jpg"),
        (b'filename="=?utf-8?B?w6l0?==?utf-8?B?w6kuanBn?="', "été.jpg"),
        (b'filename="my =?utf-8?B?w6l0w6k=?=.jpg"', "my été.jpg"),
        (b'filename="=?iso-8859-1?Q?=E9t=E9.jpg?="', "été.jpg"),
        (b'filename="=?windows-1251?B?5O7sLmpwZw==?="', "дом.jpg"),
    ],
)
def test_uploaded_file_name_is_read_in_each_encoding_that_clients_send(
    parameters: bytes, filename: str
) -> None:
    header = b"form-data; name=file; " + parameters
    assert read_disposition(header) == ("file", filename)


@pytest.mark.parametrize(
    "template", [b'filename="plain.jpg"; filename*=%b', b'filename*=%b; filename="plain.jpg"']
)
@pytest.mark.parametrize(
    ("extended", "filename"),
    [
        (b"utf-8''%C3%A9.jpg", "é.jpg"),
        (b"utf-8''", "plain.jpg"),
        (b"utf-8''%E9.jpg", "plain.jpg"),
        (b"no-such-charset''%C3%A9.jpg", "plain.jpg"),
        (b"zip''%C3%A9.jpg", "plain.jpg"),
    ],
)
def test_filename_star_parameter_wins_if_its_charset_can_be_decoded(
    extended: bytes, filename: str, template: bytes
) -> None:
    header = b'form-data; name="file"; ' + template % extended
    assert read_disposition(header) == ("file", filename)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b"", (None, None)),
        (b"form-data; filename=a", (None, "a")),
        (b'form-data; name="file"', ("file", None)),
        (b'form-data; name="a;filename=b"', ("a;filename=b", None)),
        (b'form-data; name="x\\"; filename=\\"a"', ('x"; filename="a', None)),
    ],
)
def test_multipart_part_may_lack_name_or_file_name(
    header: bytes, expected: tuple[str | None, str | None]
) -> None:
    assert read_disposition(header) == expected


@pytest.mark.parametrize(
    ("parameters", "filename"),
    [
        (b"filename*=utf-8''..%2F..%2Fetc%2Fa.jpg", "a.jpg"),
        (b"filename*=utf-8''C%3A%5Cdir%5Ca.jpg", "a.jpg"),
        (b'filename="=?utf-8?B?L2V0Yy9hLmpwZw==?="', "a.jpg"),
        (b"filename*=utf-8''a%00%0d%0a%1b%E2%80%AEb.jpg", "ab.jpg"),
        (b'filename="a%0D%0Ab.jpg"', "ab.jpg"),
        (b"filename*=utf-8''%zz%.jpg", "%zz%.jpg"),
        (b"filename*=utf-8'%41.jpg", "utf-8'A.jpg"),
        (b"filename*=utf-16''%00%d8.jpg", "Ø.jpg"),
        (b'filename="=?utf-7?Q?+2AA-.jpg?="', "+2AA-.jpg"),
        (b'filename="=?utf-8?B?=?utf-8?B?YS5qcGc=?=?="', "=?utf-8?B?a.jpg?="),
        (b'filename="=?no-such-charset?B?YS5qcGc=?="', "a.jpg"),
        (b'filename="=?utf-8?B?Y?="', "=?utf-8?B?Y?="),
        (b'filename="=?unicode_escape?Q?=5Cud800.jpg?="', "ud800.jpg"),
        (b"filename*0*=utf-8''a; filename*99999999999999999=b", "a"),
        (b"filename*=utf-8''a; filename*0*=utf-8''b; filename*x=c", "a"),
    ],
)
def test_hostile_uploaded_file_name_is_cleaned(parameters: bytes, filename: str) -> None:
    _, sent_filename = read_disposition(b"form-data; name=file; " + parameters)
    assert sent_filename is not None
    assert clean_filename(sent_filename) == filename
