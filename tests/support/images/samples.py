"""Builds images for tests with Pillow, or byte by byte where the file structure matters."""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO

from PIL import Image, ImageCms

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)
CLEAR = (0, 0, 0, 0)
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def encoded(image: Image.Image, format_name: str, **options: object) -> bytes:
    out = BytesIO()
    image.save(out, format_name, **options)
    return out.getvalue()


def open_image(data: bytes) -> Image.Image:
    return Image.open(BytesIO(data))


def picture(width: int = 96, height: int = 64) -> Image.Image:
    """Return a smooth image with a different colour in each corner."""
    across = Image.linear_gradient("L").rotate(90).resize((width, height))
    down = Image.linear_gradient("L").resize((width, height))
    return Image.merge("RGB", [across, down, Image.new("L", (width, height), 90)])


def quarters() -> Image.Image:
    """Return a wide image with quarters in red, green, blue and white, from the top left."""
    image = Image.new("RGB", (96, 64), RED)
    image.paste(GREEN, (48, 0, 96, 32))
    image.paste(BLUE, (0, 32, 48, 64))
    image.paste(WHITE, (48, 32, 96, 64))
    return image


def encode_animation(
    format_name: str, colours: Sequence[tuple[int, ...]], ms: Sequence[int], **options: object
) -> bytes:
    frames = [Image.new("RGB", (40, 30), colour) for colour in colours]
    return encoded(
        frames[0],
        format_name,
        save_all=True,
        append_images=frames[1:],
        duration=list(ms),
        **options,
    )


@cache
def encode_each_format() -> dict[str, bytes]:
    still = picture()
    moving = ((RED, GREEN, BLUE, WHITE), (100, 50, 70, 200))
    return {
        "jpeg": encoded(still, "JPEG"),
        "mpo": encoded(still, "MPO", save_all=True, append_images=[still.rotate(180)]),
        "png": encoded(still, "PNG"),
        "apng": encode_animation("PNG", *moving),
        "gif": encoded(still, "GIF"),
        "animated gif": encode_animation("GIF", *moving),
        "webp": encoded(still, "WEBP"),
        "lossless webp": encoded(still, "WEBP", lossless=True),
        "animated webp": encode_animation("WEBP", *moving),
        "ico": encoded(still, "ICO", sizes=[(16, 16), (32, 32)]),
        "bitmap ico": encoded(still.convert("RGBA"), "ICO", sizes=[(32, 32)], bitmap_format="bmp"),
    }


def chunk(name: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(
    width: int, height: int, rows: bytes, *, depth: int = 8, colour: int = 6, extra: bytes = b""
) -> bytes:
    """Return a PNG image.

    ``rows``: the pixels. In PNG, each row of pixels begins with a byte that names its filter.
    ``extra``: PNG chunks to put before the chunk with the pixels.
    """
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(rows))
    return PNG_SIGNATURE + header + extra + data + chunk(b"IEND")


def rgba_rows(width: int, height: int, colour: tuple[int, ...]) -> bytes:
    return (b"\0" + bytes(colour) * width) * height


@dataclass(frozen=True)
class Rectangle:
    """A frame of an APNG animation that fills a rectangle with a colour."""

    box: tuple[int, int, int, int]
    colour: tuple[int, ...]
    delay: tuple[int, int] = (1, 10)
    dispose: int = 0
    blend: int = 0


def apng(
    size: tuple[int, int],
    frames: Sequence[Rectangle],
    *,
    plays: int = 0,
    stand_in: tuple[int, ...] | None = None,
) -> bytes:
    parts = [
        PNG_SIGNATURE,
        chunk(b"IHDR", struct.pack(">IIBBBBB", *size, 8, 6, 0, 0, 0)),
        chunk(b"acTL", struct.pack(">II", len(frames), plays)),
    ]
    if stand_in:
        parts.append(chunk(b"IDAT", zlib.compress(rgba_rows(*size, stand_in))))
    number = 0
    for frame in frames:
        left, top, right, bottom = frame.box
        place = struct.pack(">IIIII", number, right - left, bottom - top, left, top)
        control = place + struct.pack(">HHBB", *frame.delay, frame.dispose, frame.blend)
        parts.append(chunk(b"fcTL", control))
        rows = zlib.compress(rgba_rows(right - left, bottom - top, frame.colour))
        if number == 0 and not stand_in:
            parts.append(chunk(b"IDAT", rows))
        else:
            number += 1
            parts.append(chunk(b"fdAT", struct.pack(">I", number) + rows))
        number += 1
    return b"".join([*parts, chunk(b"IEND")])


