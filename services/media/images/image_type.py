from enum import StrEnum


class ImageType(StrEnum):
    """The formats that we read. PNG includes APNG, and JPEG includes MPO."""

    PNG = "png"
    JPEG = "jpeg"
    GIF = "gif"
    WEBP = "webp"
    ICO = "ico"

    @property
    def mime_type(self) -> str:
        return "image/x-icon" if self is ImageType.ICO else f"image/{self.value}"


# Of file names, in lower case and without the dot.
ALLOWED_EXTENSIONS = frozenset({*ImageType, "jpg"})

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", ImageType.PNG),
    (b"\xff\xd8\xff", ImageType.JPEG),
    (b"GIF87a", ImageType.GIF),
    (b"GIF89a", ImageType.GIF),
    (b"\0\0\1\0", ImageType.ICO),
)


def sniff(data: bytes) -> ImageType | None:
    """Return the type by the first bytes, of which 16 are enough; None for a type not ours."""
    if data[:4] == b"RIFF" and data[8:15] == b"WEBPVP8":
        return ImageType.WEBP
    return next((kind for magic, kind in _SIGNATURES if data.startswith(magic)), None)
