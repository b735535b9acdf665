import random
import re
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress

import pytest
from PIL import Image

from services.attachments.images.conversion import convert_image
from services.attachments.images.outcome import UnreadableImage
from tests.support.images import samples
from tests.support.images.samples import (
    PNG_SIGNATURE,
    GifFrame,
    Rectangle,
    apng,
    chunk,
    encode_each_format,
    encoded,
    gif,
)


def find_error(data: bytes) -> UnreadableImage:
    with pytest.raises(UnreadableImage) as error:
        convert_image(data)
    return error.value


def test_empty_image_upload_is_rejected() -> None:
    assert find_error(b"").code == "image.empty"


@pytest.mark.parametrize(
    "data",
    [
        b"hello",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"BM" + bytes(99),
        b"%PDF-1.7",
        b"RIFF\0\0\0\0WAVEfmt ",
        b"\0\0\2\0\1\0",
    ],
)
def test_unsupported_image_type_is_rejected(data: bytes) -> None:
    assert find_error(data).code == "image.unsupported_type"


@pytest.mark.parametrize("name", encode_each_format())
def test_truncated_image_is_rejected_wherever_the_file_is_cut(name: str) -> None:
    data = encode_each_format()[name]
    if name == "mpo":
        # Use only the first picture of an MPO file, because this picture is a complete JPEG file.
        data = data[: data.index(b"\xff\xd9\xff\xd8") + 2]
    elif name == "ico":
        # The sample has several images, and a whole one would be converted.
        data = encoded(samples.picture(), "ICO", sizes=[(32, 32)])
    cuts = {len(data) - 1, len(data) - 2, 20, *random.Random(7).sample(range(16, len(data)), 40)}
    assert {find_error(data[:length]).code for length in cuts} == {"image.truncated"}


@pytest.mark.parametrize("data", [PNG_SIGNATURE, b"GIF89a", b"\xff\xd8\xff\xe0junk" * 10])
def test_file_with_only_an_image_signature_is_rejected_as_truncated(data: bytes) -> None:
    assert find_error(data).code == "image.truncated"


def test_image_errors_contain_no_memory_addresses() -> None:
    # Convert an icon file that contains only one image, whose format is unknown.
    entry = struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, 64, 22)
    errors = [find_error(struct.pack("<HHH", 0, 1, 1) + entry + bytes(range(64)))]
    for data in encode_each_format().values():
        for seed in range(30):
            broken = bytearray(data)
            random.Random(seed).shuffle(positions := list(range(12, len(data))))
            for position in positions[:20]:
                broken[position] ^= 0x5A
            with suppress(UnreadableImage):
                convert_image(bytes(broken))
                continue
            errors.append(find_error(bytes(broken)))
    assert errors
    assert [each.message for each in errors if re.search("0x|<", each.message)] == []


@pytest.mark.parametrize("name", encode_each_format())
def test_bytes_after_the_end_of_an_image_are_ignored(name: str) -> None:
    data = encode_each_format()[name]
    assert convert_image(data + b"<script>alert(1)</script>PK\x03\x04") == convert_image(data)


def _png_header(width: int, height: int) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0))
    return PNG_SIGNATURE + header + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND")


def _gif_header(width: int, height: int) -> bytes:
    return gif((width, height), [GifFrame((0, 0, 2, 2), 0)])


def _jpeg_header(width: int, height: int) -> bytes:
    data = bytearray(encode_each_format()["jpeg"])
    position = data.index(b"\xff\xc0") + 5
    data[position : position + 4] = struct.pack(">HH", height, width)
    return bytes(data)


def _webp_header(width: int, height: int) -> bytes:
    data = bytearray(encode_each_format()["animated webp"])
    data[24:30] = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return bytes(data)


def _lossless_webp_header(width: int, height: int) -> bytes:
    data = bytearray(encode_each_format()["lossless webp"])
    data[21:25] = (width - 1 | height - 1 << 14).to_bytes(4, "little")
    return bytes(data)


def _icon_header(width: int, height: int) -> bytes:
    body = _png_header(width, height)
    return struct.pack("<HHHBBBBHHII", 0, 1, 1, 0, 0, 0, 0, 1, 32, len(body), 22) + body


def _bitmap_icon_header(width: int, height: int) -> bytes:
    body = struct.pack("<IiiHHIIiiII", 40, width, 2 * height, 1, 32, 0, 0, 0, 0, 0, 0) + bytes(99)
    return struct.pack("<HHHBBBBHHII", 0, 1, 1, 0, 0, 0, 0, 1, 32, len(body), 22) + body


