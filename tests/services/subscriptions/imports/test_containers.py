import gzip
import io
import zipfile
import zlib

import pytest

from core.errors import DomainError
from services.subscriptions.imports.formats import containers
from services.subscriptions.imports.formats.containers import open_ranged_file
from services.subscriptions.imports.formats.formats import open_member_rows
from tests.support.imports.forms import (
    StoredObject,
    compress,
    open_reader,
    read_outcomes,
    read_rows,
    zip_files,
)
from tests.support.imports.workbooks import workbook

FILE = b"email,name\n" + b"".join(b"m%d@example.com,M%d\n" % (n, n * 7919) for n in range(3000))


def error_message(data: bytes, code: str) -> str:
    """Return the error message of a file that can't be read, and check the code of the error."""
    with pytest.raises(DomainError) as error:
        read_outcomes(data)
    assert error.value.code == code
    return error.value.message


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_zip_import_reads_each_byte_range_about_once(
    monkeypatch: pytest.MonkeyPatch, method: int
) -> None:
    monkeypatch.setattr(containers, "WINDOW_BYTES", 8192)
    stored_file = StoredObject(zip_files({"members.csv": FILE}, method))

    member_rows = [*open_member_rows(open_ranged_file(stored_file))]

    assert len(member_rows) == 3000
    assert stored_file.reads <= len(stored_file.data) / 8192 + 12


@pytest.mark.parametrize("kind", ["plain", "gzip"])
def test_import_reads_the_file_only_as_far_as_rows_are_needed(kind: str) -> None:
    data = compress(FILE * 20, kind)
    source = io.BytesIO(data)
    reader = open_member_rows(source)
    next(iter(reader))

    assert source.tell() < len(data)
    for _ in reader:
        pass
    assert source.tell() == len(data)


def test_import_ignores_system_files_of_macos_and_windows_in_a_zip() -> None:
    files = {"list/members.csv": FILE, "__MACOSX/list/._members.csv": b"x", "list/.DS_Store": b"x"}

    assert len(read_rows(zip_files(files))) == 3000


def test_zip_with_several_files_is_rejected_with_their_names() -> None:
    message = error_message(zip_files({"a.csv": FILE, "b.csv": FILE}), "import.archive_many_files")

    assert "a.csv, b.csv" in message


def test_zip_with_an_oversized_directory_is_rejected() -> None:
    data = zip_files({f"{n}-{'x' * 200}": b"" for n in range(2000)})

    assert "directory" in error_message(data, "import.archive_many_files")


def test_password_protected_zip_is_rejected() -> None:
    data = bytearray(zip_files({"members.csv": FILE}))
    data[6] |= 1
    data[data.rindex(b"PK\x01\x02") + 8] |= 1

    error_message(bytes(data), "import.archive_encrypted")


@pytest.mark.parametrize("kind", ["gzip", "zip"])
@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.99])
def test_truncated_archive_is_rejected(kind: str, fraction: float) -> None:
    archive = compress(FILE, kind)
    error_message(archive[: int(len(archive) * fraction)], "import.truncated")


def test_truncated_workbook_is_rejected_as_an_incomplete_excel_file() -> None:
    file = workbook({"Members": [["email"], ["ada@example.com"]]})
    for size in (1000, len(file) - 30):
        sentence = error_message(file[:size], "import.truncated")
        assert sentence == "The Excel file is incomplete. Upload the complete file."


