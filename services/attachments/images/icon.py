"""Decodes the largest image of an icon file (ICO)."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from PIL import Image

from services.attachments.images import outcome, png
from services.attachments.images.animation import render_first_view
from services.attachments.images.outcome import (
    UnreadableImage,
    create_truncated_error,
    create_unreadable_error,
)
from services.attachments.images.still import DECODER_ERRORS, decode_image

# The number of decoded images is limited, because a hostile icon file can contain thousands of
# large images.
_MAX_DECODED_ENTRIES = 8
_MAX_BYTE = 255
_BITS_WITH_ALPHA = 32
_COUNT = struct.Struct("<4xH")
_SIZE_AND_OFFSET = struct.Struct("<8xII")
_PNG_HEADER = struct.Struct(">16xIIBB7x")
_BITMAP_HEADER = struct.Struct("<IiiHH24x")
# Maps the colour type of a PNG to the number of colour and alpha channels.
_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


@dataclass(frozen=True, slots=True)
class _Entry:
    width: int
    height: int
    bits: int
    offset: int
    size: int


def decode_best_image(data: bytes) -> Image.Image:
    """Decode the image with the most pixels in an icon file.

    If several images are equally large, the one with the most bits per pixel is decoded. If an
    image is broken, the next largest image is decoded.
    """
    entries = list[_Entry]()
    failures = list[Exception]()
    for offset, size in dict.fromkeys(_list_positions(data)):
        try:
            entries.append(_read_entry(data, offset, size))
        except UnreadableImage as error:
            failures.append(error)
    entries.sort(key=lambda entry: (entry.width * entry.height, entry.bits), reverse=True)
    for entry in entries[:_MAX_DECODED_ENTRIES]:
        try:
            return _decode_entry(entry, data[entry.offset : entry.offset + entry.size])
        except (UnreadableImage, *DECODER_ERRORS) as error:
            # Remove the traceback from the error, because the traceback would keep the image in
            # memory.
            failures.append(error.with_traceback(None))
    raise failures[0]


def _list_positions(data: bytes) -> Iterator[tuple[int, int]]:
    if len(data) < _COUNT.size:
        raise create_truncated_error("The ICO ends before its directory.")
    (count,) = _COUNT.unpack_from(data)
    if not count:
        raise create_unreadable_error("The ICO's directory is empty.")
    if len(data) < 6 + 16 * count:
        raise create_truncated_error(f"The ICO ends inside its directory of {count:,} images.")
    for number in range(count):
        size, offset = _SIZE_AND_OFFSET.unpack_from(data, 6 + 16 * number)
        yield offset, size


def _read_entry(data: bytes, offset: int, size: int) -> _Entry:
    if offset + size > len(data):
        raise create_truncated_error(
            f"The ICO's image at byte {offset:,} extends beyond the end of the file."
        )
    # Read the width and height from the image's own header, because the directory of an icon file
    # often contains wrong values.
    head = data[offset : offset + min(size, _BITMAP_HEADER.size)]
    if head.startswith(png.SIGNATURE):
        if len(head) < _PNG_HEADER.size:
            raise create_truncated_error("The ICO's PNG ends inside its header.")
        width, height, depth, colour = _PNG_HEADER.unpack_from(head)
        bits = depth * _PNG_CHANNELS.get(colour, 1)
    elif len(head) < _BITMAP_HEADER.size:
        raise create_truncated_error("The ICO's bitmap ends inside its header.")
    else:
        header_size, width, doubled, _, bits = _BITMAP_HEADER.unpack_from(head)
        if header_size < _BITMAP_HEADER.size or bits not in (1, 4, 8, 16, 24, 32):
            raise create_unreadable_error("The ICO contains neither a PNG nor a bitmap.")
        height = abs(doubled) // 2
    outcome.check_canvas(width, height, f"ICO image at byte {offset:,}")
    return _Entry(width, height, bits, offset, size)


def _decode_entry(entry: _Entry, body: bytes) -> Image.Image:
    if body.startswith(png.SIGNATURE):
        return render_first_view(png.read_png(body))
    # Build an icon file with a single bitmap, so that Pillow applies the transparency mask.
    sides = (side if side <= _MAX_BYTE else 0 for side in (entry.width, entry.height))
    directory = struct.pack("<HHHBBBBHHII", 0, 1, 1, *sides, 0, 0, 1, entry.bits, len(body), 22)
    image = decode_image(directory + body, "ICO")
    is_blank = image.mode == "RGBA" and image.getchannel("A").getextrema() == (0, 0)
    if entry.bits == _BITS_WITH_ALPHA and is_blank:
        # In old icon files, the alpha byte of each pixel is 0, although the pixels are visible.
        image.putalpha(255)
    return image