GIF_PALETTE = (RED, GREEN, BLUE, WHITE)
GIF_TRANSPARENT = 4


@dataclass(frozen=True)
class GifFrame:
    """A frame of a GIF animation that fills a rectangle with a colour of the palette."""

    box: tuple[int, int, int, int]
    index: int
    hundredths: int = 10
    dispose: int = 0


def gif(size: tuple[int, int], frames: Sequence[GifFrame], *, loop: int | None = None) -> bytes:
    palette = b"".join(bytes(colour) for colour in GIF_PALETTE).ljust(3 * 128, b"\0")
    parts = [b"GIF89a" + struct.pack("<HHBBB", *size, 0x80 | 6, 0, 0) + palette]
    if loop is not None:
        parts.append(b"!\xff\x0bNETSCAPE2.0\x03\x01" + struct.pack("<H", loop) + b"\0")
    for frame in frames:
        left, top, right, bottom = frame.box
        flags = frame.dispose << 2 | 1
        parts.append(
            b"!\xf9\x04" + struct.pack("<BHBB", flags, frame.hundredths, GIF_TRANSPARENT, 0)
        )
        parts.append(b"," + struct.pack("<HHHHB", left, top, right - left, bottom - top, 0))
        parts.append(_uncompressed_lzw(bytes([frame.index]) * ((right - left) * (bottom - top))))
    return b"".join([*parts, b";"])


def _uncompressed_lzw(pixels: bytes) -> bytes:
    """Return pixels in the LZW format of GIF, but without compression.

    A clear code before every 126 pixels keeps the table of codes so small that each code fits into
    eight bits.
    """
    codes = b"".join(b"\x80" + pixels[at : at + 126] for at in range(0, len(pixels), 126)) + b"\x81"
    blocks = (codes[at : at + 255] for at in range(0, len(codes), 255))
    return b"\x07" + b"".join(bytes([len(block)]) + block for block in blocks) + b"\0"


def wide_gamut_profile() -> bytes:
    """Return a colour profile that swaps red and green, so that every conversion is visible."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    (count,) = struct.unpack_from(">I", profile, 128)
    tags = {bytes(profile[at : at + 4]): at for at in range(132, 132 + 12 * count, 12)}
    red, green = tags[b"rXYZ"] + 4, tags[b"gXYZ"] + 4
    profile[red : red + 8], profile[green : green + 8] = (
        profile[green : green + 8],
        profile[red : red + 8],
    )
    return bytes(profile)


def playback(data: bytes) -> list[tuple[bytes, int]]:
    """Return the RGBA pixels of each frame of an animation, and the frame's duration in ms."""
    frames: list[tuple[bytes, int]] = []
    with open_image(data) as image:
        for number in range(getattr(image, "n_frames", 1)):
            image.seek(number)
            image.load()
            pixels, ms = image.convert("RGBA").tobytes(), int(image.info.get("duration", 0))
            if frames and frames[-1][0] == pixels:
                frames[-1] = (pixels, frames[-1][1] + ms)
            else:
                frames.append((pixels, ms))
    return frames


def timeline(data: bytes, at: tuple[int, int] = (0, 0)) -> list[tuple[tuple[int, ...], int]]:
    """Return each colour that one pixel of an animation takes, and for how many milliseconds."""
    with open_image(data) as image:
        start = 4 * (at[1] * image.width + at[0])
    return [(tuple(pixels[start : start + 4]), ms) for pixels, ms in playback(data)]


def icon(*images: tuple[int, bytes]) -> bytes:
    """Return an ICO file that contains the images, each given as bits per pixel and image data."""
    directory = struct.pack("<HHH", 0, 1, len(images))
    bodies = b""
    for bits, body in images:
        offset = 6 + 16 * len(images) + len(bodies)
        directory += struct.pack("<BBBBHHII", 32, 32, 0, 0, 1, bits, len(body), offset)
        bodies += body
    return directory + bodies


def bitmap(colour: tuple[int, ...], bits: int, *, side: int = 32, masked_rows: int = 0) -> bytes:
    """Return a square bitmap of one colour, for an ICO file."""
    header = struct.pack("<IiiHHIIiiII", 40, side, 2 * side, 1, bits, 0, 0, 0, 0, 0, 0)
    pixels = bytes(colour) * (side * side)
    mask = b"\xff" * (side // 8 * masked_rows) + bytes(side // 8 * (side - masked_rows))
    return header + pixels + mask