HEADERS = [
    _png_header,
    _gif_header,
    _jpeg_header,
    _webp_header,
    _lossless_webp_header,
    _icon_header,
    _bitmap_icon_header,
]


@pytest.mark.parametrize("header", HEADERS)
def test_image_with_excessive_dimensions_is_rejected_before_decoding(
    header: Callable[[int, int], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image.Image, "load", lambda _: pytest.fail("a pixel was decoded"))
    if header is not _lossless_webp_header:  # its header allows at most 16,384 pixels per side
        assert find_error(header(65_000, 9)).code == "image.side_too_long"
    assert find_error(header(9, 16_384)).code == "image.side_too_long"
    assert find_error(header(16_383, 3_053)).code == "image.too_many_pixels"


@pytest.mark.parametrize("header", [_png_header, _gif_header])
def test_image_without_pixels_is_rejected(header: Callable[[int, int], bytes]) -> None:
    code = find_error(header(0, 5) if header is _png_header else gif((20, 10), [])).code
    assert code == "image.unreadable"


def test_image_size_error_names_the_limit_the_place_and_the_actual_size() -> None:
    message = find_error(_png_header(20_000, 9)).message
    assert "16,383" in message
    assert "PNG header" in message
    assert "20,000" in message


def _build_webp(frames: int) -> bytes:
    data = encode_each_format()["animated webp"]
    position = data.index(b"ANMF")
    size = 8 + int.from_bytes(data[position + 4 : position + 8], "little")
    body = data[12:position] + data[position : position + size] * frames
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


@pytest.mark.parametrize(
    "data",
    [
        gif((20, 10), [GifFrame((0, 0, 1, 1), 0)] * 1001),
        apng((20, 10), [Rectangle((0, 0, 1, 1), (1, 2, 3, 255))] * 1001, stand_in=(0, 0, 0, 0)),
        _build_webp(1001),
    ],
    ids=["gif", "apng", "webp"],
)
def test_animation_with_over_1000_frames_is_rejected(data: bytes) -> None:
    assert find_error(data).code == "image.too_many_frames"


def test_animation_with_1000_frames_is_accepted() -> None:
    assert (
        convert_image(gif((20, 10), [GifFrame((0, 0, 1, 1), n % 3) for n in range(1000)])).frames
        == 1000
    )


@pytest.mark.parametrize(
    "data",
    [
        gif((1000, 1001), [GifFrame((0, 0, 1, 1), 0)] * 100),
        gif((20, 10), [GifFrame((0, 0, 20, 10), 0), *[GifFrame((0, 0, 1, 1), 0)] * 99])[:-1]
        + b"," + struct.pack("<HHHHB", 0, 0, 1000, 1001, 0) + b"\x02\x00;",
        apng((1000, 1001), [Rectangle((0, 0, 1, 1), (1, 2, 3, 255))] * 100, stand_in=(0, 0, 0, 0)),
    ],
    ids=["gif canvas", "gif frame beyond its canvas", "apng"],
)  # fmt: skip
def test_animation_over_the_total_pixel_limit_is_rejected_before_decoding(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image.Image, "load", lambda _: pytest.fail("a pixel was decoded"))
    assert find_error(data).code == "image.animation_too_large"


def test_png_with_checksum_mismatch_is_rejected() -> None:
    data = bytearray(encode_each_format()["png"])
    data[data.index(b"IEND") - 5] ^= 1  # the last byte of the data's checksum
    assert "checksum" in find_error(bytes(data)).message


@pytest.mark.parametrize("fraction", [0.3, 0.9])
def test_png_with_incomplete_pixel_data_in_a_complete_container_is_rejected(
    fraction: float,
) -> None:
    header = encode_each_format()["png"][:33]
    noise = b"".join(b"\0" + random.Random(row).randbytes(3 * 96) for row in range(64))
    stream = zlib.compress(noise)
    cut_chunk = chunk(b"IDAT", stream[: int(fraction * len(stream))])
    assert find_error(header + cut_chunk + chunk(b"IEND")).code == "image.truncated"


def test_encoder_running_out_of_memory_is_reported_with_its_own_error_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def raise_out_of_memory(*_: object, **__: object) -> bytes:
        raise ValueError("encoding error 1: out of memory")

    monkeypatch.setattr("services.attachments.images.encoding._encode_webp", raise_out_of_memory)
    assert find_error(encoded(samples.picture(), "PNG")).code == "image.out_of_memory"