def test_rows_before_the_end_of_a_truncated_gzip_are_still_read() -> None:
    archive = compress(FILE * 10, "gzip")
    reader = iter(open_reader(archive[: len(archive) // 2]))

    assert next(reader).line == 2
    with pytest.raises(DomainError):
        for _ in reader:
            pass


@pytest.mark.parametrize("damaged_byte", [12, 5000, -5])
def test_damaged_archive_is_rejected(damaged_byte: int) -> None:
    for data, position in [
        (gzip.compress(FILE, mtime=0), damaged_byte),
        (zip_files({"m.csv": FILE}), abs(damaged_byte) + 40),
    ]:
        broken = bytearray(data)
        broken[position] ^= 0xFF
        error_message(bytes(broken), "import.damaged")


def test_gzip_with_several_members_is_read_as_one_file() -> None:
    members = gzip.compress(FILE) + gzip.compress(b"last@example.com,L\n") + b"\0" * 700

    member_rows = read_rows(members)
    assert (len(member_rows), member_rows[-1].email) == (3001, "last@example.com")


def test_gzip_with_many_tiny_members_is_read_up_to_the_member_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Gzip members begin and end anywhere in a read buffer, and zero bytes separate them.
    lines = [f"reader{number}@example.com,R\n".encode() for number in range(5_000)]
    members = [gzip.compress(line, mtime=0) for line in (b"email,name\n", *lines)]
    archive = b"\0\0".join(members)
    assert len(read_rows(archive)) == 5_000
    monkeypatch.setattr(containers, "MAX_GZIP_MEMBERS", 5_000)
    error_message(archive, "import.expands_too_much")


def test_trailing_garbage_after_a_gzip_is_rejected() -> None:
    error_message(gzip.compress(FILE, mtime=0) + b"garbage", "import.damaged")


@pytest.mark.parametrize("kind", ["gzip", "zip"])
def test_archive_that_expands_more_than_200_times_is_rejected(kind: str) -> None:
    bomb = compress(b"email\n" + (b" " * 999 + b"\n") * 20_000, kind)

    assert "200 times" in error_message(bomb, "import.expands_too_much")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gzip", "zip"])
def test_small_repetitive_archive_is_accepted_despite_its_compression_ratio(kind: str) -> None:
    data = b"email\n" + b"member@example.com\n" * 50_000
    archive = compress(data, kind)

    assert len(data) > 200 * len(archive)
    assert len(read_rows(archive)) == 50_000


@pytest.mark.parametrize("kind", ["plain", "gzip", "zip"])
def test_import_file_over_the_expanded_size_limit_is_rejected(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "MAX_EXPANDED_BYTES", 30_000)

    error_message(compress(FILE, kind), "import.expands_too_much")


@pytest.mark.slow
def test_decompression_bomb_is_rejected_before_half_of_it_is_read() -> None:
    bytes_read = 0

    class CountingFile(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            nonlocal bytes_read
            data = super().read(size)
            bytes_read += len(data)
            return data

    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(b" " * 999_999 + b"\n") for _ in range(200)) + packer.flush()
    with pytest.raises(DomainError):
        for _ in open_member_rows(CountingFile(bomb)):
            pass

    assert bytes_read < len(bomb) / 2


@pytest.mark.parametrize(
    ("data", "message_part"),
    [
        (gzip.compress(gzip.compress(FILE, mtime=0)), "archive inside an archive"),
        (zip_files({"members.csv.gz": gzip.compress(FILE, mtime=0)}), "archive inside an archive"),
        (zip_files({"members.csv": FILE}, zipfile.ZIP_BZIP2), "unusual"),
        (b"%PDF-1.7 ...", "PDF"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "Excel"),
        (b"\x28\xb5\x2f\xfd" + b"x" * 99, "Zstandard"),
    ],
)
def test_unsupported_file_type_is_rejected_by_its_name(data: bytes, message_part: str) -> None:
    assert message_part in error_message(data, "import.unknown_format")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (
            b"\xd0\xcf\x11\xe0" + bytes(508) + "Workbook".encode("utf-16-le") + bytes(70_000),
            "import.unknown_format",
        ),
        (
            b"\xd0\xcf\x11\xe0"
            + bytes(containers.READ_BYTES - 40)
            + "EncryptedPackage".encode("utf-16-le")
            + bytes(32)
            + b"\x22\0\2",
            "import.workbook_encrypted",
        ),
    ],
    ids=["old workbook", "encrypted workbook"],
)
def test_old_and_encrypted_workbooks_have_their_own_errors(data: bytes, code: str) -> None:
    with pytest.raises(DomainError) as error:
        open_member_rows(io.BytesIO(data))
    assert error.value.code == code


@pytest.mark.parametrize(
    ("names", "extension"),
    [
        (("mimetype", "content.xml", "META-INF/manifest.xml"), ".ods"),
        (("Index/Document.iwa", "Metadata/Properties.plist"), ".numbers"),
        (("Index.zip", "preview.jpg"), ".numbers"),
    ],
)
def test_other_spreadsheet_is_refused_with_the_advice_to_save_as_xlsx(
    names: tuple[str, ...], extension: str
) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    with pytest.raises(DomainError) as error:
        open_member_rows(io.BytesIO(file.getvalue()))
    assert error.value.code == "import.unknown_format"
    assert extension in str(error.value)
    assert "save it as .xlsx or CSV" in str(error.value)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\n\r\n  \n", b"\xef\xbb\xbf", b"\xff\xfe", gzip.compress(b"", mtime=0)),
        *(zip_files({}), zip_files({"folder/": b""}), zip_files({"members.csv": b""})),
    ],
)
def test_empty_import_file_is_rejected(data: bytes) -> None:
    error_message(data, "import.empty")
