"""Uploaded images, brought to one form.

The function `convert` is in `services.images.conversion`: importing this package does not load
Pillow, which only the converter process needs.
"""

from services.images.image_type import ALLOWED_EXTENSIONS, ImageType, sniff
from services.images.outcome import Converted, UnreadableImage
from services.images.process import ConverterProcess

__all__ = [
    "ALLOWED_EXTENSIONS",
    "Converted",
    "ConverterProcess",
    "ImageType",
    "UnreadableImage",
    "sniff",
]
