"""How a picture is to be turned: as EXIF says, and where it says nothing, as XMP does.

The values are those of EXIF: 1 is upright, 6 is to be turned right by a quarter.
"""

import struct
from collections.abc import Mapping

from PIL import ExifTags, Image

_UPRIGHT = 1


def of_image(image: Image.Image) -> int:
    """Return what the metadata of an open image say, by the rules of Pillow's `exif_transpose`."""
    try:
        value = image.getexif().get(ExifTags.Base.Orientation, _UPRIGHT)
    except (SyntaxError, ValueError, TypeError, KeyError, struct.error, OSError):
        # Metadata are dropped in any case, and the pixels are good.
        return _UPRIGHT
    return value if isinstance(value, int) else _UPRIGHT


def in_metadata(info: Mapping[str, bytes | str]) -> int:
    """Return what these metadata say, named as in the `info` of Pillow's images."""
    holder = Image.new("L", (1, 1))
    holder.info.update(info)
    return of_image(holder)
