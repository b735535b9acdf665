import pytest

from services.attachments.images.outcome import ALLOWED_EXTENSIONS, ImageType, sniff
from tests.services.attachments.images.samples import one_of_each

EXPECTED = {
    "jpeg": ImageType.JPEG,
    "mpo": ImageType.JPEG,
    "png": ImageType.PNG,
    "apng": ImageType.PNG,
    "gif": ImageType.GIF,
    "animated gif": ImageType.GIF,
    "webp": ImageType.WEBP,
    "lossless webp": ImageType.WEBP,
    "animated webp": ImageType.WEBP,
    "ico": ImageType.ICO,
    "bitmap ico": ImageType.ICO,
}


@pytest.mark.parametrize("name", EXPECTED)
def test_first_sixteen_bytes_name_the_type(name: str) -> None:
    assert sniff(one_of_each()[name][:16]) is EXPECTED[name]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x89PN",
        b"BM" + bytes(60),
        b"%PDF-1.7",
        b"<svg/>",
        b"RIFF\0\0\0\0WAVEfmt ",
        b"\0\0\2\0\1\0",
    ],
)
def test_other_bytes_have_no_type(data: bytes) -> None:
    assert sniff(data) is None


def test_every_type_has_an_extension_and_a_mime_type() -> None:
    assert set(ALLOWED_EXTENSIONS) == {"png", "jpg", "jpeg", "gif", "webp", "ico"}
    assert ALLOWED_EXTENSIONS - {"jpg"} == set(ImageType)
    assert ImageType.JPEG.mime_type == "image/jpeg"
    assert ImageType.ICO.mime_type == "image/x-icon"
