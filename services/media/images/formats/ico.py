import struct
from collections.abc import Iterator

from PIL import Image

from services.media.images.animation import first_view
from services.media.images.bounds import check_canvas
from services.media.images.formats import png
from services.media.images.outcome import truncated, unreadable
from services.media.images.still import decode as decode_still

_MAX_BYTE = 255
_BITS_WITH_ALPHA = 32
_COUNT = struct.Struct("<4xH")
_PLACE = struct.Struct("<8xII")
_PNG_HEADER = struct.Struct(">16xIIBB7x")
_BITMAP_HEADER = struct.Struct("<IiiHH24x")
_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


_Entry = tuple[int, int, int, bytes]  # width, height, bits a pixel, and the image itself


def decode_best(data: bytes) -> Image.Image:
    """Decode the image with the most pixels; among equals, the one with the most bits a pixel."""
    best = max(_entries(data), key=lambda entry: (entry[0] * entry[1], entry[2]))
    width, height, bits, body = best
    if body.startswith(png.SIGNATURE):
        return first_view(png.read(body))
    # A bitmap is decoded as an icon of one image, so that Pillow applies its transparency mask.
    sides = (side if side <= _MAX_BYTE else 0 for side in (width, height))
    directory = struct.pack("<HHHBBBBHHII", 0, 1, 1, *sides, 0, 0, 1, bits, len(body), 22)
    image = decode_still(directory + body, "ICO")
    is_blank = image.mode == "RGBA" and image.getchannel("A").getextrema() == (0, 0)
    if bits == _BITS_WITH_ALPHA and is_blank:
        # Icons older than alpha leave its byte empty, and are not meant to be invisible.
        image.putalpha(255)
    return image


def _entries(data: bytes) -> Iterator[_Entry]:
    if len(data) < _COUNT.size:
        raise truncated("The ICO stops before its directory.")
    (count,) = _COUNT.unpack_from(data)
    if not count:
        raise unreadable("The ICO's directory is empty.")
    if len(data) < 6 + 16 * count:
        raise truncated(f"The ICO stops inside its directory of {count:,} images.")
    for number in range(count):
        size, offset = _PLACE.unpack_from(data, 6 + 16 * number)
        body = data[offset : offset + size]
        if len(body) < size:
            raise truncated(f"The ICO's image at byte {offset:,} runs past the end of the file.")
        # The image's own header counts: the directory has one byte a side, and is often wrong.
        if body.startswith(png.SIGNATURE):
            if len(body) < _PNG_HEADER.size:
                raise truncated("The ICO's PNG stops inside its header.")
            width, height, depth, colour = _PNG_HEADER.unpack_from(body)
            bits = depth * _PNG_CHANNELS.get(colour, 1)
        elif len(body) < _BITMAP_HEADER.size:
            raise truncated("The ICO's bitmap stops inside its header.")
        else:
            header_size, width, doubled, _, bits = _BITMAP_HEADER.unpack_from(body)
            if header_size < _BITMAP_HEADER.size or bits not in (1, 4, 8, 16, 24, 32):
                raise unreadable("The ICO holds neither a PNG nor a bitmap.")
            height = abs(doubled) // 2
        check_canvas(width, height, f"ICO image at byte {offset:,}")
        yield width, height, bits, body
