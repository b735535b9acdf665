"""Uploaded images, converted to one form.

`convert` is in `services.media.images.conversion`: importing this package doesn't load Pillow,
which only the converter process needs.
"""

from services.media.images.converter import ConverterProcess
from services.media.images.image_type import ALLOWED_EXTENSIONS, ImageType, sniff
from services.media.images.outcome import ConvertedImage, UnreadableImage

__all__ = [
    "ALLOWED_EXTENSIONS",
    "ConvertedImage",
    "ConverterProcess",
    "ImageType",
    "UnreadableImage",
    "sniff",
]
